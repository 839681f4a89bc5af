"""Device buffers that the steps of the soft matte hand to each other."""

from __future__ import annotations

from enum import IntEnum

import cupy
import numpy as np

from bgsoft.kernels.loader import blocks

__all__ = ["GridState", "MatteFlag"]


class MatteFlag(IntEnum):
    """Places in the flags, as in ``bgsoft/kernels/matte.cuh``."""

    FRESH = 0
    PARITY = 1
    PERSON_EXCEEDS = 2
    BACKGROUND_EXCEEDS = 3
    LEFT = 4
    TOP = 5
    RIGHT = 6
    BOTTOM = 7
    SQUARES = 8


_FLAG_COUNT = 10


class GridState:
    """Planes on the grid and on half of it, and what the kernels decide for each other.

    The flags stay on the device, so that the host never waits and a captured CUDA graph needs no
    arguments of its own.

    Args:
        shape: (gh, gw) of the grid.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        rows, columns = shape
        half = (-(-rows // 2), -(-columns // 2))
        self.half = half
        """(⌈gh/2⌉, ⌈gw/2⌉)."""
        self.half_grid = blocks(half[1], half[0])
        """Thread blocks that cover the half grid."""
        self.flags = cupy.zeros(_FLAG_COUNT, np.int32)
        self._fresh = self.flags[MatteFlag.FRESH : MatteFlag.FRESH + 1]
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
