"""From BlazeFace's raw output to the faces of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Box, box_overlap
from bgsoft.face.geometry import Affine, box_iou
from bgsoft.ops.sides import HOST
from bgsoft.records import NamedTuple

KEYPOINTS = ("right eye", "left eye", "nose", "mouth", "right ear", "left ear")
"""Order of the key points; right is the face's own right, on the left of the picture."""

STRIDES = (8, 16)
"""Input pixels per cell of each grid that predicts (the catalogue's ``anchors`` table)."""
PER_CELL = (2, 6)
"""Predictions a cell of each grid."""

MAX_OVERLAP = 0.3
"""Boxes that share more than this (intersection over union) are one face; the value of
MediaPipe's own graph for this model."""

MIN_SECOND_OVERLAP = 0.2
"""Intersection over union of what two looks show of one face, at least."""

MAX_VIEW_FACES = 64
"""Faces of one view, at most; the surest are kept."""

_VALUES = 17
"""Numbers of a face in what ``detections.cu`` finds."""


class Detection(NamedTuple):
    """A face that the detector sees."""

    box: Box
    """Left, top, right, bottom."""
    keypoints: Sequence[Sequence[float]]
    """x, y of each, in the order of :data:`KEYPOINTS`."""
    score: float
    """In [0, 1]."""


def merge(found: Iterable[Detection]) -> list[Detection]:
    """Join what several views of one picture found, in common coordinates; best first.

    A face that a view shows cut off has a smaller box there, so a box that lies mostly inside a
    better one is the same face, too.
    """
    best_first = sorted(found, key=itemgetter(2), reverse=True)
    kept = best_first[:1]
    for each in best_first[1:]:
        for other in kept:
            if box_overlap(each.box, other.box) > 0.5:
                break
        else:
            kept.append(each)
    return kept


def nearest(
    found: Sequence[Detection], box: Box, min_overlap: float = MIN_SECOND_OVERLAP
) -> Detection | None:
    """The one that shares most with a box, or none shares enough."""
    best, most = None, -1.0
    for each in found:
        shared = box_iou(each.box, box)
        if shared > most:
            best, most = each, shared
    return best if most >= min_overlap else None


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


def probability(logit: float) -> float:
    """0 where that is no number."""
    return 1.0 / (1.0 + math.exp(-min(60.0, max(-60.0, logit))))


class DetectionReader:
    """From the detector's raw output to faces, on the host.

    Args:
        size: Side of the detector's input, in pixels.
        most: Views that are read at a time.
    """

    def __init__(self, size: int, most: int = 1) -> None:
        self._centres = anchor_centres(size)
        self._left = np.empty((most, len(self._centres)), np.int16)
        self._found = np.empty((most, 1 + MAX_VIEW_FACES * _VALUES))
        self._find = HOST.operation("detections", "find_faces")

    def read(
        self,
        views: Sequence[Affine],
        boxes: NDArray[np.float32],
        scores: NDArray[np.float32],
        min_score: float,
    ) -> list[list[Detection]]:
        """The faces of each view, best first, in frame pixels.

        Args:
            views: What was seen, upright.
            boxes: (views or more, N, 16), of each prediction its centre, width and height, and six
                key points, relative to the centre of its anchor.
            scores: (views or more, N, 1), logits.
            min_score: Of a prediction that counts, in (0, 1).
        """
        count, found = len(views), self._found
        self._find(
            *((1, count), np.array(views, float), boxes, scores, self._centres, self._left, found),
            *(count, len(self._centres), MAX_VIEW_FACES),
            *(math.log(min_score / (1.0 - min_score)), MAX_OVERLAP),
        )
        return [*map(_detections, found[:count])]


def _detections(found: NDArray[np.float64]) -> list[Detection]:
    rows = found[1 : 1 + int(found[0]) * _VALUES].reshape(-1, _VALUES).tolist()
    return [
        Detection((left, top, right, bottom), [*zip(xy[::2], xy[1::2], strict=True)], score)
        for left, top, right, bottom, *xy, score in rows
    ]
