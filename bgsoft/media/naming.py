"""Names of stills and of their sequences.

A sequence is named by a printf pattern, ``frames/%05d.png``; one that is read may be a folder, too.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

STILL_NAMES = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WebP",
    "tiff": "TIFF",
    "bmp": "BMP",
    "avif": "AVIF",
    "heif": "HEIC",
}
"""Kinds of stills that are read, and how messages call them."""
STILL_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp"),
        *(".avif", ".heic", ".heif", ".hif"),
    }
)
"""What a folder's stills are taken by."""
_FIELD = r"%(?:0\d{1,2})?d"


def is_pattern(path: Path) -> bool:
    """Whether a path stands for numbered stills: one ``%d`` or ``%05d`` in its name."""
    name = path.name.replace("%%", "")
    return (
        name.count("%") == 1
        and re.search(_FIELD, name) is not None
        and path.suffix.lower() in STILL_SUFFIXES
    )


def is_sequence(path: Path) -> bool:
    """Whether an input is a folder, or a pattern that is no file's name."""
    # pathlib's raise where a name is too long; whoever opens it says so.
    return os.path.isdir(path) or (is_pattern(path) and not os.path.exists(path))  # noqa: PTH110, PTH112


def name_of(pattern: Path, number: int) -> str:
    """The name of a sequence's picture."""
    return pattern.name % number


def number_of(pattern: Path, name: str) -> int | None:
    """The number of a sequence's picture; None: the name is none of its."""
    field = re.search(_FIELD, pattern.name.replace("%%", "\0\0"))
    if field is None:
        return None
    before, after = pattern.name[: field.start()], pattern.name[field.end() :]
    before, after = before.replace("%%", "%"), after.replace("%%", "%")
    digits = name[len(before) : len(name) - len(after)]
    if not (name.startswith(before) and name.endswith(after) and digits.isdecimal()):
        return None
    number = int(digits)
    return number if digits.isascii() and name_of(pattern, number) == name else None


def appears_as(output: Path) -> Path:
    """What an output shows itself as: of a sequence the folder, else the file itself."""
    return output.absolute().parent if is_pattern(output) else output


def output_exists(output: Path) -> bool:
    """Whether there is the output, or any picture of its sequence."""
    if not is_pattern(output):
        return os.path.exists(output)  # noqa: PTH110 - also of a name too long
    with suppress(OSError):
        names = os.listdir(output.parent)  # noqa: PTH208 - names only, no stat each
        return any(number_of(output, name) is not None for name in names)
    return False
