"""From faces to the squares that the mesh model looks at, and from its output to the frame."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.detect import MAX_LOGIT
from bgsoft.face.geometry import Roi, bounding_box, frame_from_roi

__all__ = ["LANDMARKS", "presence", "roi_from_box", "roi_from_landmarks", "to_frame"]

LANDMARKS = 468
"""Points of a face."""
ROI_SCALE = 1.5
"""Side of the square over the longer side of the box: the crop that the model was trained on has a
quarter of the face's size around it (model card "MediaPipe Face Mesh", and MediaPipe's graphs)."""

_RIGHT_EYE, _LEFT_EYE = 33, 263
"""Outer corners of the eyes; right is the face's own."""


def _angle(right_eye: NDArray[np.floating], left_eye: NDArray[np.floating]) -> float:
    return math.atan2(float(left_eye[1] - right_eye[1]), float(left_eye[0] - right_eye[0]))


def roi_from_box(
    box: NDArray[np.floating], keypoints: NDArray[np.floating], scale: float = ROI_SCALE
) -> Roi:
    """The square for a detected face.

    Args:
        box: (4,) left, top, right, bottom, frame pixels.
        keypoints: (6, 2) in the order of :data:`bgsoft.face.detect.KEYPOINTS`.
        scale: Side over the box's longer side.
    """
    left, top, right, bottom = (float(value) for value in box)
    side = max(right - left, bottom - top) * scale
    return Roi((left + right) / 2, (top + bottom) / 2, side, _angle(keypoints[0], keypoints[1]))


def roi_from_landmarks(landmarks: NDArray[np.floating], scale: float = ROI_SCALE) -> Roi:
    """The square for the next frame's face, from this one's landmarks.

    Args:
        landmarks: (468, 2 or 3) in frame pixels.
        scale: Side over the longer side of the landmarks' box, which is taken along the face's
            own axes, so that a turning head keeps its size.
    """
    points = np.asarray(landmarks, np.float64)[:, :2]
    angle = _angle(points[_RIGHT_EYE], points[_LEFT_EYE])
    cosine, sine = math.cos(angle), math.sin(angle)
    left, top, right, bottom = bounding_box(points @ np.array([[cosine, -sine], [sine, cosine]]))
    x, y = (left + right) / 2, (top + bottom) / 2
    side = max(right - left, bottom - top) * scale
    return Roi(cosine * x - sine * y, sine * x + cosine * y, side, angle)


def to_frame(points: NDArray[np.floating], roi: Roi, size: int) -> NDArray[np.float64]:
    """The model's landmarks in frame pixels.

    Args:
        points: (468, 3) in input pixels.
        roi: What the model looked at.
        size: Side of the model's input, pixels.

    Returns:
        (468, 3) float64; z in frame pixels, too.
    """
    transform = frame_from_roi(roi, size)
    moved = np.empty((len(points), 3))
    moved[:, :2] = transform(points[:, :2].astype(np.float64))
    moved[:, 2] = points[:, 2] * transform.scale
    return moved


def presence(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """How probably each square holds a face, (N,) in [0, 1]; 0 where the logit is no number."""
    finite = np.nan_to_num(np.asarray(logits, np.float64).reshape(-1), nan=-MAX_LOGIT)
    return 1.0 / (1.0 + np.exp(-np.clip(finite, -MAX_LOGIT, MAX_LOGIT)))
