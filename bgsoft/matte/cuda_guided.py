"""Fit of the edge to the picture and contour smoothing on a CUDA device.

References: :mod:`bgsoft.matte.refine` and ``ContourSmoother`` in :mod:`bgsoft.matte.contour`.
"""

from __future__ import annotations

import math
from typing import Any

import cupy
import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.config import MatteConfig, Refine
from bgsoft.frame import Array
from bgsoft.kernels.loader import BLOCK, kernel
from bgsoft.matte.contour import ContourSmoother
from bgsoft.matte.cpu import _STILL_VARIANCE
from bgsoft.matte.cuda_state import GridState
from bgsoft.matte.refine import _EPSILON, _STEEPEN, GuidedRefiner

__all__ = ["CudaEdgeFitter"]

_MAX_RADIUS = 6
_MAX_SMOOTH_RADIUS = 16
"""``MAX_RADIUS`` and ``MAX_SMOOTH_RADIUS`` in ``matte_guided.cu``."""
_BLOCK_ROWS = 16
"""Rows of the grid that a block of ``evaluate_smooth`` makes."""


class CudaEdgeFitter:
    """Guided filter and smoothing; two launches, one without the guided filter.

    Args:
        config: The matte settings.
        state: Buffers and flags of the matte stage.
        out: (gh, gw) uint8, where the result goes.
    """

    def __init__(self, config: MatteConfig, state: GridState, out: Array) -> None:
        rows, columns = state.shape
        self._guided = config.refine is Refine.GUIDED
        radius = GuidedRefiner(state.shape)._radius
        if radius > _MAX_RADIUS:
            raise ValueError(f"the kernel's window holds {_MAX_RADIUS}, not {radius}")
        self._fit = kernel("matte_guided", "fit_guided")
        self._fit_grid = state.half_grid
        self._fit_args: tuple[Any, ...] = (
            *(state.packed, state.fits, state.flags, np.int32(radius), np.float32(_EPSILON)),
            *map(np.int32, state.half),
        )
        weights, curve = np.array([256], np.int32), np.arange(256, dtype=np.uint8)
        if config.smooth > 0:
            weights, curve = _smoothing(ContourSmoother(state.shape, config.smooth))
        smooth_radius = len(weights) // 2
        if smooth_radius > _MAX_SMOOTH_RADIUS:
            raise ValueError(f"the kernel smooths over {_MAX_SMOOTH_RADIUS}, not {smooth_radius}")
        self._fitted_luma = cupy.zeros(state.shape, np.uint8)
        self._evaluate = kernel("matte_guided", "evaluate_smooth")
        self._grid = (-(-columns // BLOCK[0]), -(-rows // _BLOCK_ROWS), 1)
        self._before = (state.coarse, state.fits)
        self._after: tuple[Any, ...] = (
            *(self._fitted_luma, out, state.flags, np.int32(self._guided)),
            # Beyond two radii from the last uneven cell the filter changes nothing.
            np.int32(2 * radius + 1),
            *map(np.float32, (_STEEPEN, 127.5 * (1.0 - _STEEPEN))),
            *(cupy.asarray(weights), np.int32(smooth_radius), cupy.asarray(curve)),
        )
        self._last = (
            np.uint64(math.floor(_STILL_VARIANCE * rows * columns)),
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
        if self._guided:
            self._fit(self._fit_grid, BLOCK, self._fit_args)
        args = (*self._before, luma, *self._after, np.int32(held), *self._last)
        self._evaluate(self._grid, BLOCK, args)


def _smoothing(reference: ContourSmoother) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Gaussian weights in 1/256, and the table of the ramp that restores the edge's width."""
    size = reference._window[0]
    exact = cv2.getGaussianKernel(size, reference._sigma, cv2.CV_64F).ravel() * 256.0
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
    offset = 127.5 * (1.0 - reference._slope)
    curve = np.empty_like(codes)
    cv2.addWeighted(codes, reference._slope, codes, 0.0, offset, dst=curve)
    return weights, curve.ravel()
