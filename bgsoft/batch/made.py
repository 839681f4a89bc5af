"""The files that a batch has made, and whether they are still what it made."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from bgsoft.outputs import stamp

_LENGTHS = [1 << power for power in range(21)]
"""Bytes, up to 1 MiB: so much tells one video from another."""
_DIGITS = 8


class Made(NamedTuple):
    """A file as the batch has left it."""

    stamp: str
    """See :func:`bgsoft.outputs.stamp`."""
    beginnings: str
    """Eight hex digits of the SHA-256 of its first 1, 2, 4, … bytes, one after the other."""


class Look(StrEnum):
    """What is at the place of a file."""

    MISSING = "missing"
    OWN = "own"
    """What the batch has made."""
    CUT = "cut"
    """The beginning of that."""
    FOREIGN = "foreign"
    """Something that somebody else has made, or changed."""


def describe(path: Path) -> Made:
    """A file that the batch has just made."""
    return Made(stamp(path), _beginnings(path))


def look(path: Path, made: Made | None) -> Look:
    """Compare what is at a path with what the batch has made there; None: it has made nothing."""
    now = stamp(path)
    if not now:
        return Look.MISSING
    if made is None:
        return Look.FOREIGN
    if now == made.stamp:
        return Look.OWN
    shorter = _size(now) < _size(made.stamp)
    is_cut = shorter and path.is_file() and made.beginnings.startswith(_beginnings(path))
    return Look.CUT if is_cut else Look.FOREIGN


def _size(stamp: str) -> int:
    return int(stamp.partition(":")[0])


def _beginnings(path: Path) -> str:
    digest, done, found = hashlib.sha256(), 0, ""
    try:
        with path.open("rb") as file:
            for length in _LENGTHS:
                data = file.read(length - done)
                if done + len(data) < length:
                    break
                digest.update(data)
                done = length
                found += digest.hexdigest()[:_DIGITS]
    except OSError:
        return "unreadable"
    return found
