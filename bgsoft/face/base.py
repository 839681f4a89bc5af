"""A face of a frame, and shapes drawn from it: its outline, and an ellipse that hides it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.geometry import Roi
from bgsoft.frame import Frame
from bgsoft.hide.plan import Ellipse
from bgsoft.records import dataclass

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in frame pixels, half-open."""

FACE_OVAL = (
    *(10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288, 397, 365, 379, 378, 400, 377),
    *(152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109),
)
"""Landmarks along the outline of the face, in order, from the middle of the forehead: the edges
named FACEMESH_FACE_OVAL in MediaPipe's ``face_mesh_connections.py``."""

OUTLINE_POINTS = len(FACE_OVAL)
_FLAT_OVAL = 3 * np.array(FACE_OVAL) + np.array([[0], [1]])
"""Where x and y of these landmarks are among the (468, 3) numbers: one index for all of them takes
a quarter of the time of one for rows and one for columns."""

RIGHT_EYE, LEFT_EYE = 33, 263
"""Outer corners of the eyes in the same mesh; right is the face's own."""

EXPECTED_HALF, EXPECTED_RISE = (0.31, 0.36), 0.04
"""Half axes of the outline of a face, across and along it, and how far its middle lies above the
square's, in parts of the square's side: means over 1,459 faces of 6 clips, also swung, rolled and
shrunk, and of 50 portraits. Standard deviations are 0.02 of the half axes, 0.03 of the middle."""

NO_LANDMARKS = np.zeros((0, 3), np.float32)
_NOWHERE = Roi(0.0, 0.0, 0.0, 0.0)
_MARGIN_ACROSS = 1.3
"""An ellipse that hides a face is wider than the outline by this: ears and turned heads."""
_MARGIN_ALONG = 1.35
"""The same along the face: hair and chin."""


@dataclass(slots=True, eq=False, kw_only=True)
class Face:
    """One face of one frame, in upright frame pixels; on the host whatever the frame's device."""

    id: int
    """The same through a track, never used again after it; from 0."""
    score: float
    """How sure the models are, 0–1."""
    box_xyxy: Box
    """May reach over the frame's edge."""
    landmarks: NDArray[np.float32] = field(default_factory=lambda: NO_LANDMARKS)
    """(468, 3): x and y in frame pixels, z in the same scale, smaller is nearer; (0, 3) where the
    landmark model has not run on it, or is not sure of it."""
    square: Roi = _NOWHERE
    """Where the landmark model would look, of a face without landmarks."""
    detected: bool
    """True where the detector saw it in this frame, False where it was followed or interpolated."""
    age_frames: int
    """Frames since the track began, 0 in its first."""
    contested: bool = False
    """In this frame the detector, or the face's shape, contradicted what was followed here: a face
    of age 0 takes the place of one that may be somebody else."""

    @property
    def has_landmarks(self) -> bool:
        return self.landmarks.size > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFrame:
    """The faces of a frame, without its picture."""

    index: int
    pts: int
    time_seconds: float
    faces: list[Face]


class FaceTaker(Protocol):
    """Whoever wants the faces of every frame, with their landmarks."""

    def write(self, frame: Frame, faces: Sequence[Face]) -> object:
        """Take those of the next frame; raises OutputError where it cannot."""
        ...


def oval_points(face: Face) -> NDArray[np.float32]:
    """The landmarks along the outline: (2, 36) float32, all x and all y in frame pixels, a copy."""
    points: NDArray[np.float32] = face.landmarks.take(_FLAT_OVAL)
    return points


def hiding_ellipse(face: Face) -> Ellipse:
    """An ellipse that holds the whole head's front, with margin.

    It is fitted to the outline along the line between the eyes, and holds the face's box too where
    that is larger: a mesh that lies a little off must not bare half a face. Without landmarks the
    outline is where it is to be expected.
    """
    if not face.has_landmarks:
        (left_x, top, right_x, bottom), (_, _, side, angle) = face.box_xyxy, face.square
        return Ellipse(
            x=(left_x + right_x) / 2,
            y=(top + bottom) / 2,
            cos=math.cos(angle),
            sin=math.sin(angle),
            across=max(1.0, side * EXPECTED_HALF[0] * _MARGIN_ACROSS),
            along=max(1.0, side * EXPECTED_HALF[1] * _MARGIN_ALONG),
        )
    left, right = (
        face.landmarks[corner, :2].astype(np.float64) for corner in (RIGHT_EYE, LEFT_EYE)
    )
    line = right - left
    length = float(np.hypot(*line))
    cos, sin = (line / length) if length > 1e-3 else (1.0, 0.0)
    points = oval_points(face).T.astype(np.float64)
    turned = points @ np.array([[cos, -sin], [sin, cos]])
    low, high = turned.min(axis=0), turned.max(axis=0)
    u, v = (low + high) / 2
    half = (high - low) / 2
    x0, y0, x1, y1 = face.box_xyxy
    box_half = np.array([x1 - x0, y1 - y0]) / 2
    # Upright the box's sides are the ellipse's; lying on its side they are swapped.
    share = cos * cos
    box_turned = box_half * share + box_half[::-1] * (1 - share)
    half = np.maximum(half, box_turned)
    return Ellipse(
        x=float(u * cos - v * sin),
        y=float(u * sin + v * cos),
        cos=float(cos),
        sin=float(sin),
        across=max(1.0, float(half[0]) * _MARGIN_ACROSS),
        along=max(1.0, float(half[1]) * _MARGIN_ALONG),
    )


def box_overlap(a: Box, b: Box) -> float:
    """Shared part of two boxes, as a fraction of the smaller one's area; 0 where they are apart."""
    left, top, right, bottom = a
    x0, y0, x1, y1 = b
    width = (right if right < x1 else x1) - (left if left > x0 else x0)
    height = (bottom if bottom < y1 else y1) - (top if top > y0 else y0)
    if width <= 0 or height <= 0:
        return 0.0
    one, other = (right - left) * (bottom - top), (x1 - x0) * (y1 - y0)
    smaller = one if one < other else other
    return width * height / smaller if smaller > 0 else 0.0
