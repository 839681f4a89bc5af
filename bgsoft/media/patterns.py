"""Names of the pictures of a sequence, by a printf pattern like ``frames/%05d.png``."""

from __future__ import annotations

import re
from pathlib import Path

from bgsoft.media.containers import STILL_SUFFIXES

_FIELD = r"%(?:0\d{1,2})?d"


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for numbered pictures: one ``%d`` or ``%05d`` in its name."""
    name = path.name.replace("%%", "")
    return (
        name.count("%") == 1
        and re.search(_FIELD, name) is not None
        and path.suffix.lower() in STILL_SUFFIXES
    )


def picture_name(pattern: Path, number: int) -> str:
    """Return the name of a sequence's picture."""
    return pattern.name % number


def picture_number(pattern: Path, name: str) -> int | None:
    """Return the number of a sequence's picture; None where the name is not one of its names."""
    field = re.search(_FIELD, pattern.name.replace("%%", "\0\0"))
    if field is None:
        return None
    before, after = pattern.name[: field.start()], pattern.name[field.end() :]
    before, after = before.replace("%%", "%"), after.replace("%%", "%")
    digits = name[len(before) : len(name) - len(after)]
    if not (name.startswith(before) and name.endswith(after) and digits.isdecimal()):
        return None
    number = int(digits)
    return number if digits.isascii() and picture_name(pattern, number) == name else None
