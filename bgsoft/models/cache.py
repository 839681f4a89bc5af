"""The folder of pulled models: checked by hash, safe against parallel processes."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bgsoft.cache import cache_root, locked
from bgsoft.errors import (
    ModelDownloadError,
    ModelError,
    ModelIntegrityError,
    os_errors_as,
    translated,
)
from bgsoft.outputs import replacing
from bgsoft.records import NamedTuple

_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 1 << 18


def cache_folder() -> Path:
    """Return the folder of pulled models."""
    return cache_root() / "models"


class Checksum(NamedTuple):
    """Hash of a file."""

    value: str
    """Hexadecimal."""
    algorithm: str = "sha256"
    """``sha256``; or ``md5``, where its publisher gives no other: it shows damage, not forgery."""

    @property
    def label(self) -> str:
        """Usual name of the algorithm, such as SHA-256."""
        return {"sha256": "SHA-256", "md5": "MD5"}[self.algorithm]

    def __str__(self) -> str:
        return f"{self.label} {self.value}"

    def start(self) -> Any:
        """A ``hashlib`` object that makes sums of this kind."""
        return hashlib.new(self.algorithm, usedforsecurity=False)


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a file, hexadecimal; raises ModelError if it cannot be read."""
    start = Checksum("", algorithm).start
    with os_errors_as(ModelError, f"cannot read {path}", path=path), path.open("rb") as file:
        return hashlib.file_digest(file, start).hexdigest()


def hash_files(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of a file, or of several hashes; raises ModelError if unreadable."""
    hashes = [hash_file(path) for path in paths]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def check_file(path: Path, *, size_bytes: int | None, checksum: Checksum) -> None:
    """Check a model file against the catalogue.

    Raises:
        ModelError: The file cannot be read.
        ModelIntegrityError: Its size or hash differs.
    """
    with os_errors_as(ModelError, f"cannot read {path}", path=path):
        found_bytes = path.stat().st_size
    if size_bytes is not None and found_bytes != size_bytes:
        raise ModelIntegrityError(
            f"cannot use {path}: it is damaged ({found_bytes} bytes, expected {size_bytes})",
            path=path,
        )
    found = hash_file(path, checksum.algorithm)
    if found != checksum.value:
        raise ModelIntegrityError(
            f"cannot use {path}: it is damaged ({checksum.label} {found[:12]}…, expected "
            f"{checksum.value[:12]}…)",
            path=path,
        )


def pull(
    url: str,
    path: Path,
    *,
    size_bytes: int | None,
    checksum: Checksum,
    on_progress: Callable[[int, int], None] | None = None,
) -> bool:
    """Download a model file into the cache, unless it is there and intact.

    Processes that pull the same file wait for each other. The file appears under its name once it
    is complete and its hash is verified.

    Args:
        url: Address of the published file.
        path: Path of the saved file; folders are created.
        size_bytes: Expected size; None: unknown.
        checksum: Expected hash.
        on_progress: Called with (bytes so far, total bytes or 0).

    Returns:
        Whether anything was downloaded.

    Raises:
        ModelDownloadError: The download failed; the message says how to do it by hand.
        ModelIntegrityError: The downloaded file has another hash.
    """
    size = "" if size_bytes is None else f"{size_bytes} bytes, "
    by_hand = f"download {url} and save it as {path} ({size}{checksum})"

    def failed(exc: OSError) -> ModelDownloadError:
        reason = exc.strerror or type(exc).__name__
        return ModelDownloadError(f"cannot pull {path.name}: {reason}; {by_hand}", path=path)

    with translated(OSError, to=failed):  # requests' errors are OSErrors too
        with os_errors_as(ModelDownloadError, f"cannot create folder {path.parent}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(path.name + ".lock")):
            if path.is_file():
                with contextlib.suppress(ModelIntegrityError):
                    check_file(path, size_bytes=size_bytes, checksum=checksum)
                    return False
                path.unlink()
            _fetch(url, path, size_bytes, checksum, on_progress or (lambda _done, _all: None))
    return True


def _fetch(
    url: str,
    path: Path,
    size_bytes: int | None,
    checksum: Checksum,
    report: Callable[[int, int], None],
) -> None:
    import requests

    done, digest = 0, checksum.start()
    with (
        requests.get(url, stream=True, timeout=_TIMEOUT_SECONDS) as response,
        replacing(path) as part,
    ):
        response.raise_for_status()
        told = response.headers.get("Content-Length", "")
        total = size_bytes or (int(told) if told.isdecimal() else 0)
        with part.open("wb") as file:
            for chunk in response.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                report(min(done, total), total)
                if size_bytes is not None and done > size_bytes:
                    break  # its hash cannot match any more
        if digest.hexdigest() != checksum.value:
            raise ModelIntegrityError(
                f"cannot use {url}: its {checksum.label} differs from the catalogue's", path=path
            )
