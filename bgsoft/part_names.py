"""Names of files that are not whole: hidden while they are written, partial if that was all."""

from __future__ import annotations

import os
from pathlib import Path

MAX_NAME_BYTES = 255
TOKEN_CHARS = 8


def hidden_beside(target: Path) -> Path:
    """A hidden name, that no other file has, in the same folder."""
    return with_token(target, *hidden_parts(target))


def hidden_parts(target: Path, suffix: str = "") -> tuple[str, str]:
    """What the hidden names of a target start and end with.

    Long names are cut so that the whole stays within the file system's limit. A name is bytes: it
    need not be UTF-8, and need not be what the locale can say.
    """
    ending = f".part{suffix}"
    room = MAX_NAME_BYTES - len(os.fsencode(ending)) - TOKEN_CHARS - 2
    whole = os.fsencode(target.name)[:room].decode(errors="ignore")  # no half character at the end
    return f".{os.fsdecode(whole.encode())}.", ending


def with_token(target: Path, prefix: str, ending: str) -> Path:
    """A hidden name of a target that no other file has, of :func:`hidden_parts`."""
    return target.with_name(f"{prefix}{os.urandom(TOKEN_CHARS // 2).hex()}{ending}")


def partial_beside(target: Path, number: int = 1) -> Path:
    """The name of what was written until something stopped it, of so many such."""
    ending = f".partial{f'-{number}' if number > 1 else ''}{target.suffix}"
    stem = os.fsencode(target.stem)[: MAX_NAME_BYTES - len(os.fsencode(ending))]
    return target.with_name(os.fsdecode(stem) + ending)
