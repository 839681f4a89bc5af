"""Names of people for ``--main``: ``3``, the id of a track, or ``50%,40%@0:10``, a place."""

from __future__ import annotations

import re
from fractions import Fraction

from bgsoft.errors import ConfigError
from bgsoft.records import NamedTuple
from bgsoft.settings.regions import LENGTH, Length
from bgsoft.settings.setting import parse_seconds

_FORM = "X,Y[@T] in pixels or percent, like 50%,40%@0:10, or the id of a track of --faces"


class MainPlace(NamedTuple):
    """A place and a time that select a main person."""

    text: str
    """The text as given."""
    x: Length
    y: Length
    seconds: Fraction
    """Time from the video's first frame."""


def parse_main(text: str) -> int | MainPlace:
    """Parse a person as ``--main`` takes it: the id of a track, or a place.

    Raises:
        ConfigError: The text names none.
    """
    if re.fullmatch(r"\d{1,9}", text.strip()):
        return int(text)
    found = re.fullmatch(f"{LENGTH},{LENGTH}(?:@(.+))?", text.replace(" ", ""))
    if found is None:
        raise ConfigError(f"--main must be {_FORM}, not {text!r}")
    x, percent_x, y, percent_y, time = found.groups("")
    seconds = Fraction(str(parse_seconds(time, f"--main {text}: a time"))) if time else Fraction(0)
    if seconds < 0:
        raise ConfigError(f"--main must have a time of 0 or more, not {text!r}")
    across, down = Length(Fraction(x), bool(percent_x)), Length(Fraction(y), bool(percent_y))
    return MainPlace(text, across, down, seconds)
