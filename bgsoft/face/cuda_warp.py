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
        self._size = spec.width
        self.shape = (batch, 3, spec.width, spec.width)
        """Of the tensor."""
        constants = fixed_matrix(spec, format), normalisation(spec)
        layout = _layout(format, repeats_edges(spec))
        self._constants = layout, *map(cupy.asarray, constants)
        self._views: NDArray[np.void] = pinned_array((most,), WARP_VIEW)
        self._device = cupy.empty(self._views.nbytes, np.uint8)
        bits = 8 * format.bytes_per_sample
        self._warp = device().operation("warp", "warp_views", sample_bits=bits)
        self._uploaded = 0

    def upload(self, asked: Sequence[FrameView]) -> None:
        self._uploaded = len(asked)
        rows = []
        for frame, grid, view in asked:
            seen = grid.for_networks
            planes = frame.luma, frame.chroma, seen.luma, seen.chroma
            rows.append((tuple(view), [plane.data.ptr for plane in planes]))
        self._views[: len(rows)] = rows
        size = len(rows) * WARP_VIEW.itemsize
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_from_host_async(self._views.ctypes.data, size, stream)

    def write(self, first: int, tensor: Array) -> tuple[Array, int]:
        count = min(self.shape[0], self._uploaded - first)
        views = self._device[first * WARP_VIEW.itemsize :]
        size = self._size
        self._warp((size, size, count), views, *self._constants, tensor, size)
        return views, count


def _layout(format: FrameFormat, repeats_edges: bool) -> Any:
    """One element of :data:`_LAYOUT`, passed by value."""
    factor = detail_factor(format.width, format.height)
    grid = analysis_shape(format.width, format.height, factor)
    limits = MIN_GRID_SAMPLES, MAX_SPACING, MAX_TAPS
    codes = (-1, -1) if repeats_edges else (format.luma_range[0], format.chroma_neutral)
    shapes = *format.luma_shape, *format.chroma_shape[:2], *grid
    return np.array([(*shapes, factor, *limits, *codes)], _LAYOUT)
