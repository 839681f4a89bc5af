"""Names of incomplete files: hidden while they are written, partial if writing ended early."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

MAX_NAME_BYTES = 255
TOKEN_CHARS = 8


def name_digest(name: str | Path) -> str:
    """Return digits that tell a name from others, from its SHA-256."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:TOKEN_CHARS]


def hidden_path(target: Path) -> Path:
    """Return a hidden, unused name in the same folder."""
    return with_token(target, *hidden_parts(target))


def hidden_parts(target: Path, suffix: str = "") -> tuple[str, str]:
    """Return the start and the end of a target's hidden names.

    Long names are shortened to the file system's limit. A name is bytes: it need not be valid UTF-8
    or valid in the locale.
    """
    ending = f".part{suffix}"
    room = MAX_NAME_BYTES - len(os.fsencode(ending)) - TOKEN_CHARS - 2
    whole = os.fsencode(target.name)[:room].decode(errors="ignore")  # cut at whole characters
    return f".{os.fsdecode(whole.encode())}.", ending


def with_token(target: Path, prefix: str, ending: str) -> Path:
    """Return a hidden, unused name of a target, of :func:`hidden_parts`."""
    return target.with_name(f"{prefix}{os.urandom(TOKEN_CHARS // 2).hex()}{ending}")


def partial_path(target: Path, number: int = 1) -> Path:
    """Return the name of the ``number``-th incomplete file of a target."""
    ending = f".partial{f'-{number}' if number > 1 else ''}{target.suffix}"
    stem = os.fsencode(target.stem)[: MAX_NAME_BYTES - len(os.fsencode(ending))]
    return target.with_name(os.fsdecode(stem) + ending)
