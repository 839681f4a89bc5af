"""From the detector's output to faces, on a CUDA device; reference: :mod:`bgsoft.face.detect`."""

from __future__ import annotations

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.cuda.pinned import pinned_array
from bgsoft.face.anchors import anchor_centres
from bgsoft.face.detect import KEYPOINTS, MAX_OVERLAP, Detections
from bgsoft.frame import Array
from bgsoft.kernels.loader import kernel

__all__ = ["MAX_VIEW_FACES", "CudaDetections"]

MAX_VIEW_FACES = 64
"""Faces of one view, at most; the surest are kept."""
_VALUES = 4 + 2 * len(KEYPOINTS)
_LANES = (32, 1, 1)
"""A warp a view."""


class CudaDetections:
    """Decodes and merges the predictions of some views where they are; only faces come back.

    Args:
        size: Side of the detector's input, pixels.
        most: Views that are read at a time, at most.
    """

    def __init__(self, size: int, most: int) -> None:
        centres = anchor_centres(size)
        self._anchors = len(centres)
        self._centres = cupy.asarray(centres)
        # Counts first, so that both come back in one copy of as many views as there were.
        self._device = cupy.zeros(most * (1 + MAX_VIEW_FACES * (_VALUES + 1)), np.float32)
        self._host: NDArray[np.float32] = pinned_array(self._device.shape, np.float32)
        self._most = most
        self._kernel = kernel("detections", "find_faces")

    def launch(
        self, views: Array, boxes: Array, logits: Array, first: int, count: int, min_score: float
    ) -> None:
        """Find the faces of a batch; one launch.

        Args:
            views: What the batch's items show: ``WARP_VIEW`` of bgsoft/face/warp.py, on the device.
            boxes: (batch, anchors, 16) float32 on the device.
            logits: (batch, anchors, 1) float32.
            first: Which view the batch's first item is.
            count: Items to look at.
            min_score: In (0, 1).
        """
        row = MAX_VIEW_FACES * (_VALUES + 1)
        args = (
            *(views, boxes, logits, self._centres),
            *(self._device[first:], self._device[self._most + first * row :]),
            *(np.int32(self._anchors), np.int32(MAX_VIEW_FACES)),
            np.float32(np.log(min_score / (1.0 - min_score))),
            np.float32(MAX_OVERLAP),
        )
        self._kernel((count, 1, 1), _LANES, args)

    def fetch(self, count: int) -> None:
        """Ask for the faces of the first views; complete once the stream is."""
        size = (self._most + count * MAX_VIEW_FACES * (_VALUES + 1)) * self._host.itemsize
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_to_host_async(self._host.ctypes.data, size, stream)

    def read(self, views: int) -> list[Detections]:
        """What :meth:`fetch` brought, in frame pixels, for each of the first views."""
        counts = self._host[:views].view(np.int32)
        rows = self._host[self._most :].reshape(self._most, MAX_VIEW_FACES, -1)[:views]
        found = rows[np.arange(MAX_VIEW_FACES) < counts[:, None]].astype(np.float64)
        boxes, scores = found[:, :4], found[:, _VALUES]
        points = found[:, 4:_VALUES].reshape(len(found), len(KEYPOINTS), 2)
        detections, start = [], 0
        for count in counts.tolist():
            part = slice(start, start + count)
            detections.append(Detections(boxes[part], points[part], scores[part]))
            start += count
        return detections
