"""Removal of islands and holes on a CUDA device; reference: :mod:`bgsoft.matte.islands`.

Components are found by union-find with atomics: one launch each to merge labels, to count cells
and to decide, for the person's components and then for the background's.
"""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from bgsoft.frame import Array
from bgsoft.kernels.loader import BLOCK, kernel
from bgsoft.matte.cuda_state import GridState, MatteFlag
from bgsoft.matte.islands import _HYSTERESIS, IslandFilter

__all__ = ["CudaIslandFilter"]

_MAX_RADIUS = 14
"""One less than ``MAX_HALO`` in ``components.cu``."""
_MAX_CELLS = 2**31 - 1


class CudaIslandFilter:
    """Makes the limits that keep large components; six launches a mask.

    Args:
        state: Buffers and flags of the matte stage; its opacity is on the half grid already.
        min_area: Smallest region that is kept, as a fraction of the frame.
    """

    def __init__(self, state: GridState, min_area: float) -> None:
        reference = IslandFilter(state.shape, min_area)
        spans = _half_widths(reference._kernel)
        radius = len(spans) // 2
        if radius > _MAX_RADIUS:
            raise ValueError(f"the kernel's skirt holds {_MAX_RADIUS} cells, not {radius}")
        minimum = reference._min_cells
        # Whole numbers of cells: areas of sure and more stay, those in [low, high) if they did.
        sure = _at_least(minimum, 1.0)
        low = _at_least(minimum, _HYSTERESIS)
        high = min(_MAX_CELLS, math.ceil(minimum * _HYSTERESIS))
        spans_device = cupy.asarray(np.array(spans, np.int32))
        limits = tuple(map(np.int32, (radius, sure, low, high)))
        sizes = tuple(map(np.int32, state.half))
        self._grid = state.half_grid
        self._regions = cupy.zeros((2, *state.half), np.uint8)
        background_labels = cupy.empty(state.half, np.int32)
        self._merge = kernel("components", "merge_components")
        self._count = kernel("components", "count_components")
        self._decide = kernel("components", "decide_components")
        self._passes: list[tuple[tuple[Any, ...], ...]] = []
        for index, labels, following, flag in (
            (0, state.labels, background_labels, MatteFlag.PERSON_EXCEEDS),
            (1, background_labels, np.uint64(0), MatteFlag.BACKGROUND_EXCEEDS),
        ):
            areas, kept = state.counters[2 * index], state.counters[2 * index + 1]
            region = self._regions[index]
            merge = (labels, *sizes, np.int32(index == 0))
            count = (labels, region, areas, kept, *sizes)
            decide = (
                *(labels, areas, kept, region, spans_device),
                *limits,
                *(state.small, np.int32(index), state.limits[index], state.flags),
                *(np.int32(flag), following),
                *sizes,
            )
            self._passes.append((merge, count, decide))

    def apply(self) -> None:
        """Write the limits and whether they are exceeded into the state."""
        for merge, count, decide in self._passes:
            self._merge(self._grid, BLOCK, merge)
            self._count(self._grid, BLOCK, count)
            self._decide(self._grid, BLOCK, decide)


def _at_least(minimum: float, factor: float) -> int:
    """Smallest whole ``area`` with ``area * factor >= minimum``."""
    area = max(0, math.floor(minimum / factor) - 1)
    while area * factor < minimum:
        area += 1
    return area


def _half_widths(kernel_mask: Array) -> list[int]:
    """Half-width of each row of a symmetric, odd-sized structuring element; −1 where empty."""
    return [int(np.count_nonzero(row)) // 2 if row.any() else -1 for row in kernel_mask]
