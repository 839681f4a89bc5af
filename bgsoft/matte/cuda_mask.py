"""From the raw mask to clean opacity on the analysis frame, on a CUDA device.

References: :mod:`bgsoft.matte.mask`. Components are found by union-find with atomics: one launch
each to merge labels, to count cells and to decide, for the person's components and then for the
background's.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.cuda_resize import Resampling, aligned_resampling, resampling
from bgsoft.frame import Array
from bgsoft.matte.plan import IslandPlan, MattePlan, half_shape, half_widths
from bgsoft.ops.loader import BLOCK, blocks, kernel

FLAG_COUNT = 10
FLAG_BOX = slice(4, 8)
"""Left, top, right and lower end of what is not flat."""
_FRESH, _PERSON_EXCEEDS, _BACKGROUND_EXCEEDS = 0, 2, 3
"""Places in the flags, as in ``bgsoft/ops/matte.cuh``; the others are the kernels' own."""


class CudaGridState:
    """Planes on the grid and on half of it, and what the kernels decide for each other.

    The flags stay on the device, so that the host never waits and a captured CUDA graph needs no
    arguments of its own.

    Args:
        shape: (gh, gw) of the grid.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.half = half = half_shape(shape)
        self.half_grid = blocks(half[1], half[0])
        """Thread blocks that cover the half grid."""
        self.flags = cupy.zeros(FLAG_COUNT, np.int32)
        self._fresh = self.flags[_FRESH : _FRESH + 1]
        self.coarse = cupy.empty(shape, np.uint8)
        """(gh, gw): clean opacity, before the edge is fitted."""
        self.small = cupy.empty(half, np.uint8)
        """Opacity on the half grid, islands included."""
        self.labels = cupy.empty(half, np.int32)
        """Components of the person."""
        self.counters = cupy.empty((4, *half), np.int32)
        """Per component: cells and those kept before, of the person, then of the background."""
        self.limits = cupy.empty((2, *half), np.uint8)
        """What alpha must not exceed, and what opacity of the background must not."""
        self.packed = cupy.empty((*half, 4), np.uint8)
        """Alpha, luma, Cb, Cr on the half grid."""
        self.fits = cupy.empty((*half, 2), np.float32)
        """Guided filter: factor of luma, and the rest."""
        self.make_fresh()

    def make_fresh(self) -> None:
        """Make the next mask the first of its scene."""
        self._fresh.fill(1)


class CudaMaskFilter:
    """Temporal filter, soft threshold and enlargement to the grid; two launches a mask."""

    def __init__(self, plan: MattePlan, state: CudaGridState) -> None:
        self._plan = plan
        self._state = state
        temporal, threshold = plan.temporal, plan.threshold
        curve = threshold.curve
        self._ramps = cupy.asarray(np.concatenate([temporal.mask_ramp, temporal.luma_ramp]))
        self._curve = cupy.asarray(np.arange(256, dtype=np.uint8) if curve is None else curve)
        self._scalars = (
            np.int32(temporal.window // 2),
            np.float32(temporal.floor),
            np.float32(temporal.luma_scale),
            np.float32(threshold.scale),
            np.float32(threshold.offset),
        )
        self._filter = kernel("matte", "temporal_threshold")
        self._enlarge = kernel("matte", "opacity_to_grid")
        self._shape: tuple[int, int] | None = None
        self.smoothed: tuple[Any, ...] = ()
        """What the kernels need to look up the mask last smoothed: states, sizes."""

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
        sizes = (*shape, self._plan.factor, *self._plan.format.luma_shape)
        self.smoothed = (self._states, *map(np.int32, sizes))
        to_mask = resampling(state.shape, shape, area=False, fixed_point=True)
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
            *self._to_grid(shape).args,
            state.coarse,
            state.small,
            state.labels,
            state.counters,
            state.flags,
            np.int32(rows),
            np.int32(columns),
        )
        state.make_fresh()

    def _to_grid(self, shape: tuple[int, int]) -> Resampling:
        scale = self._plan.mask_scale(shape)
        if scale is None:
            return resampling(shape, self._plan.shape, area=False, fixed_point=True)
        return aligned_resampling(shape, self._plan.shape, scale)


class CudaIslandFilter:
    """Makes the limits that keep large components; six launches a mask.

    The state's opacity must be on the half grid already.
    """

    def __init__(self, plan: IslandPlan, state: CudaGridState) -> None:
        spans = cupy.asarray(half_widths(plan.skirt))
        limits = tuple(map(np.int32, (len(spans) // 2, plan.sure, plan.low, plan.high)))
        sizes = tuple(map(np.int32, state.half))
        self._grid = state.half_grid
        self._regions = cupy.zeros((2, *state.half), np.uint8)
        background_labels = cupy.empty(state.half, np.int32)
        self._merge = kernel("components", "merge_components")
        self._count = kernel("components", "count_components")
        self._decide = kernel("components", "decide_components")
        self._passes: list[tuple[tuple[Any, ...], ...]] = []
        for index, labels, following, flag in (
            (0, state.labels, background_labels, _PERSON_EXCEEDS),
            (1, background_labels, np.uint64(0), _BACKGROUND_EXCEEDS),
        ):
            areas, kept = state.counters[2 * index], state.counters[2 * index + 1]
            region = self._regions[index]
            merge = (labels, *sizes, np.int32(index == 0))
            gap = np.float32(plan.gap if index == 1 else 0.0)
            count = (labels, region, areas, kept, *sizes, state.flags, gap)
            decide = (
                *(labels, areas, kept, region, spans),
                *limits,
                *(state.small, np.int32(index), state.limits[index], state.flags),
                *(np.int32(flag), following),
                *sizes,
            )
            self._passes.append((merge, count, decide))

    def apply(self, smoothed: tuple[Any, ...]) -> None:
        """Write the limits and whether they are exceeded into the state.

        Args:
            smoothed: :attr:`CudaMaskFilter.smoothed`.
        """
        for merge, count, decide in self._passes:
            self._merge(self._grid, BLOCK, merge)
            self._count(self._grid, BLOCK, (*count, *smoothed))
            self._decide(self._grid, BLOCK, decide)
