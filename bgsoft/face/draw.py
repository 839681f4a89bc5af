"""Draws faces into a picture: boxes, ids and meshes, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face, oval_points

_MESH_OPACITY = 0.3
"""Of the mesh's lines, which lie so close on a small face that they would cover it."""
_COLORS = ((80, 220, 80), (255, 160, 60), (80, 160, 255), (220, 90, 220), (60, 220, 240))
"""Blue, green, red; by id in turn."""


def draw_faces(picture: NDArray[np.uint8], faces: Sequence[Face]) -> None:
    """Draw each face's box, id and score, and where there are landmarks, outline and mesh.

    The mesh is the Delaunay triangulation of the landmarks, so it is drawn as seen: of a face that
    is turned away, what lies behind shows through.

    Args:
        picture: (H, W, 3) uint8, blue first; drawn into.
        faces: In the picture's pixels.
    """
    thick = max(1, round(picture.shape[0] / 540))
    for face in faces:
        color = _COLORS[face.id % len(_COLORS)]
        if face.has_landmarks:
            _draw_mesh(picture, face, color)
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


def _draw_mesh(picture: NDArray[np.uint8], face: Face, color: tuple[int, int, int]) -> None:
    points = face.landmarks[:, :2].astype(np.float32)
    if not np.isfinite(points).all():
        return
    low = np.floor(points.min(axis=0)).astype(int) - 1
    high = np.ceil(points.max(axis=0)).astype(int) + 2
    division = cv2.Subdiv2D((int(low[0]), int(low[1]), *(int(v) for v in high - low)))
    division.insert([(float(x), float(y)) for x, y in points])
    corners = np.asarray(division.getTriangleList()).reshape(-1, 3, 2)
    # Triangles with a corner outside are Subdiv2D's scaffolding.
    inside = ((corners >= low) & (corners <= high)).all(axis=(1, 2))
    triangles = np.rint(corners[inside]).astype(np.int32)
    left, top = (max(0, int(value)) for value in low)
    part = picture[top : max(0, int(high[1])), left : max(0, int(high[0]))]
    if part.size:
        drawn = part.copy()
        cv2.polylines(drawn, list(triangles - (left, top)), True, color, 1, cv2.LINE_AA)
        cv2.addWeighted(drawn, _MESH_OPACITY, part, 1 - _MESH_OPACITY, 0, dst=drawn)
        part[:] = drawn
