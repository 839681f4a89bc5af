"""From frames on a CUDA device to a face model's input batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.cuda.device import pinned_array
from bgsoft.face.warp import (
    MAX_SPACING,
    MAX_TAPS,
    MIN_GRID_SAMPLES,
    WARP_VIEW,
    FrameView,
    repeats_edges,
)
from bgsoft.frame import Array, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.sides import device
from bgsoft.segment.preprocess import fixed_matrix, normalisation

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
"""``Layout`` of ops/warp.cu."""


class DeviceWarper:
    """:class:`bgsoft.face.warp.HostWarper` on the device: up to ``batch`` views by one launch.

    The stream must have passed the last upload before the next.
    """

    def __init__(self, spec: ModelSpec, format: FrameFormat, batch: int, most: int) -> None:
        self._size, self._repeat_edges = spec.width, repeats_edges(spec)
        self.shape = (batch, 3, spec.width, spec.width)
        """Of the tensor."""
        constants = fixed_matrix(spec, format), normalisation(spec)
        self._constants = _layout(format), *map(cupy.asarray, constants)
        # Views, then the addresses of as many frames: one copy takes both.
        self._views_bytes = most * WARP_VIEW.itemsize
        size = self._views_bytes + most * _PLANES * 8
        self._host: NDArray[np.uint8] = pinned_array((size,), np.uint8)
        self._device = cupy.empty(size, np.uint8)
        self._views = self._host[: self._views_bytes].view(WARP_VIEW)
        self._planes = self._host[self._views_bytes :].view(np.uint64).reshape(-1, _PLANES)
        bits = 8 * format.bytes_per_sample
        self._warp = device().operation("warp", "warp_views", sample_bits=bits)
        self._uploaded = 0

    def upload(self, asked: Sequence[FrameView]) -> None:
        self._uploaded = len(asked)
        frames: dict[int, int] = {}
        planes: list[list[int]] = []
        rows = []
        for frame, grid, view in asked:
            index = frames.setdefault(id(frame), len(frames))
            if index == len(planes):
                seen = grid.for_networks
                arrays = (frame.luma, frame.chroma, seen.luma, seen.chroma)
                planes.append([array.data.ptr for array in arrays])
            rows.append((tuple(view), index, self._repeat_edges))
        self._views[: len(rows)] = rows
        self._planes[: len(planes)] = planes
        size = self._views_bytes + len(planes) * _PLANES * 8
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_from_host_async(self._host.ctypes.data, size, stream)

    def write(self, first: int, tensor: Array) -> tuple[Array, int]:
        count = min(self.shape[0], self._uploaded - first)
        views = self._device[first * WARP_VIEW.itemsize :]
        planes = self._device[self._views_bytes :]
        arguments = views, planes, *self._constants, tensor, self._size
        self._warp((self._size, self._size, count), *arguments)
        return views, count


def _layout(format: FrameFormat) -> Any:
    """One element of :data:`_LAYOUT`, passed by value."""
    factor = detail_factor(format.width, format.height)
    grid = analysis_shape(format.width, format.height, factor)
    limits = MIN_GRID_SAMPLES, MAX_SPACING, MAX_TAPS
    codes = format.luma_range[0], format.chroma_neutral
    shapes = *format.luma_shape, *format.chroma_shape[:2], *grid
    return np.array([(*shapes, factor, *limits, *codes)], _LAYOUT)
