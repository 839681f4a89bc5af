"""Views of frames into a face model's input, on a CUDA device; reference: ``CpuWarper``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import detail_factor, grid_shape
from bgsoft.cuda.pinned import pinned_array
from bgsoft.errors import ModelError
from bgsoft.face.networks import AskedView
from bgsoft.face.warp import MAX_SPACING, MAX_TAPS, MIN_GRID_SAMPLES, WARP_VIEW
from bgsoft.frame import Array, FrameFormat
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.preprocess import yuv_to_rgb_matrix

__all__ = ["CudaWarper"]

_MATRIX_ONE = 1024
"""Colour matrix entries are whole multiples of its reciprocal, as in ``cv2.transform``."""
_PLANES = 4
"""Addresses of a frame: its luma and chroma, and those of its grid."""
_LAYOUT = np.dtype(
    [
        *((name, np.int32) for name in ("rows", "columns", "chroma_rows", "chroma_columns")),
        *((name, np.int32) for name in ("grid_rows", "grid_columns", "factor")),
        *((name, np.float32) for name in ("min_grid_samples", "max_spacing")),
        *((name, np.int32) for name in ("max_taps", "black", "neutral")),
    ]
)
"""``Layout`` of kernels/warp.cu."""


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
            _layout(format),
            cupy.asarray(np.rint(matrix * _MATRIX_ONE).astype(np.int32)),
            cupy.asarray(norm),
        )
        # Views, then the addresses of as many frames: one copy takes both.
        self._most = most or batch
        self._views_bytes = self._most * WARP_VIEW.itemsize
        size = self._views_bytes + self._most * _PLANES * 8
        self._host: NDArray[np.uint8] = pinned_array((size,), np.uint8)
        self._device = cupy.empty(size, np.uint8)
        self._views = self._host[: self._views_bytes].view(WARP_VIEW)
        self._planes = self._host[self._views_bytes :].view(np.uint64).reshape(-1, _PLANES)
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
        self._uploaded = len(asked)
        if self._uploaded > self._most:
            raise ValueError(f"expected up to {self._most} views, not {self._uploaded}")
        if not asked:
            return
        frames: dict[int, int] = {}
        planes: list[list[int]] = []
        rows = []
        for frame, grid, view in asked:
            index = frames.setdefault(id(frame), len(frames))
            if index == len(planes):
                seen = grid.for_networks
                arrays = (frame.luma, frame.chroma, seen.luma, seen.chroma)
                planes.append([array.data.ptr for array in arrays])
            t = view.frame_from_input
            rows.append(((t.xx, t.xy, t.x0, t.yx, t.yy, t.y0), index, view.repeat_edges))
        self._views[: len(rows)] = rows
        self._planes[: len(planes)] = planes
        size = self._views_bytes + len(planes) * _PLANES * 8
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_from_host_async(self._host.ctypes.data, size, stream)

    def views(self, first: int) -> Array:
        """Those uploaded, from one of them on, on the device."""
        return self._device[first * WARP_VIEW.itemsize :]

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
            planes = self._device[self._views_bytes :]
            args = (self.views(first), planes, *self._constants, tensor, np.int32(self._size))
            self._kernel(blocks(self._size, self._size, count), BLOCK, args)
        return count


def _layout(format: FrameFormat) -> Any:
    """One element of :data:`_LAYOUT`; CuPy passes it by value."""
    black, neutral = format.luma_range[0], format.chroma_neutral
    factor = detail_factor(format.width, format.height)
    return np.array(
        [
            (
                *format.luma_shape,
                *format.chroma_shape[:2],
                *grid_shape(format.width, format.height, factor),
                factor,
                *(MIN_GRID_SAMPLES, MAX_SPACING, MAX_TAPS, black, neutral),
            )
        ],
        _LAYOUT,
    )
