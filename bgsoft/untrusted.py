"""Parsers for text from untrusted files: malformed text raises ValueError, nothing worse."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from bgsoft.errors import translated

_MAX_TOML_BYTES = 1 << 20

_too_deep = translated(RecursionError, to=lambda _: ValueError("it is nested too deeply"))
_not_utf_8 = translated(UnicodeDecodeError, to=lambda _: ValueError("it is not UTF-8"))


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
