"""Boxes, squares and affine transforms.

All coordinates are continuous pixels: a sample at column 0 covers 0 to 1 and has its centre at
0.5. A box (left, top, right, bottom) is half-open, and scaling needs no half-pixel corrections.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.records import NamedTuple

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in frame pixels, half-open."""


class Affine(NamedTuple):
    """The map x' = xx·x + xy·y + x0, y' = yx·x + yy·y + y0."""

    xx: float
    xy: float
    x0: float
    yx: float
    yy: float
    y0: float

    @classmethod
    def about(
        cls, scale: float, turn: complex, centre: tuple[float, float], to: tuple[float, float]
    ) -> Affine:
        """Scale, turn (a complex number of length 1), and move a centre to a point."""
        cos, sin = scale * turn.real, scale * turn.imag
        x, y = centre
        return cls(cos, -sin, to[0] - cos * x + sin * y, sin, cos, to[1] - sin * x - cos * y)

    @property
    def scale(self) -> float:
        """Length of a unit vector's image; the geometric mean where axes differ."""
        return math.sqrt(abs(self.xx * self.yy - self.xy * self.yx))

    def applied(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """Return the images of points, (N, 3), as (3, N); z is only scaled."""
        x, y, z = points.T.astype(np.float64)
        return np.stack(
            [
                self.xx * x + self.xy * y + self.x0,
                self.yx * x + self.yy * y + self.y0,
                self.scale * z,
            ]
        )


class Roi(NamedTuple):
    """A square that a model is shown, in frame pixels; may reach over the frame's edge."""

    x: float
    y: float
    """Centre."""
    side: float
    angle: float
    """Radians by which the face is turned clockwise on the screen; 0: upright."""


def frame_from_roi(roi: Roi, size: int) -> Affine:
    """Return the transform from a model's input of ``size`` pixels a side to the frame."""
    turn = complex(math.cos(roi.angle), math.sin(roi.angle))
    return Affine.about(roi.side / size, turn, (size / 2, size / 2), (roi.x, roi.y))


def middle(box: Box) -> tuple[float, float]:
    """Return a box's centre."""
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def face_size(box: Box) -> float:
    """Return the geometric mean of a box's sides."""
    return math.sqrt(box_area(box))


def box_area(box: Box) -> float:
    """Return the area of a box; 0 where its sides are in the wrong order."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def shared_area(a: Box, b: Box) -> float:
    """Return the area of the intersection of two boxes."""
    return box_area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def box_iou(a: Box, b: Box) -> float:
    """Return intersection over union of two boxes; 0 where both are empty."""
    shared = shared_area(a, b)
    union = box_area(a) + box_area(b) - shared
    return shared / union if union > 0 else 0.0


def box_overlap(a: Box, b: Box) -> float:
    """Return the shared part of two boxes, as a fraction of the smaller one's area."""
    smaller = min(box_area(a), box_area(b))
    return shared_area(a, b) / smaller if smaller > 0 else 0.0
