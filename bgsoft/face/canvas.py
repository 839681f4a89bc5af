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
    def of(cls, format: FrameFormat, long_side: int) -> Canvas:
        """The canvas on which a frame's long side has at most so many pixels."""
        scale = min(1.0, long_side / max(format.width, format.height))
        width, height = (
            math.ceil((side * scale + 2 * _BORDER_PX) / _MULTIPLE) * _MULTIPLE
            for side in (format.width, format.height)
        )
        return cls(format.width, format.height, width, height, scale)

    def view(self, quarters: int = 0) -> Affine:
        """From input pixels to the frame's, turned so many quarters: of a frame on its side less
        fits in, so it is smaller."""
        frame_x, frame_y = self.frame_width / 2, self.frame_height / 2
        sides = (self.frame_width, self.frame_height)
        across, down = sides if quarters % 2 == 0 else sides[::-1]
        room = (self.width - 2 * _BORDER_PX) / across, (self.height - 2 * _BORDER_PX) / down
        step = 1 / min(self.scale, *room)
        cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters % 4]
        x, y = self.width / 2, self.height / 2
        return Affine(
            step * cos,
            -step * sin,
            frame_x - step * (cos * x - sin * y),
            step * sin,
            step * cos,
            frame_y - step * (sin * x + cos * y),
        )
