"""What the face detector is shown of a frame: all of it, scaled, turned, with a mirrored border."""

from __future__ import annotations

import math

from bgsoft.face.geometry import Affine
from bgsoft.frame import FrameFormat
from bgsoft.records import NamedTuple

_BORDER_PX = 32
"""Of mirrored picture around the frame, input pixels. Of faces that an edge cuts through the middle
the detector finds 35 of 45 without, 45 of 45 with 48 or 32."""
_MULTIPLE = 32
"""Of the sides of the detector's input: its coarsest grid's stride."""


class Canvas(NamedTuple):
    """An input of the detector that holds whole frames of one format at one scale."""

    frame_width: int
    frame_height: int
    width: int
    height: int
    """Of the input, pixels."""
    scale: float
    """Input pixels a frame pixel."""

    @classmethod
    def of(cls, format: FrameFormat, scale: float, *, on_side: bool = False) -> Canvas:
        """The canvas for frames of a format at a scale, upright or turned by a quarter."""
        across, down = format.width, format.height
        if on_side:
            across, down = down, across
        width, height = (
            math.ceil((side * scale + 2 * _BORDER_PX) / _MULTIPLE) * _MULTIPLE
            for side in (across, down)
        )
        return cls(format.width, format.height, width, height, scale)

    def view(self, quarters: int = 0) -> Affine:
        """From input pixels to those of the frame, which is shown turned by so many quarters."""
        step, x, y = 1 / self.scale, self.width / 2, self.height / 2
        cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters % 4]
        return Affine(
            step * cos,
            -step * sin,
            self.frame_width / 2 - step * (cos * x - sin * y),
            step * sin,
            step * cos,
            self.frame_height / 2 - step * (sin * x + cos * y),
        )


class Canvases(NamedTuple):
    """What the detector is shown of whole frames; None: that is not shown."""

    whole: Canvas
    half: Canvas | None
    """At half the scale."""
    on_side: Canvas | None
    """Turned by a quarter."""
