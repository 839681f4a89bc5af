"""Faces as ellipses, and as the networks would return them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from bgsoft.face.base import (
    FACE_OVAL,
    SQUARE_FALL,
    SQUARE_SCALE,
    Face,
)
from bgsoft.face.detect import Detection
from bgsoft.face.geometry import Affine, Box, Roi
from bgsoft.face.networks import Landmarks


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
        angle=roll,
        detected=True,
        age_frames=age,
    )


def seen(*places: tuple[float, float], size: float = 100, score: float = 0.9) -> list[Detection]:
    half = size / 2
    return [
        Detection((x - half, y - half, x + half, y + half), 0.0, score, is_sure=True)
        for x, y in places
    ]


def box_in(square: Roi) -> Box:
    """Box of the face that a landmark model's square is for."""
    half = square.side / SQUARE_SCALE / 2
    rise = 2 * half * SQUARE_FALL
    x = square.x + rise * math.sin(square.angle)
    y = square.y - rise * math.cos(square.angle)
    return x - half, y - half, x + half, y + half


def mesh(x: float, y: float, size: float = 100) -> np.ndarray:
    t = np.linspace(0, 2 * np.pi, 468, endpoint=False)
    return np.stack([x + size / 2 * np.cos(t), y + size / 2 * np.sin(t), 0 * t], axis=1)


def meshes(faces: Iterable[np.ndarray], sure: Sequence[bool]) -> list[Landmarks | None]:
    return [points.T if is_face else None for points, is_face in zip(faces, sure, strict=True)]


def in_frame(view: Affine, points: np.ndarray) -> np.ndarray:
    """Points of a model's input, (..., 2), in the frame."""
    matrix = np.array(view).reshape(2, 3)
    return points @ matrix[:, :2].T + matrix[:, 2]
