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
    with path.open("rb") as file:
        data = file.read(_MAX_TOML_BYTES + 1)
    if len(data) > _MAX_TOML_BYTES:
        raise ValueError("it is larger than 1 MiB")
    with _too_deep, _not_utf_8:
        return tomllib.loads(data.decode("utf-8-sig"))
