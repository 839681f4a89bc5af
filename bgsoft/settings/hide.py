"""Settings of hidden places, and the syntax of ``--hide``: ``10%,20%,15%,30%@1:05-1:20``."""

from __future__ import annotations

import re
from enum import StrEnum
from fractions import Fraction

from bgsoft.errors import ConfigError
from bgsoft.records import dataclass
from bgsoft.settings.setting import check_ranges, parse_seconds, setting

_LENGTH = r"(\d+(?:\.\d*)?|\.\d+)(%?)"
_FORM = "X,Y,W,H[@T0-T1] in pixels or percent, e.g. 10%,20%,15%,30%@1:05-1:20"


class HideStyle(StrEnum):
    """Appearance of a hidden place."""

    BLUR = "blur"
    """Smooth, with a soft rim outside a face."""
    PIXELATE = "pixelate"
    """A mosaic of a few cells."""
    SOLID = "solid"
    """Black."""


class HideShape(StrEnum):
    """Shape of a hidden face."""

    ELLIPSE = "ellipse"
    BOX = "box"


@dataclass(frozen=True, slots=True, kw_only=True)
class HideConfig:
    """Hidden places in addition to detected faces, and the style of all hidden places."""

    regions: tuple[str, ...] = setting(
        (),
        "Also hide this place: left, top, width and height, in pixels or percent of the upright"
        " frame; optionally a time span: 10%,20%,15%,30%@1:05-1:20. Repeatable.",
        brief="Also hide this place, in pixels or percent.",
        name="hide",
        metavar="X,Y,W,H[@T0-T1]",
        without_effect=("no picture",),
    )
    style: HideStyle | None = setting(
        None,
        "Style of hidden faces and places; solid is black.",
        name="anonymize_style",
        shown_default="blur, --subjects 0: solid",
        without_effect=("no picture", "nothing hidden"),
    )
    shape: HideShape = setting(
        HideShape.ELLIPSE,
        "Shape of hidden faces.",
        name="anonymize_shape",
        without_effect=("no picture", "nobody anonymized"),
    )
    margin_pct: float = setting(
        0.0,
        "Enlarge the hidden place around a face, in percent of its size, {range}.",
        name="anonymize_margin",
        metavar="PCT",
        range=(0, 100),
        unit=" %",
        without_effect=("no picture", "nobody anonymized"),
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        for text in self.regions:
            parse_region(text)


@dataclass(frozen=True, slots=True)
class Length:
    """A distance in the frame, in pixels or in percent of the frame's width or height."""

    amount: Fraction
    """0 or more."""
    is_percent: bool
    """True: percent of the frame's width or height; False: pixels."""

    def pixels(self, whole: int) -> Fraction:
        """Return the distance in pixels, for a frame ``whole`` pixels wide or high."""
        return self.amount * whole / 100 if self.is_percent else self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A rectangle of the upright frame during a time range."""

    text: str
    """The text that was parsed."""
    x: Length
    y: Length
    width: Length
    height: Length
    begin: Fraction
    """Seconds from the video's first frame, counted like ``--start``."""
    end: Fraction | None
    """Exclusive; None: the video's end."""


def parse_region(text: str) -> Region:
    """Parse a region of ``--hide``; raises ConfigError where it is malformed."""
    place, at, times = text.replace(" ", "").partition("@")
    lengths = [re.fullmatch(_LENGTH, part) for part in place.split(",")]
    found = [Length(Fraction(m[1]), bool(m[2])) for m in lengths if m is not None]
    begin, dash, end = times.partition("-")
    if len(lengths) != 4 or len(found) != 4 or (at and not (dash and (begin or end))):
        raise ConfigError(f"--hide must be {_FORM}, not {text!r}")
    x, y, width, height = found
    if not (width.amount and height.amount):
        raise ConfigError(f"--hide must have a width and height above 0, not {text!r}")
    # The decimal number as typed, as --start reads it.
    first, last = (
        Fraction(str(parse_seconds(time, f"--hide {text}: a time"))) if time else None
        for time in (begin, end)
    )
    if last is not None and last <= (first or 0):
        raise ConfigError(f"--hide must end after it begins, not {text!r}")
    return Region(
        text=text, x=x, y=y, width=width, height=height, begin=first or Fraction(0), end=last
    )
