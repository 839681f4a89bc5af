"""Draws faces into a picture: boxes, ids and landmarks, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face, oval_points

_COLORS = ((80, 220, 80), (255, 160, 60), (80, 160, 255), (220, 90, 220), (60, 220, 240))
"""Blue, green, red; by id in turn."""


def draw_faces(picture: NDArray[np.uint8], faces: Sequence[Face]) -> None:
    """Draw each face's box, id and score, and where there are landmarks, them and the outline.

    Args:
        picture: (H, W, 3) uint8, blue first; drawn into.
        faces: In the picture's pixels.
    """
    height, width, _ = picture.shape
    thick = max(1, round(height / 540))
    for face in faces:
        color = _COLORS[face.id % len(_COLORS)]
        if face.has_landmarks and np.isfinite(face.landmarks).all():
            x, y = np.floor(face.landmarks[:, :2].T).astype(int)
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            picture[y[inside], x[inside]] = color
            outline = np.rint(oval_points(face).T).astype(np.int32)
            cv2.polylines(picture, [outline], True, color, thick, cv2.LINE_AA)
        left, top, right, bottom = (round(value) for value in face.box_xyxy)
        cv2.rectangle(picture, (left, top), (right, bottom), color, thick)
        label = f"{face.id}: {face.score:.2f}{'' if face.detected else ' followed'}"
        # Inside the box where the frame ends above it.
        at = (max(0, left), top - 4 * thick if top > 16 * thick else bottom + 14 * thick)
        cv2.putText(
            picture, label, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5 * thick, color, thick, cv2.LINE_AA
        )
