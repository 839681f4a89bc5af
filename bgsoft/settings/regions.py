"""Regions that the user names: hidden, always person or never person; and how flags name one."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction

from bgsoft.errors import ConfigError
from bgsoft.records import NamedTuple, dataclass
from bgsoft.settings.setting import Span, parse_span, setting

LENGTH = r"(\d{1,9}(?:\.\d*)?|\.\d+)(%?)"
_BOX_FORM = "X,Y,W,H in pixels or percent, e.g. 10%,20%,15%,30%"
_FLAG_FORM = "X,Y,W,H[@T0-T1] in pixels or percent, e.g. 10%,20%,15%,30%@1:05-1:20"
_POINTS_FORM = "three or more pairs X,Y, e.g. 10%,20% 30%,20% 20%,40%"


class RegionAction(StrEnum):
    """Treatment of a region."""

    HIDE = "hide"
    """The region is made unrecognisable."""
    KEEP = "keep"
    """It counts as person."""
    DROP = "drop"
    """It counts as background."""


class RegionShape(StrEnum):
    """Shape of a region."""

    BOX = "box"
    """An upright rectangle."""
    ELLIPSE = "ellipse"
    """The ellipse inside an upright rectangle."""
    POLYGON = "polygon"


class Length(NamedTuple):
    """A distance in the frame."""

    amount: Fraction
    """0 or more."""
    is_percent: bool
    """True: percent of the frame's width or height; False: pixels."""

    def pixels(self, whole: int) -> Fraction:
        """Return the length in pixels of a frame that is ``whole`` pixels wide or high."""
        return self.amount * whole / 100 if self.is_percent else self.amount

    def percent_of(self, whole: int) -> Length:
        """Return the same length in percent of such a frame."""
        return self if self.is_percent else Length(100 * self.amount / whole, is_percent=True)


class Outline(NamedTuple):
    """Shape and place of a region at one time."""

    lengths: tuple[Length, ...]
    """Left, top, width and height; for a polygon, x and y of each corner."""
    seconds: Fraction = Fraction(0)
    """Time of the key frame, from the video's first frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the upright frame for a period of time.

    Raises:
        ConfigError: It has no area, or ends before it begins.
    """

    name: str
    """Name in errors and reports: the flag, or the region's place in the file."""
    action: RegionAction
    shape: RegionShape = RegionShape.BOX
    keys: tuple[Outline, ...]
    """Key frames, at least one, in order of time; all have the same number of lengths."""
    begin: Fraction = Fraction(0)
    """Seconds from the video's first frame, like ``--start``."""
    end: Fraction | None = None
    """Exclusive; None: the video's end."""
    follow: bool = False
    """The region moves with the object in it at ``begin``."""

    def __post_init__(self) -> None:
        if self.shape is not RegionShape.POLYGON:
            for key in self.keys:
                if not (key.lengths[2].amount and key.lengths[3].amount):
                    raise ConfigError("must have a width and height above 0")
        if self.end is not None and self.end <= self.begin:
            raise ConfigError("must end after it begins")

    @property
    def is_timed(self) -> bool:
        """True if it differs from frame to frame."""
        return bool(self.begin or self.end or self.follow or len(self.keys) > 1)

    def in_percent(self, size: tuple[int, int]) -> Region:
        """Return the region in percent of a frame of some (width, height), for frames of others."""

        def outline(key: Outline) -> Outline:
            wholes = size * (len(key.lengths) // 2)
            pairs = zip(key.lengths, wholes, strict=True)
            return key._replace(lengths=tuple(each.percent_of(whole) for each, whole in pairs))

        return replace(self, keys=tuple(map(outline, self.keys)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionConfig:
    """Regions other than those of ``--hide``."""

    file: str | None = setting(
        None,
        "Read regions from a TOML file: hide, keep or drop boxes, ellipses and polygons, which may"
        " move. See docs/regions.md.",
        brief="Hide, keep or drop the regions in a file.",
        name="regions",
        metavar="FILE.toml",
        is_path=True,
    )
    keep: tuple[str, ...] = setting(
        (),
        "Always treat this region as person, like a chair. Given as for --hide. Repeatable.",
        metavar="X,Y,W,H[@T0-T1]",
    )
    drop: tuple[str, ...] = setting(
        (),
        "Never treat this region as person, like a poster. Given as for --hide. Repeatable.",
        metavar="X,Y,W,H[@T0-T1]",
    )

    def __post_init__(self) -> None:
        for text in self.keep:
            parse_region(text, RegionAction.KEEP)
        for text in self.drop:
            parse_region(text, RegionAction.DROP)


def parse_region(text: str, action: RegionAction) -> Region:
    """Parse a region as ``--hide``, ``--keep`` and ``--drop`` take it.

    Raises:
        ConfigError: The text does not describe a region.
    """
    name = f"--{action} {text}"
    place, at, times = text.replace(" ", "").partition("@")
    span = parse_span(times, text, f"--{action}", _FLAG_FORM) if at else Span(text)
    try:
        lengths = parse_lengths(RegionShape.BOX, place)
    except ValueError as exc:
        raise ConfigError(f"--{action} must be {_FLAG_FORM}, not {text!r}") from exc
    try:
        return Region(
            name=name, action=action, keys=(Outline(lengths),), begin=span.begin, end=span.end
        )
    except ConfigError as exc:
        raise ConfigError(f"--{action} {exc}, not {text!r}") from exc


def parse_lengths(shape: RegionShape, text: str) -> tuple[Length, ...]:
    """Parse the lengths of an :class:`Outline`.

    Raises:
        ValueError: The text has another form; the message states the expected one.
    """
    is_polygon = shape is RegionShape.POLYGON
    pairs = text.split() if is_polygon else [text.replace(" ", "")]
    parts = [part for pair in pairs for part in pair.split(",")]
    found = [re.fullmatch(LENGTH, part) for part in parts]
    lengths = tuple(Length(Fraction(m[1]), bool(m[2])) for m in found if m is not None)
    form = _POINTS_FORM if is_polygon else _BOX_FORM
    counts = len(pairs) >= 3 and len(parts) == 2 * len(pairs) if is_polygon else len(parts) == 4
    if not counts or len(lengths) != len(parts):
        raise ValueError(f"must be {form}, not {text!r}")
    if is_polygon and any(pair.count(",") != 1 for pair in pairs):
        raise ValueError(f"must be {form}, not {text!r}")
    return lengths
