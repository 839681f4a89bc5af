"""The edge fitted on the frame itself, on a CUDA device.

References: :class:`bgsoft.matte.edge.GuidedFilter`, :class:`bgsoft.matte.steady.Steadier` and what
:mod:`bgsoft.matte.cpu` does after them.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.frame import Array, Frame
from bgsoft.matte.cuda_edge import EVALUATED_ROWS, cuda_contour_steps
from bgsoft.matte.cuda_mask import FLAG_BOX, FLAG_COUNT
from bgsoft.matte.plan import GuidedPlan, MattePlan, half_shape
from bgsoft.ops.loader import BLOCK, blocks, kernel

_MOMENTS = 13
"""Planes of means that the fit needs, as in ``bgsoft/ops/matte_fine.cu``."""
_THREADS = 256


class CudaFineEdge:
    """Fits the edge of frames of one format, moves it, and reduces the matte to the grid.

    Eight launches, two less where nothing is smoothed over time, one more for P010, one for an
    expansion and four or five for a feather.

    Args:
        plan: What to do.
        guided: Of the fit.
    """

    def __init__(self, plan: MattePlan, guided: GuidedPlan) -> None:
        format = plan.format
        shape, half = format.luma_shape, format.chroma_shape[:2]
        fits = half_shape(half)
        self.enlarged = cupy.empty(shape, np.uint8)
        """(H, W): where the matte is enlarged to, before the fit."""
        self._steadier = _Steadier(plan) if plan.temporal.floor < 1.0 else None
        self._steps = cuda_contour_steps(plan.contour)
        # The fit's result, then what the steps make of it; the last is the frame's own plane.
        self._planes = [cupy.empty(shape, np.uint8) for _ in self._steps]
        self._picture: tuple[Array, Array] | None = None
        if format.bit_depth > 8:
            luma, chroma = cupy.empty(shape, np.uint8), cupy.empty((*half, 2), np.uint8)
            self._picture = luma, chroma
            self._convert = kernel("matte", "eight_bits")
            self._convert_grid = (-(-(luma.size + chroma.size) // _THREADS), 1, 1)
            self._convert_args = (luma, chroma, np.int32(luma.size), np.int32(chroma.size))
        self._flags = cupy.zeros(FLAG_COUNT, np.int32)
        clear = np.zeros(FLAG_COUNT, np.int32)
        clear[FLAG_BOX] = (*half[::-1], -1, -1)
        self._clear = cupy.asarray(clear)
        moments = cupy.empty((_MOMENTS, *fits), np.float32)
        found, averaged = (cupy.empty((*fits, 4), np.float32) for _ in range(2))
        terms = cupy.empty((*half, 2), np.float32)
        sizes, radius = tuple(map(np.int32, fits)), np.int32(guided.radius)
        self._fit_grid, self._half_grid = blocks(*fits[::-1]), blocks(*half[::-1])
        self._measure, self._fit, self._average, self._enlarge = (
            kernel("matte_fine", f"fine_{name}") for name in ("moments", "fit", "average", "terms")
        )
        self._measure_args = (moments, self._flags, *map(np.int32, shape), *sizes)
        self._fit_args = (moments, found, radius, np.float32(guided.epsilon), *sizes)
        self._average_args = (found, averaged, radius, *sizes)
        self._averaged = averaged
        self._enlarge_args = (terms, *map(np.int32, half), *sizes)
        self._evaluate = kernel("matte_guided", "evaluate_smooth")
        self._evaluate_grid = (-(-shape[1] // BLOCK[0]), -(-shape[0] // EVALUATED_ROWS), 1)
        self._before = (self.enlarged, terms)
        # One weight and a straight curve: nothing is smoothed.
        weights, curve = np.array([256], np.int32), np.arange(256, dtype=np.uint8)
        self._after: tuple[Any, ...] = (
            *(self._flags, np.int32(True), np.int32(guided.margin)),
            *map(np.float32, (guided.steepen, guided.offset)),
            *(cupy.asarray(weights), np.int32(0), cupy.asarray(curve)),
            *(np.int32(False), np.uint64(0), *map(np.int32, shape)),
        )
        self._reduce = kernel("matte_direct", f"reduce_alpha_{plan.factor}")
        self._reduce_grid = blocks(*plan.shape[::-1])
        self._sizes = tuple(map(np.int32, (*shape, *plan.shape)))

    def apply(self, frame: Frame, grid_luma: Array, reduced: Array, *, fresh: bool) -> None:
        """Write the frame's alpha plane from what is in :attr:`enlarged`, and its reduction.

        Args:
            frame: The frame, whose picture is read.
            grid_luma: (gh, gw) uint8, the same on the grid.
            reduced: (gh, gw) uint8, overwritten.
            fresh: Earlier frames don't count.
        """
        luma, chroma = frame.luma, frame.chroma
        if self._picture is not None:
            args = (luma, chroma, *self._convert_args)
            self._convert(self._convert_grid, (_THREADS, 1, 1), args)
            luma, chroma = self._picture
        stream = cupy.cuda.get_current_stream()
        self._flags.data.copy_from_device_async(self._clear.data, self._clear.nbytes, stream)
        self._measure(self._fit_grid, BLOCK, (self.enlarged, luma, chroma, *self._measure_args))
        self._fit(self._fit_grid, BLOCK, self._fit_args)
        self._average(self._fit_grid, BLOCK, self._average_args)
        self._enlarge(self._half_grid, BLOCK, (self._averaged, chroma, *self._enlarge_args))
        planes = [*self._planes, frame.planes.alpha]
        args = (*self._before, luma, np.uint64(0), planes[0], *self._after)
        self._evaluate(self._evaluate_grid, BLOCK, args)
        if self._steadier is not None:
            self._steadier.apply(planes[0], grid_luma, fresh=fresh)
        for step, source, target in zip(self._steps, planes, planes[1:], strict=False):
            step.apply(source, target)
        alpha = frame.planes.alpha
        self._reduce(self._reduce_grid, BLOCK, (alpha, reduced, *self._sizes))


class _Steadier:
    """Averages mattes of the frame's size over time; two launches."""

    def __init__(self, plan: MattePlan) -> None:
        temporal, sizes = plan.temporal, tuple(map(np.int32, plan.shape))
        shape = plan.format.luma_shape
        reach = cupy.empty(plan.shape, np.uint8)
        self._measure, self._blend = (
            kernel("matte_fine", f"steady_{n}") for n in ("reach", "alpha")
        )
        self._measure_grid, self._blend_grid = blocks(*plan.shape[::-1]), blocks(*shape[::-1])
        self._measure_args = (
            *(cupy.zeros(plan.shape, np.uint16), cupy.asarray(temporal.reach), reach),
            *(np.int32(temporal.window // 2), np.float32(temporal.luma_scale), *sizes),
        )
        shift, share = np.int32(plan.factor.bit_length() - 1), np.float32(temporal.floor)
        self._before = (cupy.empty(shape, np.uint8), reach, shift, share)
        self._sizes = (*sizes, *map(np.int32, shape))

    def apply(self, alpha: Array, luma: Array, *, fresh: bool) -> None:
        """See :meth:`bgsoft.matte.steady.Steadier.apply`."""
        self._measure(self._measure_grid, BLOCK, (luma, *self._measure_args))
        self._blend(self._blend_grid, BLOCK, (alpha, *self._before, np.int32(fresh), *self._sizes))
