"""Where things lie: from what the face models see to the frame.

All coordinates are continuous pixels: a sample at column 0 covers 0 to 1 and has its centre at
0.5, so that a box (left, top, right, bottom) is half-open and scaling needs no half-pixel
corrections.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.records import NamedTuple


class Affine(NamedTuple):
    """x' = xx·x + xy·y + x0, y' = yx·x + yy·y + y0."""

    xx: float
    xy: float
    x0: float
    yx: float
    yy: float
    y0: float

    @property
    def scale(self) -> float:
        """Length of a unit vector's image; the geometric mean where axes differ."""
        return math.sqrt(abs(self.xx * self.yy - self.xy * self.yx))

    def applied(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """The images of points, (N, 3): (3, N), of which z is only scaled."""
        x, y, z = points.T.astype(np.float64)
        return np.stack(
            [
                self.xx * x + self.xy * y + self.x0,
                self.yx * x + self.yy * y + self.y0,
                self.scale * z,
            ]
        )


class Roi(NamedTuple):
    """A square that a model looks at, in frame pixels; may reach over the frame's edge."""

    x: float
    y: float
    """Centre."""
    side: float
    angle: float
    """Radians by which the face is turned clockwise on the screen; 0: upright."""


def frame_from_roi(roi: Roi, size: int) -> Affine:
    """Model input of ``size`` pixels a side to frame: scale, turn by the angle, centre."""
    scale = roi.side / size
    cosine, sine = scale * math.cos(roi.angle), scale * math.sin(roi.angle)
    half = size / 2
    return Affine(
        cosine,
        -sine,
        roi.x - (cosine - sine) * half,
        sine,
        cosine,
        roi.y - (sine + cosine) * half,
    )


def box_iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (left, top, right, bottom); 0 where both are empty."""
    left, top, right, bottom = a
    x0, y0, x1, y1 = b
    width = (right if right < x1 else x1) - (left if left > x0 else x0)
    height = (bottom if bottom < y1 else y1) - (top if top > y0 else y0)
    shared = width * height if width > 0 and height > 0 else 0.0
    one = (right - left) * (bottom - top) if right > left and bottom > top else 0.0
    other = (x1 - x0) * (y1 - y0) if x1 > x0 and y1 > y0 else 0.0
    union = one + other - shared
    return shared / union if union > 0 else 0.0
