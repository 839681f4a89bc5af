"""The files that a batch has made, and whether they are still what it made."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

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

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.stamp.partition(":")[0] or 0)


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
    """A file as it is now; of one that cannot be read, nothing."""
    try:
        with path.open("rb") as file:
            return Made(stamp(file.fileno()), _beginnings(file))
    except OSError:
        return Made("", "")


def look(path: Path, made: Made | None) -> Look:
    """Compare what is at a path with what the batch has made there; None: it has made nothing."""
    now = stamp(path)
    if not now:
        return Look.MISSING
    if made is None:
        return Look.FOREIGN
    if now == made.stamp:
        return Look.OWN
    found = describe(path) if path.is_file() else Made("", "")  # a pipe would block
    is_cut = found.size < made.size and made.beginnings.startswith(found.beginnings)
    return Look.CUT if found.stamp and is_cut else Look.FOREIGN


def _beginnings(file: BinaryIO) -> str:
    digest, done, found = hashlib.sha256(), 0, ""
    for length in _LENGTHS:
        data = file.read(length - done)
        if done + len(data) < length:
            break
        digest.update(data)
        done = length
        found += digest.hexdigest()[:_DIGITS]
    return found
