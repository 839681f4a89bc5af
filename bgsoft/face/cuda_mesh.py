"""From the landmark model's raw output to faces on a CUDA device; reference: ``read_meshes``."""

from __future__ import annotations

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.cuda.pinned import pinned_array
from bgsoft.face.landmarks import LANDMARKS, LEFT_EYE, MEASURES, RIGHT_EYE, Meshes, presence
from bgsoft.frame import Array
from bgsoft.kernels.loader import kernel

__all__ = ["CudaMeshes"]

_THREADS = (128, 1, 1)
"""A block a face."""


class CudaMeshes:
    """Brings landmarks to the frame, and measures them, where they are.

    Args:
        most: Faces that are read at a time, at most.
    """

    def __init__(self, most: int) -> None:
        self._device = [
            cupy.zeros(shape, np.float32)
            for shape in ((most, 3, LANDMARKS), (most, MEASURES), (most, 1))
        ]
        self._host: list[NDArray[np.float32]] = [
            pinned_array(array.shape, np.float32) for array in self._device
        ]
        self._kernel = kernel("mesh", "read_meshes")

    def launch(self, views: Array, raw: Array, logits: Array, first: int, count: int) -> None:
        """Read a batch: one launch and one copy.

        Args:
            views: What the batch's items show: ``WARP_VIEW`` of bgsoft/face/warp.py, on the device.
            raw: (batch, 468, 3) float32 on the device, input pixels.
            logits: (batch, 1) float32.
            first: Which face the batch's first item is.
            count: Items to look at.
        """
        points, measures, presences = (array[first:] for array in self._device)
        sizes = map(np.int32, (LANDMARKS, RIGHT_EYE, LEFT_EYE))
        self._kernel((count, 1, 1), _THREADS, (views, raw, points, measures, *sizes))
        presences.data.copy_from_device_async(logits.data, count * logits.itemsize)

    def fetch(self, count: int) -> None:
        """Ask for the first faces; complete once the stream is."""
        stream = cupy.cuda.get_current_stream()
        for device, host in zip(self._device, self._host, strict=True):
            target = host[:count]
            device.data.copy_to_host_async(target.ctypes.data, target.nbytes, stream)

    def read(self, count: int) -> Meshes:
        """What :meth:`fetch` brought."""
        points, measures, logits = (host[:count] for host in self._host)
        return Meshes.measured(points.copy(), presence(logits).tolist(), measures.tolist())
