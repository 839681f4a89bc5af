"""A place that the user names, e.g. ``10%,20%,15%,30%@1:05-1:20``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from bgsoft.errors import ConfigError
from bgsoft.settings.setting import parse_seconds

_LENGTH = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(%?)")
_FORM = "X,Y,W,H[@T0-T1] in pixels or percent, e.g. 10%,20%,15%,30%@1:05-1:20"


@dataclass(frozen=True, slots=True)
class Length:
    """A distance in the frame."""

    amount: Fraction
    """0 or more."""
    is_percent: bool
    """Of the frame's width or height, else pixels."""

    def pixels(self, whole: int) -> Fraction:
        """In pixels, of a frame so wide or high."""
        return self.amount * whole / 100 if self.is_percent else self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A rectangle of the upright frame, for some time."""

    text: str
    """As it was given."""
    x: Length
    """Of the left edge, from the frame's."""
    y: Length
    """Of the top edge."""
    width: Length
    height: Length
    begin: Fraction
    """Seconds from the video's first frame, as ``--start`` counts."""
    end: Fraction | None
    """Hidden no more from then on; None: to the video's end."""


def parse_region(text: str) -> Region:
    """Read a region as ``--hide`` takes it.

    Raises:
        ConfigError: It is none.
    """
    place, at, times = text.replace(" ", "").partition("@")
    lengths = [_LENGTH.fullmatch(part) for part in place.split(",")]
    found = [Length(Fraction(m[1]), bool(m[2])) for m in lengths if m is not None]
    begin, dash, end = times.partition("-")
    if len(lengths) != 4 or len(found) != 4 or (at and not (dash and (begin or end))):
        raise ConfigError(f"--hide must be {_FORM}, not {text!r}")
    x, y, width, height = found
    if not (width.amount and height.amount):
        raise ConfigError(f"--hide: width and height must be more than 0, in {text!r}")
    first, last = (_seconds(time, text) if time else None for time in (begin, end))
    if last is not None and last <= (first or 0):
        raise ConfigError(f"--hide ends before it begins, in {text!r}")
    return Region(
        text=text, x=x, y=y, width=width, height=height, begin=first or Fraction(0), end=last
    )


def _seconds(time: str, text: str) -> Fraction:
    # The decimal number that was typed, as --start takes it.
    seconds = parse_seconds(time, f"--hide {text}: a time")
    return Fraction(str(seconds))
