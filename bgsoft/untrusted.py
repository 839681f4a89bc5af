"""Reading of untrusted files: malformed text raises ValueError, nothing worse."""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from bgsoft.errors import BgsoftError, errors_as, translated

NOT_REGULAR = "it is not a regular file, so it cannot be read twice"
_MAX_TOML_BYTES = 1 << 20

_too_deep = translated(RecursionError, to=lambda _: ValueError("it is nested too deeply"))
_not_utf_8 = translated(UnicodeDecodeError, to=lambda _: ValueError("it is not UTF-8"))


def file_state(path: Path) -> os.stat_result:
    """Return the state of a file; raises OSError if it is a pipe, which can be read only once."""
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR)
    return state


def check_regular(path: Path, error: type[BgsoftError], problem: str) -> None:
    """Raise ``error``, a problem with its reason, unless a path is a regular file.

    Reading anything else may block.
    """
    with errors_as((OSError, ValueError), error, problem, path=path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        reason = "it is a folder" if stat.S_ISDIR(mode) else NOT_REGULAR
        raise error(f"{problem}: {reason}", path=path)


def parse_json(data: str | bytes) -> Any:
    """Parse JSON; raises ValueError where it is malformed."""
    with _too_deep:
        return json.loads(data)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is malformed, not UTF-8, or larger than 1 MiB.
    """
    return parse_toml(read_toml_bytes(path))


def read_toml_bytes(path: Path) -> bytes:
    """Return the content of a TOML file, for :func:`parse_toml`, which rejects one cut off here."""
    with path.open("rb") as file:
        return file.read(_MAX_TOML_BYTES + 1)


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse TOML; raises ValueError where it is malformed, not UTF-8, or larger than 1 MiB."""
    if len(data) > _MAX_TOML_BYTES:
        raise ValueError("it is larger than 1 MiB")
    with _too_deep, _not_utf_8:
        return tomllib.loads(data.decode("utf-8-sig"))
