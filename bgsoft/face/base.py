"""A face of a frame, and shapes drawn from it: its outline, and an ellipse that hides it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.geometry import Box, Roi, face_size, middle
from bgsoft.frame import Frame
from bgsoft.hide.plan import Ellipse
from bgsoft.records import dataclass
from bgsoft.settings.config import LOOKAHEAD_FRAMES as LOOKAHEAD_FRAMES

FACE_OVAL = [
    *(10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288, 397, 365, 379, 378, 400, 377),
    *(152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109),
]
"""Landmarks along the outline of the face, in order, from the middle of the forehead: the edges
named FACEMESH_FACE_OVAL in MediaPipe's ``face_mesh_connections.py``."""

LANDMARKS = 468
"""Points of a face."""

SQUARE_SCALE, SQUARE_FALL = 1.54, 0.055
"""The square that landmarks are found in, measured in the geometric mean of the box's sides: its
side, and how far its middle lies towards the chin from the box's middle."""

EXPECTED_HALF, EXPECTED_RISE = (0.31, 0.36), 0.04
"""Half axes of the outline of a face, across and along it, and the height of its middle above the
square's, in parts of the square's side."""

NO_LANDMARKS = np.zeros((0, 3), np.float32)
_NOWHERE = Roi(0.0, 0.0, 0.0, 0.0)
_MARGIN_ACROSS, _MARGIN_ALONG = 1.3, 1.35
"""An ellipse that hides a face is larger than the outline by these: ears, hair and chin."""


@dataclass(slots=True, eq=False, kw_only=True)
class Face:
    """One face of one frame, in upright frame pixels; on the host whatever the frame's device."""

    id: int
    """Id of the track, from 0; never used again after it."""
    score: float
    """How sure the models are, 0–1."""
    box_xyxy: Box
    """May reach over the frame's edge."""
    landmarks: NDArray[np.float32] = field(default_factory=lambda: NO_LANDMARKS)
    """(468, 3): x and y in frame pixels, z in the same scale, smaller is nearer; (0, 3) where the
    landmark model has not run on it, or sees no face."""
    angle: float = 0.0
    """Radians by which it is turned clockwise on the screen; 0: upright."""
    square: Roi = _NOWHERE
    """Square that the landmark model reads."""
    detected: bool
    """True where the detector saw it in this frame, False where it is expected."""
    age_frames: int
    """Frames since the track began, 0 in its first."""
    is_proven: bool = True
    """False where it was seen too seldom so far to be hidden."""
    doubtful_size: float = 0.0
    """Size that a doubtful view shows, frame pixels: the hidden place is for the larger one."""

    @property
    def has_landmarks(self) -> bool:
        return self.landmarks.size > 0


class FaceTaker(Protocol):
    """Whoever wants the faces of every frame."""

    wants_landmarks: bool
    """It takes faces with landmarks, so the detector runs on every frame."""

    def write(self, frame: Frame, faces: Sequence[Face]) -> object:
        """Take those of the next frame; raises OutputError where it cannot."""
        ...


def oval_points(face: Face) -> NDArray[np.float32]:
    """The landmarks along the outline: (2, 36) float32, all x and all y in frame pixels, a copy."""
    return face.landmarks[FACE_OVAL, :2].T


def square_of(box: Box, angle: float) -> Roi:
    """The square for a detected face."""
    (x, y), size = middle(box), face_size(box)
    fall = SQUARE_FALL * size
    return Roi(x - fall * math.sin(angle), y + fall * math.cos(angle), SQUARE_SCALE * size, angle)


def outline_square(face: Face) -> Roi:
    """The square in whose middle an expected outline is as large as the one of the landmarks."""
    points = oval_points(face)
    (left, top), (right, bottom) = points.min(axis=1).tolist(), points.max(axis=1).tolist()
    side = math.sqrt((right - left) * (bottom - top) / (4 * EXPECTED_HALF[0] * EXPECTED_HALF[1]))
    rise = side * EXPECTED_RISE
    x, y = (left + right) / 2, (top + bottom) / 2
    return Roi(x - rise * math.sin(face.angle), y + rise * math.cos(face.angle), side, face.angle)


def hiding_ellipse(face: Face) -> Ellipse:
    """An ellipse that holds the whole head's front, with margin, about the middle of the box.

    A box of another shape, as somebody may draw it, lies inside it with its corners.
    """
    (x, y), size = middle(face.box_xyxy), max(face_size(face.box_xyxy), face.doubtful_size)
    side = SQUARE_SCALE * size
    ellipse = Ellipse(
        x=x,
        y=y,
        angle=face.angle,
        across=max(1.0, side * EXPECTED_HALF[0] * _MARGIN_ACROSS),
        along=max(1.0, side * EXPECTED_HALF[1] * _MARGIN_ALONG),
    )
    half_x, half_y = ellipse.half_size()
    left, top, right, bottom = face.box_xyxy
    if right - x <= half_x and bottom - y <= half_y:
        return ellipse
    across, along = (right - left) / math.sqrt(2), (bottom - top) / math.sqrt(2)
    return Ellipse(x, y, angle=0.0, across=max(half_x, across), along=max(half_y, along))
