"""Layout and constants of hidden places: their cells and their replacement.

A hidden place is replaced by the means of a few coarse cells, enlarged smoothly (blur) or unchanged
(pixelate), or by one colour (solid). Nothing of it can be recovered. Cells are aligned to the
place, not to the frame. Otherwise a face that moves across a fixed grid would give different means
in each frame, from which finer detail could be reconstructed.

In a cutout, samples are weighted by alpha in these means: clear samples are black, and would darken
people's edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

from bgsoft.frame import Array, Frame, FrameFormat
from bgsoft.records import NamedTuple
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.hide import HideShape, HideStyle

CELLS_ACROSS = 5
"""Cells across an ellipse, which is wider than the face: eyes and mouth are at most a cell each.
For a rectangle, cells across its longer side: it may contain a line of text."""
MAX_CELLS = 16
"""Largest number of cells of a patch each way; thin, tilted ellipses get larger cells."""
FEATHER = 0.15
"""Width of the rim outside, where the frame fades in, as a part of the half axes."""
_HARD = 1e-3
"""Width of a hard edge's rim: under half a sample for a face as high as a 1080p frame."""
MIN_ALPHA = 1e-3
"""Mean alpha of a cutout's cell with the same weight as the black of clear samples."""


class Ellipse(NamedTuple):
    """An ellipse in frame pixels, turned by the face's roll."""

    x: float
    """Centre; a pixel's centre is at half a pixel."""
    y: float
    angle: float
    """Radians from the picture's horizontal to the line between the eyes, clockwise."""
    across: float
    """Half axis along the line between the eyes."""
    along: float
    """Half axis across that line."""

    def moved(self, dx: float, dy: float, growth: float = 1.0) -> Ellipse:
        """Return the ellipse moved, and enlarged by a factor."""
        across, along = self.across * growth, self.along * growth
        return self._replace(x=self.x + dx, y=self.y + dy, across=across, along=along)

    def half_size(self) -> tuple[float, float]:
        """Return half the width and the height of the upright box around it."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return (
            math.hypot(self.across * cos, self.along * sin),
            math.hypot(self.across * sin, self.along * cos),
        )


_EVERYWHERE = Ellipse(x=0.0, y=0.0, angle=0.0, across=math.inf, along=math.inf)


class Rectangle(NamedTuple):
    """A rectangle in frame pixels, half-open."""

    left: int
    top: int
    right: int
    bottom: int


class Raster(NamedTuple):
    """Any shape inside a rectangle."""

    box: Rectangle
    """Box of the shape; its edges are even."""
    inside: Array
    """(h / 2, w / 2) uint8 of the box, on the frames' device or host: nonzero where hidden."""


Place: TypeAlias = Ellipse | Rectangle | Raster


def whole_samples(
    left: float | Fraction, top: float | Fraction, right: float | Fraction, bottom: float | Fraction
) -> Rectangle:
    """Return the rectangle around a box whose edges lie between chroma samples too."""
    return Rectangle(
        *(2 * math.floor(side / 2) for side in (left, top)),
        *(2 * math.ceil(side / 2) for side in (right, bottom)),
    )


class Patch(NamedTuple):
    """The cells of a hidden place, laid out on the frame; the first begins at its left and top."""

    hidden: Rectangle
    """Pixels outside are unchanged. Its edges are even, and may lie beyond the frame."""
    edge: int
    """Frame pixels per cell, each way; even."""
    ellipse: Ellipse = _EVERYWHERE
    """The hidden part."""
    inside: Array | None = None
    """The hidden part, as :attr:`Raster.inside`; None: all of the ellipse."""

    @property
    def rows(self) -> int:
        return math.ceil((self.hidden.bottom - self.hidden.top) / self.edge)

    @property
    def columns(self) -> int:
        return math.ceil((self.hidden.right - self.hidden.left) / self.edge)


class HidePlan(NamedTuple):
    """Settings of hidden places for frames of one format."""

    format: FrameFormat
    style: HideStyle = HideStyle.BLUR
    shape: HideShape = HideShape.ELLIPSE
    """Shape of hidden faces."""
    margin: float = 0.0
    """Growth of a face's place, as a part of its size."""
    by_alpha: bool = False
    """Whether samples are weighted by alpha: the frame is a cutout."""

    @classmethod
    def of(cls, config: RenderConfig, format: FrameFormat) -> HidePlan:
        """Return the plan of a render."""
        return cls(
            format=format,
            style=config.hide_style,
            shape=config.hide.shape,
            margin=config.hide.margin_pct / 100,
            by_alpha=config.effect.kind is EffectKind.ALPHA,
        )

    @property
    def clear(self) -> tuple[int, int]:
        """Luma and chroma of black, as stored: the colour of solid, and of clear samples."""
        return self.format.luma_range[0], self.format.chroma_neutral

    @property
    def feather(self) -> float:
        """Width of the soft rim around an ellipse, as a part of its half axes."""
        return FEATHER if self.style is HideStyle.BLUR else _HARD

    def patches(self, frame: Frame, places: Sequence[Place]) -> Iterator[Patch]:
        """Yield the cells of places in a frame, where its original is not shown."""
        for place in places:
            patch = self.patch(place)
            if patch is not None:
                if frame.original is not None:
                    frame.original.hidden.append(patch.hidden)
                yield patch

    def patch(self, place: Place) -> Patch | None:
        """Lay out the cells of a place; None if it is outside the frame."""
        if isinstance(place, (Rectangle, Raster)):
            box, inside = place if isinstance(place, Raster) else (place, None)
            longer = max(box.right - box.left, box.bottom - box.top)
            patch = self._box(box, longer / CELLS_ACROSS)
            return None if patch is None else patch._replace(inside=inside)
        if not math.isfinite(place.x + place.y + place.across + place.along):
            return None
        face = place.moved(0, 0, 1 + self.margin)
        wanted = 2 * min(face.across, face.along) / CELLS_ACROSS
        width, height = face.half_size()
        if self.shape is HideShape.BOX:
            box = whole_samples(face.x - width, face.y - height, face.x + width, face.y + height)
            return self._box(box, wanted)
        width, height = (1 + self.feather) * width, (1 + self.feather) * height
        edge = _edge(wanted, 2 * max(width, height))
        # Rounding loses two pixels at most, which one more cell covers.
        columns, rows = math.ceil((2 * width + 2) / edge), math.ceil((2 * height + 2) / edge)
        left = 2 * round((face.x - columns * edge / 2) / 2)
        top = 2 * round((face.y - rows * edge / 2) / 2)
        if self._is_outside(face.x - width, face.y - height, face.x + width, face.y + height):
            return None
        return Patch(Rectangle(left, top, left + columns * edge, top + rows * edge), edge, face)

    def _box(self, box: Rectangle, wanted: float) -> Patch | None:
        if self._is_outside(*box):
            return None
        return Patch(box, _edge(wanted, max(box.right - box.left, box.bottom - box.top)))

    def _is_outside(self, left: float, top: float, right: float, bottom: float) -> bool:
        is_within = right > 0 and bottom > 0
        return not (is_within and left < self.format.width and top < self.format.height)


def _edge(wanted: float, longest: float) -> int:
    """Return an even number of frame pixels per cell that gives few enough cells."""
    smallest = longest / (MAX_CELLS - 2)
    return 2 * max(1, math.ceil(max(wanted, smallest) / 2))
