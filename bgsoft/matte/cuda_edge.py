"""The edge on a CUDA device: its fit to the picture, smoothing, dilation and feather.

References: :mod:`bgsoft.matte.edge`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cupy
import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cuda_resize import resampling
from bgsoft.frame import Array
from bgsoft.matte.cuda_mask import CudaGridState
from bgsoft.matte.plan import (
    STILL_VARIANCE,
    ContourPlan,
    DilationPlan,
    FeatherPlan,
    GuidedPlan,
    MattePlan,
    SmoothPlan,
)
from bgsoft.ops.loader import BLOCK, blocks, kernel

EVALUATED_ROWS = 16
"""Rows that a block of ``evaluate_smooth`` makes."""


class CudaEdgeFitter:
    """Guided filter and smoothing; two launches, one without the guided filter.

    Args:
        plan: What to do.
        state: Buffers and flags of the matte stage.
        out: (gh, gw) uint8, where the result goes.
    """

    def __init__(self, plan: MattePlan, state: CudaGridState, out: Array) -> None:
        rows, columns = state.shape
        self._guides = plan.guided is not None
        guided = plan.guided or GuidedPlan.of(state.shape)
        self._fit = kernel("matte_guided", "fit_guided")
        self._fit_grid = state.half_grid
        self._fit_args: tuple[Any, ...] = (
            *(state.packed, state.fits, state.flags),
            *(np.int32(guided.radius), np.float32(guided.epsilon)),
            *map(np.int32, state.half),
        )
        weights, curve = np.array([256], np.int32), np.arange(256, dtype=np.uint8)
        if plan.smooth is not None:
            weights, curve = _smoothing(plan.smooth)
        self._fitted_luma = cupy.zeros(state.shape, np.uint8)
        self._evaluate = kernel("matte_guided", "evaluate_smooth")
        self._grid = (-(-columns // BLOCK[0]), -(-rows // EVALUATED_ROWS), 1)
        self._before = (state.coarse, state.fits)
        self._after: tuple[Any, ...] = (
            *(self._fitted_luma, out, state.flags, np.int32(self._guides)),
            np.int32(guided.margin),
            *map(np.float32, (guided.steepen, guided.offset)),
            *(cupy.asarray(weights), np.int32(len(weights) // 2), cupy.asarray(curve)),
        )
        self._last = (
            np.uint64(math.floor(STILL_VARIANCE * rows * columns)),
            np.int32(rows),
            np.int32(columns),
        )
        self._compare = kernel("matte", "squared_difference")
        count = rows * columns
        self._compare_grid = (min(128, -(-count // 256)), 1, 1)
        self._compare_args = (self._fitted_luma, state.flags, np.int32(count))

    def compare(self, luma: Array) -> None:
        """Measure how far the picture is from the one last fitted; before a held frame's fit."""
        self._compare(self._compare_grid, (256, 1, 1), (luma, *self._compare_args))

    def apply(self, luma: Array, held: bool) -> None:
        """Fit and smooth the state's coarse plane into ``out``.

        Args:
            luma: (gh, gw) uint8, the picture.
            held: Leave ``out`` as it is where the picture has not moved.
        """
        if self._guides:
            self._fit(self._fit_grid, BLOCK, self._fit_args)
        args = (*self._before, luma, *self._after, np.int32(held), *self._last)
        self._evaluate(self._grid, BLOCK, args)


def _smoothing(plan: SmoothPlan) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Gaussian weights in 1/256, and the table of the ramp that restores the edge's width."""
    size = 2 * plan.radius + 1
    exact = cv2.getGaussianKernel(size, plan.sigma, cv2.CV_64F).ravel() * 256.0
    weights = np.zeros(size, np.int32)
    # 8-bit Gaussians of OpenCV have whole weights; each carries its rounding error on to the next,
    # and the middle one makes up for what is left.
    error = 0.0
    for index in range(size // 2):
        wanted = exact[index] + error
        weights[index] = weights[size - 1 - index] = round(wanted)
        error = wanted - round(wanted)
    weights[size // 2] = 256 - weights.sum()
    codes = np.arange(256, dtype=np.uint8).reshape(1, 256)
    curve = np.empty_like(codes)
    cv2.addWeighted(codes, plan.slope, codes, 0.0, plan.offset, dst=curve)
    return weights, curve.ravel()


class CudaDilation:
    """Grey dilation or erosion by a fractional number of cells; one launch.

    All steps are one window, an octagon; that gives what they give one after the other.
    """

    def __init__(self, plan: DilationPlan) -> None:
        self._shift = kernel("morphology", "shift_edge")
        rows, columns = plan.shape
        self._grid = blocks(columns, rows)
        steps = len(plan.kernels) - 1
        self._args = (
            *(cupy.asarray(plan.octagons), np.int32(steps), np.float32(plan.fraction)),
            *map(np.int32, (plan.outwards, rows, columns)),
        )

    def apply(self, plane: Array, out: Array) -> None:
        """Move the edge: (rows, columns) uint8 planes, not the same."""
        self._shift(self._grid, BLOCK, (plane, out, *self._args))


class CudaFeather:
    """A soft rim outside the person; four launches, five where the rim is wide."""

    def __init__(self, plan: FeatherPlan) -> None:
        shape, small = plan.shape, plan.dilation.shape
        self._dilation = CudaDilation(plan.dilation)
        self._planes = [cupy.empty(small, np.uint8) for _ in range(2)]
        self._resize = kernel("morphology", "resize_plane")
        self._blur = kernel("morphology", "box_blur")
        self._grid, self._small_grid = blocks(shape[1], shape[0]), blocks(small[1], small[0])
        self._blur_args = tuple(map(np.int32, (plan.radius, *small)))
        self._reduce_args: tuple[Any, ...] | None = None
        if small != shape:
            down = resampling(shape, small, area=True, fixed_point=True)
            self._reduce_args = (np.int32(shape[1]), *down.args, np.uint64(0), self._planes[1])
            self._reduce_args += tuple(map(np.int32, small))
        up = resampling(small, shape, area=False, fixed_point=True)
        self._enlarge_args = (np.int32(small[1]), *up.args)
        self._sizes = tuple(map(np.int32, shape))

    def apply(self, alpha: Array, out: Array) -> None:
        """Add the rim: (rows, columns) uint8 planes, not the same."""
        first, second = self._planes
        plane = alpha
        if self._reduce_args is not None:
            self._resize(self._small_grid, BLOCK, (alpha, *self._reduce_args))
            plane = second
        self._dilation.apply(plane, first)
        self._blur(self._small_grid, BLOCK, (first, second, *self._blur_args))
        self._blur(self._small_grid, BLOCK, (second, first, *self._blur_args))
        self._resize(self._grid, BLOCK, (first, *self._enlarge_args, alpha, out, *self._sizes))


def cuda_contour_steps(plans: Sequence[ContourPlan]) -> list[CudaDilation | CudaFeather]:
    """What moves the edge on purpose."""
    return [CudaDilation(p) if isinstance(p, DilationPlan) else CudaFeather(p) for p in plans]
