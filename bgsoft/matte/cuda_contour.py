"""Moving and feathering the edge on a CUDA device; reference: :mod:`bgsoft.matte.contour`."""

from __future__ import annotations

from typing import Any

import cupy
import cv2
import numpy as np

from bgsoft.analysis.cuda_resize import resampling
from bgsoft.frame import Array
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.matte.contour import EdgeShift, Feather

__all__ = ["CudaEdgeShift", "CudaFeather"]


class CudaEdgeShift:
    """Grey dilation or erosion by a fractional number of cells; one launch.

    All steps are one window, an octagon; that gives what they give one after the other.

    Args:
        reference: The host's filter.
        shape: (rows, columns) of the planes.
    """

    def __init__(self, reference: EdgeShift, shape: tuple[int, int]) -> None:
        spans = _octagons(reference)
        self._shift = kernel("morphology", "shift_edge")
        self._grid = blocks(shape[1], shape[0])
        self._args = (
            *(cupy.asarray(spans), np.int32(reference._steps), np.float32(reference._fraction)),
            *map(np.int32, (reference._outwards, *shape)),
        )

    def apply(self, plane: Array, out: Array) -> None:
        """Shift the edge: (rows, columns) uint8 planes, not the same."""
        self._shift(self._grid, BLOCK, (plane, out, *self._args))


def _octagons(reference: EdgeShift) -> Array:
    """(2, 2·steps + 3) int32: half-widths of the windows of all steps, and of one more."""
    side = 2 * reference._steps + 3
    window: Array = np.zeros((side, side), np.uint8)
    window[side // 2, side // 2] = 1
    spans = []
    for step in range(reference._steps + 1):
        if step == reference._steps:
            spans.append(window.sum(axis=1, dtype=np.int32))
        window = cv2.dilate(window, reference._kernel(step))
    spans.append(window.sum(axis=1, dtype=np.int32))
    # A row of 2·n + 1 cells has the half-width n; one of none has −1.
    return (np.stack(spans) + 1) // 2 - 1


class CudaFeather:
    """A soft rim outside the person; four launches, five where the rim is wide.

    Args:
        reference: The host's filter.
        shape: (gh, gw) of the grid.
    """

    def __init__(self, reference: Feather, shape: tuple[int, int]) -> None:
        small = reference._small_size[::-1]
        self._shift = CudaEdgeShift(reference._shift, small)
        self._planes = [cupy.empty(small, np.uint8) for _ in range(2)]
        self._resize = kernel("morphology", "resize_plane")
        self._blur = kernel("morphology", "box_blur")
        self._grid, self._small_grid = blocks(shape[1], shape[0]), blocks(small[1], small[0])
        self._blur_args = tuple(map(np.int32, (reference._window[0] // 2, *small)))
        self._reduce_args: tuple[Any, ...] | None = None
        if small != shape:
            down = resampling(shape, small, area=True, fixed_point=True)
            self._reduce_args = (np.int32(shape[1]), *down.args, np.uint64(0), self._planes[1])
            self._reduce_args += tuple(map(np.int32, small))
        up = resampling(small, shape, area=False, fixed_point=True)
        self._enlarge_args = (np.int32(small[1]), *up.args)
        self._sizes = tuple(map(np.int32, shape))

    def apply(self, alpha: Array, out: Array) -> None:
        """Add the rim: (gh, gw) uint8 planes, not the same."""
        first, second = self._planes
        plane = alpha
        if self._reduce_args is not None:
            self._resize(self._small_grid, BLOCK, (alpha, *self._reduce_args))
            plane = second
        self._shift.apply(plane, first)
        self._blur(self._small_grid, BLOCK, (first, second, *self._blur_args))
        self._blur(self._small_grid, BLOCK, (second, first, *self._blur_args))
        self._resize(self._grid, BLOCK, (first, *self._enlarge_args, alpha, out, *self._sizes))
