"""From faces to the squares that the mesh model looks at, and from its output to the frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.detect import MAX_LOGIT
from bgsoft.face.geometry import Roi, frame_from_roi

__all__ = [
    "LANDMARKS",
    "Meshes",
    "presence",
    "read_meshes",
    "roi_from_box",
    "rois_from_landmarks",
]

LANDMARKS = 468
"""Points of a face."""
ROI_SCALE = 1.5
"""Side of the square over the longer side of the box: the crop that the model was trained on has a
quarter of the face's size around it (model card "MediaPipe Face Mesh", and MediaPipe's graphs)."""

_RIGHT_EYE, _LEFT_EYE = 33, 263
"""Outer corners of the eyes; right is the face's own."""


def roi_from_box(
    box: NDArray[np.floating], keypoints: NDArray[np.floating], scale: float = ROI_SCALE
) -> Roi:
    """The square for a detected face.

    Args:
        box: (4,) left, top, right, bottom, frame pixels.
        keypoints: (6, 2) in the order of :data:`bgsoft.face.detect.KEYPOINTS`.
        scale: Side over the box's longer side.
    """
    left, top, right, bottom = box.tolist()
    side = max(right - left, bottom - top) * scale
    (right_x, right_y), (left_x, left_y) = keypoints[:2].tolist()
    angle = math.atan2(left_y - right_y, left_x - right_x)
    return Roi((left + right) / 2, (top + bottom) / 2, side, angle)


@dataclass(frozen=True, slots=True, eq=False)
class Meshes:
    """What the landmark model says of some squares, in the same order."""

    points: NDArray[np.float64]
    """(n, 468, 3) in frame pixels; z in the same scale."""
    presence: list[float]
    """How probably each square holds a face, 0–1."""
    boxes: list[tuple[float, float, float, float]]
    """Left, top, right, bottom of each face's points; not finite where a point is not."""
    rois: list[Roi]
    """The square for each face in the next frame."""

    @classmethod
    def of(cls, points: NDArray[np.floating], presence: Iterable[float]) -> Meshes:
        """From points in the frame.

        Args:
            points: (n, 468, 2 or 3), frame pixels.
            presence: n probabilities.
        """
        exact: NDArray[np.float64] = np.asarray(points, np.float64)
        if not len(exact):
            return cls(np.zeros((0, LANDMARKS, 3)), [], [], [])
        with np.errstate(invalid="ignore", over="ignore"):
            boxes = _boxes(exact[:, :, 0], exact[:, :, 1])
            rois = rois_from_landmarks(exact)
        return cls(exact, list(presence), [(a, b, c, d) for a, b, c, d in boxes.tolist()], rois)

    def part(self, start: int, stop: int) -> Meshes:
        """Some of them, as a view."""
        here = slice(start, stop)
        return Meshes(self.points[here], self.presence[here], self.boxes[here], self.rois[here])


def read_meshes(
    raw: NDArray[np.floating], logits: NDArray[np.floating], rois: Sequence[Roi], size: int
) -> Meshes:
    """The model's answers in frame pixels.

    Args:
        raw: (n, 468, 3) in input pixels.
        logits: (n,) or (n, 1).
        rois: What the model looked at, n of them.
        size: Side of the model's input, pixels.
    """
    if not len(rois):
        return Meshes.of(np.zeros((0, LANDMARKS, 3)), [])
    transforms = [frame_from_roi(roi, size) for roi in rois]
    rows = np.array([(t.xx, t.xy, t.yx, t.yy, t.x0, t.y0, t.scale) for t in transforms])
    points = np.empty(raw.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        turned = np.matmul(raw[:, :, :2], rows[:, :4].reshape(-1, 2, 2).transpose(0, 2, 1))
        np.add(turned, rows[:, None, 4:6], out=points[:, :, :2])
        np.multiply(raw[:, :, 2], rows[:, 6:], out=points[:, :, 2])
    return Meshes.of(points, presence(logits).tolist())


def rois_from_landmarks(points: NDArray[np.floating], scale: float = ROI_SCALE) -> list[Roi]:
    """The squares for the next frame's faces, from this one's landmarks.

    Args:
        points: (n, 468, 2 or 3) in frame pixels.
        scale: Side over the longer side of the landmarks' box, which is taken along the face's
            own axes, so that a turning head keeps its size.
    """
    across = points[:, _LEFT_EYE, :2] - points[:, _RIGHT_EYE, :2]
    angles = np.arctan2(across[:, 1], across[:, 0])
    cosines, sines = np.cos(angles), np.sin(angles)
    x, y, cosine, sine = points[:, :, 0], points[:, :, 1], cosines[:, None], sines[:, None]
    boxes = _boxes(x * cosine + y * sine, y * cosine - x * sine)
    rois = []
    for box, c, s, angle in zip(
        boxes.tolist(), cosines.tolist(), sines.tolist(), angles.tolist(), strict=True
    ):
        left, top, right, bottom = box
        u, v = (left + right) / 2, (top + bottom) / 2
        side = max(right - left, bottom - top) * scale
        rois.append(Roi(c * u - s * v, s * u + c * v, side, angle))
    return rois


def _boxes(x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.float64]:
    """(n, 4) bounds of (n, points) coordinates."""
    bounds = (x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1))
    return np.stack(bounds, axis=1).astype(np.float64, copy=False)


def presence(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """How probably each square holds a face, (N,) in [0, 1]; 0 where the logit is no number."""
    finite = np.nan_to_num(np.asarray(logits, np.float64).reshape(-1), nan=-MAX_LOGIT)
    return 1.0 / (1.0 + np.exp(-np.clip(finite, -MAX_LOGIT, MAX_LOGIT)))
