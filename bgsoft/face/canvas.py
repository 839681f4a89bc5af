"""The inputs of the face detector that hold a whole frame, with a mirrored border."""

from __future__ import annotations

import math

from bgsoft.face.geometry import Affine
from bgsoft.frame import FrameFormat
from bgsoft.records import NamedTuple

_BORDER_PX = 32
"""Width of the mirrored border, input pixels."""
_MULTIPLE = 32
"""The sides of the detector's input are multiples of this: the stride of its coarsest grid."""


class Canvas(NamedTuple):
    """An input of the detector for frames of one format at one scale."""

    frame_width: int
    frame_height: int
    width: int
    height: int
    """Height of the input, pixels."""
    scale: float
    """Input pixels a frame pixel."""

    @classmethod
    def of(cls, format: FrameFormat, scale: float, *, on_side: bool = False) -> Canvas:
        """Return the canvas for frames of a format, upright or turned by a quarter."""
        sides = (format.width, format.height)[:: -1 if on_side else 1]
        width, height = (
            math.ceil((side * scale + 2 * _BORDER_PX) / _MULTIPLE) * _MULTIPLE for side in sides
        )
        return cls(format.width, format.height, width, height, scale)

    def view(self, quarters: int = 0) -> Affine:
        """Return the transform from input to frame, which is shown turned by quarters."""
        turn, centre = 1j ** (quarters % 4), (self.width / 2, self.height / 2)
        middle = self.frame_width / 2, self.frame_height / 2
        return Affine.about(1 / self.scale, turn, centre, middle)


class Canvases(NamedTuple):
    """The canvases that a finder uses; None: not used."""

    whole: Canvas
    half: Canvas | None
    """Canvas at half the scale."""
    on_side: Canvas | None
    """Turned by a quarter."""
    fine: Canvas | None
    """At a larger scale than the whole frame."""
