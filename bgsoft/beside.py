"""Files beside the video (reports, traces, faces, plots, previews) and the folders of all outputs.

They are checked before the work that fills them, and a file appears under its name only when it is
whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bgsoft.errors import OutputError
from bgsoft.suggest import network_address

__all__ = [
    "check_target",
    "hidden_beside",
    "made_folders",
    "partial_beside",
    "put",
    "replacing",
    "target_error",
    "write_whole",
]


_MAX_NAME_BYTES = 255


def target_error(what: str, path: Path, exc: OSError) -> OutputError:
    """Describe a failed write for the user."""
    return OutputError(f"cannot write the {what} {path.name}: {exc.strerror}", path=path)


def check_target(
    path: Path, what: str, *, overwrite: bool = True, others: Iterable[Path] = ()
) -> None:
    """Fail before the work, rather than after it, where a file could not be written.

    Missing folders are no obstacle: :func:`made_folders` makes them.

    Args:
        path: The file. A device or a pipe will do.
        what: What to call it.
        overwrite: It may exist.
        others: Files that it must not be.

    Raises:
        OutputError: It cannot be written, exists, or is one of the others.
    """
    _refuse_address(path)
    for other in others:
        if path.resolve() == other.resolve():
            raise OutputError(f"the {what} {path} is the same file as {other}", path=path)
    if path.is_dir():
        raise OutputError(f"the {what} {path} is a directory", path=path)
    if path.is_file() and not overwrite:
        raise OutputError(f"the {what} {path} exists; use --overwrite to replace it", path=path)
    folder = path.resolve().parent
    existing = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
    if not existing.is_dir():
        raise OutputError(f"the {what}'s folder {folder}: {existing} is no folder", path=path)
    if not os.access(existing if _is_regular(path) else path, os.W_OK):
        raise OutputError(f"the {what} {path} is not writable", path=path)


@contextmanager
def made_folders(paths: Iterable[Path], tell: Callable[[str], None]) -> Iterator[None]:
    """Make the missing folders of files that are to be written, and remove those that stay empty.

    Args:
        paths: The files.
        tell: Told of each folder that is made.

    Raises:
        OutputError: A folder cannot be made.
    """
    made: list[Path] = []
    try:
        for path in paths:
            _refuse_address(path)
            folder = path.absolute().parent
            missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
            if not missing:
                continue
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                text = f"cannot make the folder {path.parent}: {exc.strerror}"
                raise OutputError(text, path=path) from exc
            made = missing + made
            tell(f"made the folder {path.parent}")
        yield
    finally:
        for folder in made:
            with suppress(OSError):  # it is in use
                folder.rmdir()


def _refuse_address(path: Path) -> None:
    address = network_address(path)
    if address is not None:
        raise OutputError(f"{address} is an address: only local files are written", path=path)


def _is_regular(path: Path) -> bool:
    return path.is_file() or not path.exists()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden name beside ``path``, which takes its place at the end of the block.

    After an error nothing is left of it, and what was at ``path`` stays. A device or a pipe is
    given out itself; where ``path`` is a symbolic link, the file it points to is replaced.
    """
    if not _is_regular(path):
        yield path
        return
    target = path.resolve()
    part = hidden_beside(target)
    try:
        yield part
        put(part, target)
    finally:
        part.unlink(missing_ok=True)


def hidden_beside(target: Path) -> Path:
    """A hidden name, of nobody else, in the same folder."""
    return target.with_name(_short(f".{target.name}", f".{secrets.token_hex(4)}.part"))


def partial_beside(target: Path) -> Path:
    """The name of what was written until something stopped it."""
    return target.with_name(_short(target.stem, f".partial{target.suffix}"))


def _short(begin: str, end: str) -> str:
    """One name of two parts, the first cut so that the whole stays within what a folder holds."""
    return os.fsdecode(os.fsencode(begin)[: _MAX_NAME_BYTES - len(os.fsencode(end))]) + end


def put(part: Path, target: Path) -> None:
    """Let a whole file take the place, and the permissions, of what was there."""
    if target.exists():
        shutil.copymode(target, part)
    part.replace(target)


def write_whole(path: Path, what: str, data: str | bytes) -> None:
    """Write a file at once.

    Args:
        path: Replaced where it exists.
        what: What to call it in an error.
        data: Bytes, or text for UTF-8.

    Raises:
        OutputError: It cannot be written; what was there before stays.
    """
    try:
        with replacing(path) as part:
            part.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as exc:
        raise target_error(what, path, exc) from exc
