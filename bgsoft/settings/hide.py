"""Settings of hidden places."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bgsoft.settings.region import parse_region
from bgsoft.settings.setting import check_ranges, setting


class HideStyle(StrEnum):
    """What a hidden place becomes."""

    BLUR = "blur"
    """Smooth; around a face with a soft rim outside it."""
    PIXELATE = "pixelate"
    """A mosaic of a few cells."""
    SOLID = "solid"
    """Black."""


class HideShape(StrEnum):
    """What is hidden of a face."""

    ELLIPSE = "ellipse"
    BOX = "box"


@dataclass(frozen=True, slots=True, kw_only=True)
class HideConfig:
    """What is made unrecognisable beside the faces that are found, and how."""

    regions: tuple[str, ...] = setting(
        (),
        "Also hide this place: left, top, width and height, in pixels or percent of the frame as it"
        " is shown, and from when to when, counted like --start: 10%,20%,15%,30%@1:05-1:20. May be"
        " given again.",
        name="hide",
        metavar="X,Y,W,H[@T0-T1]",
        idle=("no picture",),
    )
    style: HideStyle = setting(
        HideStyle.BLUR,
        "What hidden faces, and places of --hide, become; solid is black.",
        name="anonymize_style",
        idle=("no picture", "nothing hidden"),
    )
    shape: HideShape = setting(
        HideShape.ELLIPSE,
        "Shape of hidden faces.",
        name="anonymize_shape",
        idle=("no picture", "nobody anonymized"),
    )
    margin_pct: float = setting(
        0.0,
        "Hide more around faces, in percent of the hidden place's size, {range}.",
        name="anonymize_margin",
        metavar="PCT",
        range=(0, 100),
        unit=" %",
        idle=("no picture", "nobody anonymized"),
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        for text in self.regions:
            parse_region(text)
