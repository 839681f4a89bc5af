"""Faces as ellipses, for tests of what is done with them."""

from __future__ import annotations

import math

import numpy as np

from bgsoft.face.base import FACE_OVAL, Face


def make_face(
    x: float,
    y: float,
    width: float,
    *,
    id: int = 0,
    height: float | None = None,
    roll: float = 0.0,
    age: int = 10,
    score: float = 0.9,
) -> Face:
    """A face whose outline is an ellipse, 1.3 times as high as wide unless a height is given.

    Args:
        x: Centre, pixels.
        y: Centre, pixels.
        width: Between the cheeks, pixels.
        id: Its id.
        height: From forehead to chin, pixels.
        roll: Radians, clockwise.
        age: Frames since its track began.
        score: Its score.
    """
    height = 1.3 * width if height is None else height
    cos, sin = math.cos(roll), math.sin(roll)

    def place(u: float, v: float) -> tuple[float, float, float]:
        return x + u * cos - v * sin, y + u * sin + v * cos, 0.0

    landmarks = np.tile(np.array(place(0, 0), np.float32), (468, 1))
    for step, index in enumerate(FACE_OVAL):
        angle = 2 * math.pi * step / len(FACE_OVAL)
        landmarks[index] = place(width / 2 * math.sin(angle), -height / 2 * math.cos(angle))
    landmarks[33] = place(-width / 4, -height / 8)
    landmarks[263] = place(width / 4, -height / 8)
    low, high = landmarks[:, :2].min(axis=0), landmarks[:, :2].max(axis=0)
    return Face(
        id=id,
        score=score,
        box_xyxy=(float(low[0]), float(low[1]), float(high[0]), float(high[1])),
        landmarks=landmarks,
        detected=True,
        age_frames=age,
    )
