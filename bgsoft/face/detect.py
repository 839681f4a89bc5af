"""From BlazeFace's raw output to the faces of a picture; the same for every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Box, box_overlap
from bgsoft.face.geometry import Affine, box_iou, overlap

KEYPOINTS = ("right eye", "left eye", "nose", "mouth", "right ear", "left ear")
"""Order of the key points; right is the face's own right, on the left of the picture."""

STRIDES = (8, 16)
"""Input pixels per cell of each grid that predicts (the catalogue's ``anchors`` table)."""
PER_CELL = (2, 6)
"""Predictions a cell of each grid."""

MAX_LOGIT = 60.0
"""Beyond it the sigmoid is 0 or 1 in float32 anyway, and its exponential would overflow."""

MAX_OVERLAP = 0.3
"""Boxes that share more than this (intersection over union) are one face; the value of
MediaPipe's own graph for this model."""

MIN_SECOND_OVERLAP = 0.2
"""Intersection over union of what two looks show of one face, at least."""


class Detections(NamedTuple):
    """Faces, best first."""

    boxes: NDArray[np.float64]
    """(N, 4): left, top, right, bottom."""
    keypoints: NDArray[np.float64]
    """(N, 6, 2): x, y, in the order of :data:`KEYPOINTS`."""
    scores: NDArray[np.float64]
    """(N,) in [0, 1]."""

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def none(cls) -> Detections:
        """No face."""
        return cls(np.zeros((0, 4)), np.zeros((0, 6, 2)), np.zeros(0))

    def moved(self, transform: Affine) -> Detections:
        """The same faces elsewhere; without rotation, so that boxes stay boxes."""
        corners = transform(self.boxes.reshape(-1, 2, 2)).reshape(-1, 4)
        return Detections(corners, transform(self.keypoints), self.scores)

    def rows(self, chosen: Sequence[int]) -> Detections:
        """Some of them, by index."""
        if len(chosen) == len(self) == 1:
            return self
        rows = np.array(chosen, np.intp)
        return Detections(self.boxes[rows], self.keypoints[rows], self.scores[rows])

    def nearest(self, box: Sequence[float], min_overlap: float = MIN_SECOND_OVERLAP) -> Detections:
        """The one that shares most with a box (left, top, right, bottom), or none shares enough."""
        shared = [box_iou(own, box) for own in self.boxes.tolist()]
        best = max(shared, default=-1.0)
        return self.rows([shared.index(best)] if best >= min_overlap else [])


def anchor_centres(size: int) -> NDArray[np.float32]:
    """Centres of the cells that the model's rows belong to, for an input of this side in pixels.

    Returns:
        (N, 2) float32, x and y in input pixels: grid after grid, row by row; 896 for 128 pixels.
    """
    reduced = []
    for stride, count in zip(STRIDES, PER_CELL, strict=True):
        cells = -(-size // stride)
        along = (np.arange(cells, dtype=np.float32) + np.float32(0.5)) * np.float32(stride)
        y, x = np.meshgrid(along, along, indexing="ij")
        reduced.append(np.repeat(np.stack([x, y], axis=-1).reshape(-1, 2), count, axis=0))
    return np.concatenate(reduced)


def decode(
    boxes: NDArray[np.floating],
    logits: NDArray[np.floating],
    size: int,
    min_score: float,
    anchors: NDArray[np.float32] | None = None,
) -> Detections:
    """Every prediction that is sure enough, not yet merged, in input pixels.

    Rows that are not finite, or have no area, are left out.

    Args:
        boxes: (A, 16): centre, width and height, six key points; input pixels, positions relative
            to the anchor's centre.
        logits: (A,) or (A, 1).
        size: Side of the model's input, pixels.
        min_score: In (0, 1).
        anchors: (A, 2) from :func:`anchor_centres`; made when left out.
    """
    logits = np.asarray(logits, np.float64).reshape(-1)
    # A comparison with NaN is false, so NaN goes out here as well.
    chosen = np.flatnonzero(logits >= np.log(min_score / (1.0 - min_score)))
    rows = np.asarray(boxes[chosen], np.float64)
    keep = np.isfinite(rows).all(axis=1) & (rows[:, 2] > 0) & (rows[:, 3] > 0)
    chosen, rows = chosen[keep], rows[keep]
    order = np.argsort(-logits[chosen], kind="stable")
    chosen, rows = chosen[order], rows[order]
    if not len(chosen):
        return Detections.none()
    centres = (anchor_centres(size) if anchors is None else anchors)[chosen].astype(np.float64)
    middle, half = rows[:, :2] + centres, rows[:, 2:4] / 2
    scores = 1.0 / (1.0 + np.exp(-np.clip(logits[chosen], -MAX_LOGIT, MAX_LOGIT)))
    return Detections(
        np.hstack([middle - half, middle + half]),
        rows[:, 4:].reshape(-1, 6, 2) + centres[:, None],
        scores,
    )


def weighted_nms(found: Detections) -> Detections:
    """Merge overlapping predictions into their mean, weighted by score.

    The best prediction that is left takes all that overlap it; the face has its score and their
    mean box and key points (V. Bazarevsky et al., "BlazeFace: Sub-millisecond Neural Face
    Detection on Mobile GPUs", 2019, section 4: this is what keeps detections steady over time).

    Args:
        found: Sorted by score, best first.
    """
    left = np.arange(len(found))
    boxes, keypoints, scores = [], [], []
    while len(left):
        same = overlap(found.boxes[left], found.boxes[left[0]]) > MAX_OVERLAP
        same[0] = True
        group, left = left[same], left[~same]
        weights = found.scores[group] / found.scores[group].sum()
        boxes.append(weights @ found.boxes[group])
        keypoints.append(np.dot(weights[None], found.keypoints[group].reshape(-1, 12)))
        scores.append(found.scores[group[0]])
    if not scores:
        return Detections.none()
    return Detections(np.array(boxes), np.array(keypoints).reshape(-1, 6, 2), np.array(scores))


def merge(views: Sequence[Detections]) -> Detections:
    """Join what several views of one picture found, in common coordinates.

    A face that a view shows cut off has a smaller box there, so a box that lies mostly inside a
    better one is the same face, too.
    """
    views = [view for view in views if len(view)]
    if not views:
        return Detections.none()
    if len(views) == len(views[0]) == 1:
        return views[0]
    everything = Detections(
        np.concatenate([view.boxes for view in views]),
        np.concatenate([view.keypoints for view in views]),
        np.concatenate([view.scores for view in views]),
    )
    boxes: list[Box] = [tuple(box) for box in everything.boxes.tolist()]
    kept: list[int] = []
    for index in np.argsort(-everything.scores, kind="stable").tolist():
        if not any(box_overlap(boxes[index], boxes[other]) > 0.5 for other in kept):
            kept.append(index)
    return everything.rows(kept)
