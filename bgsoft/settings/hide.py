"""Settings of hidden faces and regions."""

from __future__ import annotations

from enum import StrEnum

from bgsoft.records import dataclass
from bgsoft.settings.regions import RegionAction, parse_region
from bgsoft.settings.setting import check_ranges, setting


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
        "Enlarge the hidden place around a face, or what --detector finds, in percent of its size,"
        " {range}.",
        name="anonymize_margin",
        metavar="PCT",
        range=(0, 100),
        unit=" %",
        without_effect=("no picture", "nothing found is hidden"),
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        for text in self.regions:
            parse_region(text, RegionAction.HIDE)
