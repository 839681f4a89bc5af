"""Views of frames into a face model's input, on a CUDA device; reference: ``CpuWarper``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.cuda.pinned import pinned_array
from bgsoft.errors import ModelError
from bgsoft.face.networks import AskedView
from bgsoft.face.warp import WARP_VIEW, pack_views
from bgsoft.frame import Array, FrameFormat
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.preprocess import yuv_to_rgb_matrix

__all__ = ["CudaWarper"]

_MATRIX_ONE = 1024
"""Colour matrix entries are whole multiples of its reciprocal, as in ``cv2.transform``."""


class CudaWarper:
    """Writes views of frames of one format into a batch tensor.

    Args:
        spec: Square input size, channel order and normalisation; NCHW.
        format: Format of the frames.
        batch: Items of the tensor.
        most: Views of one :meth:`upload`, at most; ``batch`` where left out.

    Raises:
        ModelError: The model takes its channels last.
    """

    def __init__(
        self, spec: ModelSpec, format: FrameFormat, batch: int, most: int | None = None
    ) -> None:
        if spec.layout != "NCHW":
            raise ModelError(f"model {spec.name} must take NCHW on the GPU, not {spec.layout}")
        self._format = format
        self._size = spec.width
        self.shape = (batch, 3, spec.width, spec.width)
        """Of the tensor."""
        matrix = yuv_to_rgb_matrix(format)
        if spec.color_order == "bgr":
            matrix = matrix[::-1]
        matrix = matrix.copy()
        matrix[:, 3] += 0.5  # makes flooring a rounding
        mean, std = np.array(spec.mean), np.array(spec.std)
        norm = np.concatenate([1.0 / (255.0 * std), -mean / std]).astype(np.float32)
        self._constants = (
            cupy.asarray(np.rint(matrix * _MATRIX_ONE).astype(np.int32)),
            cupy.asarray(norm),
        )
        self._items: NDArray[Any] = pinned_array((most or batch,), WARP_VIEW)
        self._device_items = cupy.empty((len(self._items), WARP_VIEW.itemsize), np.uint8)
        self._kernel = kernel("warp", "warp_views", sample_bits=8 * format.bytes_per_sample)
        self._uploaded = 0

    def upload(self, asked: Sequence[AskedView]) -> None:
        """Tell the device what is to be looked at.

        The stream must have passed the last call's upload.

        Args:
            asked: Frames on the device, their grids and what to look at.

        Raises:
            ValueError: There are too many views.
        """
        count = len(asked)
        if count > len(self._items):
            raise ValueError(f"expected up to {len(self._items)} views, not {count}")
        self._uploaded = count
        if not count:
            return
        pack_views(asked, self._format, self._items[:count])
        stream = cupy.cuda.get_current_stream()
        size = count * WARP_VIEW.itemsize
        self._device_items.data.copy_from_host_async(self._items.ctypes.data, size, stream)

    def write(self, first: int, tensor: Array) -> int:
        """Sample, convert and normalise the next views of those uploaded: one launch.

        Args:
            first: Index of the first of them.
            tensor: Of :attr:`shape`, float32, C-contiguous; its first items are overwritten.

        Returns:
            How many were written: the tensor's items, or those that are left.

        Raises:
            ValueError: The tensor is another.
        """
        if tensor.shape != self.shape or tensor.dtype != "float32":
            raise ValueError(f"expected {self.shape} float32, not {tensor.shape} {tensor.dtype}")
        count = min(self.shape[0], self._uploaded - first)
        if count > 0:
            args = (self._device_items[first:], *self._constants, tensor, np.int32(self._size))
            self._kernel(blocks(self._size, self._size, count), BLOCK, args)
        return count
