"""From the raw mask to opacity on the analysis grid, on a CUDA device.

Parameters are those of the host's classes, which are the references.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.analysis.cuda_resize import Resampling, aligned_resampling, resampling
from bgsoft.config import MatteConfig
from bgsoft.frame import Array, FrameFormat
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.matte.cuda_state import GridState
from bgsoft.matte.temporal import _LUMA_STEPS, _WINDOW, TemporalFilter
from bgsoft.matte.threshold import SoftThreshold

__all__ = ["CudaMaskFilter", "mask_resampling"]

_MAX_WINDOW_RADIUS = 4
"""``MAX_WINDOW_RADIUS`` in ``matte.cu``."""


def mask_resampling(mask_shape: tuple[int, int], format: FrameFormat) -> Resampling:
    """Tables that take model-sized uint8 planes to the grid; see ``MaskResampler``."""
    shape = grid_shape(format.width, format.height)
    factor = grid_factor(format.width, format.height)
    if format.height % factor == 0 and format.width % factor == 0:
        return resampling(mask_shape, shape, area=False, fixed_point=True)
    scale = (
        mask_shape[0] * factor / format.height,
        mask_shape[1] * factor / format.width,
    )
    return aligned_resampling(mask_shape, shape, scale)


class CudaMaskFilter:
    """Temporal filter, soft threshold and enlargement to the grid; two launches a mask.

    Args:
        config: The matte settings.
        format: Geometry of all frames.
        state: Buffers and flags of the matte stage.
    """

    def __init__(self, config: MatteConfig, format: FrameFormat, state: GridState) -> None:
        self._format = format
        self._state = state
        temporal = TemporalFilter(config.temporal)
        threshold = SoftThreshold(config.threshold, config.softness)
        radius = _WINDOW // 2
        if radius > _MAX_WINDOW_RADIUS:
            raise ValueError(f"the kernel's window holds {_MAX_WINDOW_RADIUS}, not {radius}")
        ramps = np.concatenate([temporal._mask_ramp, temporal._luma_ramp])
        curve = threshold._curve
        self._ramps = cupy.asarray(ramps)
        self._curve = cupy.asarray(np.arange(256, dtype=np.uint8) if curve is None else curve)
        self._scalars = (
            np.int32(radius),
            np.float32(temporal._floor),
            np.float32(_LUMA_STEPS / _WINDOW**2),
            np.float32(threshold._scale),
            np.float32(threshold._offset),
        )
        self._filter = kernel("matte", "temporal_threshold")
        self._enlarge = kernel("matte", "opacity_to_grid")
        self._shape: tuple[int, int] | None = None

    def apply(self, mask: Array, luma: Array) -> None:
        """Filter one mask into the state's coarse plane.

        Args:
            mask: (h, w) float32 in [0, 1].
            luma: (gh, gw) uint8, the picture the mask belongs to.
        """
        if self._shape != mask.shape:
            self._allocate(mask.shape)
        self._filter(self._mask_grid, BLOCK, (mask, luma, *self._filter_args))
        self._enlarge(self._state.half_grid, BLOCK, self._enlarge_args)

    def _allocate(self, shape: tuple[int, int]) -> None:
        state = self._state
        self._shape = shape
        rows, columns = state.shape
        self._mask_grid = blocks(shape[1], shape[0])
        self._states = cupy.zeros((2, *shape), np.float32)
        self._sums = cupy.zeros(shape, np.uint16)
        self._opacity = cupy.empty(shape, np.uint8)
        to_mask = resampling(state.shape, shape, area=False, fixed_point=True)
        to_grid = mask_resampling(shape, self._format)
        self._filter_args: tuple[Any, ...] = (
            np.int32(columns),
            *to_mask.args,
            self._states,
            self._sums,
            self._ramps,
            self._curve,
            self._opacity,
            state.flags,
            *self._scalars,
            *map(np.int32, shape),
        )
        self._enlarge_args: tuple[Any, ...] = (
            self._opacity,
            np.int32(shape[1]),
            *to_grid.args,
            state.coarse,
            state.small,
            state.labels,
            state.counters,
            state.flags,
            np.int32(rows),
            np.int32(columns),
        )
        state.make_fresh()
