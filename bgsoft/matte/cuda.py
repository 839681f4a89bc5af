"""Mattes on a CUDA device; reference: :mod:`bgsoft.matte.cpu`.

A frame of the soft matte with a mask takes 12 launches at the default settings (one more for P010,
one for an expansion, four or five for a feather; eight where the edge is fitted on the frame), none
of which the host waits for. What the host decides from pixel values is decided by flags on the
device here.

For the same input alpha is within 2 of 255 of the reference's nearly everywhere: the guided filter
sums in whole numbers here and in float32 there, everything else is the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.cuda.device import CudaDevice
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import DirectMatte, MatteStage
from bgsoft.matte.cuda_edge import CudaEdgeFitter, cuda_contour_steps
from bgsoft.matte.cuda_fine import CudaFineEdge
from bgsoft.matte.cuda_mask import CudaGridState, CudaIslandFilter, CudaMaskFilter
from bgsoft.matte.cuda_obs import CudaObsMatte
from bgsoft.matte.plan import MattePlan, frame_contour
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.settings.config import MatteConfig, MatteStyle

_STORE = 16
"""Pixels that one thread of ``enlarge_alpha`` writes."""
_THREADS = 256
"""Of a block of the kernels that take a plane as one row."""


def create_cuda_matte_stage(
    config: MatteConfig,
    format: FrameFormat,
    device: CudaDevice,
    batch: int = 1,
    *,
    from_alpha: bool = False,
    fine: bool = False,
) -> MatteStage:
    """The same as :func:`bgsoft.matte.cpu.create_matte_stage`, for ``batch`` frames at a time."""
    if config.style is MatteStyle.OBS:
        return CudaObsMatte(config, format, device, batch)
    if from_alpha:
        return CudaDirectMatte(config, format, batch)
    return CudaSoftMatte(config, format, batch, fine=fine)


class CudaSoftMatte(MatteStage):
    """Style soft. Works on the current stream; all buffers are made by the first frame's end.

    Masks are on the device, C-contiguous.

    Args:
        config: What to do; steps that are off cost nothing.
        format: Geometry of all frames.
        batch: Frames at a time.
        fine: Fit the edge on the frame itself.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, batch: int = 1, *, fine: bool = False
    ) -> None:
        plan = MattePlan.of(config, format, fine=fine)
        self._format = format
        shape, factor = plan.shape, plan.factor
        self._state = state = CudaGridState(shape)
        self._mask_filter = CudaMaskFilter(plan, state)
        self._islands = CudaIslandFilter(plan.islands, state) if plan.islands else None
        self._refits = plan.guided is not None
        self._fine = CudaFineEdge(plan, plan.fine) if plan.fine else None
        self._steps = [] if plan.fine else cuda_contour_steps(plan.contour)
        # The fitter's result, then one plane for each step.
        self._planes = [cupy.empty(shape, np.uint8) for _ in range(len(self._steps) + 1)]
        self._made = [cupy.empty(shape, np.uint8) for _ in range(batch)]
        """The mattes of a batch, on the grid."""
        self._fitter = CudaEdgeFitter(plan, state, self._planes[0])

        chroma_shape = shape if factor > 1 else format.chroma_shape[:2]
        chroma_sizes = tuple(map(np.int32, chroma_shape))
        self._pack = kernel("matte", "limit_and_pack")
        self._pack_after = (*chroma_sizes, state.packed, state.flags)
        self._sizes = tuple(map(np.int32, shape))
        self._eight_bits: tuple[Any, ...] | None = None
        if format.bit_depth > 8:
            self._luma = cupy.empty(shape, np.uint8)
            self._chroma = cupy.empty((*chroma_shape, 2), np.uint8)
            counts = tuple(map(np.int32, (self._luma.size, self._chroma.size)))
            self._eight_bits = (self._luma, self._chroma, *counts)
            self._convert = kernel("matte", "eight_bits")
            self._convert_grid = (-(-(self._luma.size + self._chroma.size) // _THREADS), 1, 1)
        self._enlarge = kernel("matte", "enlarge_alpha")
        self._shift = np.int32(factor.bit_length() - 1)
        self._frame_sizes = tuple(map(np.int32, (*shape, *format.luma_shape)))
        self._frame_grid = blocks(-(-format.width // _STORE), format.height)

    def reset(self) -> None:
        super().reset()
        self._state.make_fresh()

    def _refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        each = zip(masks, frames, grids, self._made, strict=False)
        freshes = (not self._has_mask, *(False for _ in masks))
        return [self._refine_one(*one, fresh) for one, fresh in zip(each, freshes, strict=False)]

    def _refine_one(
        self, mask: Array | None, frame: Frame, grid: AnalysisFrame, made: Array, fresh: bool
    ) -> Matte:
        held = mask is None
        if mask is not None or self._refits or self._fine is not None:
            luma, chroma = self._picture(grid)
        if mask is not None or self._refits:
            if mask is not None:
                self._mask_filter.apply(mask, luma)
                if self._islands is not None:
                    self._islands.apply(self._mask_filter.smoothed)
            else:
                self._fitter.compare(luma)
            state = self._state
            args = (state.coarse, state.limits, luma, chroma, *self._pack_after, np.int32(held))
            self._pack(state.half_grid, BLOCK, (*args, *self._sizes))
            self._fitter.apply(luma, held)
            for step, source, target in zip(
                self._steps, self._planes, self._planes[1:], strict=False
            ):
                step.apply(source, target)
        result, alpha = self._planes[-1], frame.planes.alpha
        target = alpha if self._fine is None else self._fine.enlarged
        wide = self._format.width % _STORE == 0 and target.data.ptr % _STORE == 0
        last = (result, target, self._state.flags, self._shift, *self._frame_sizes, np.int32(wide))
        self._enlarge(self._frame_grid, BLOCK, last)
        if self._fine is not None:
            self._fine.apply(frame, luma, made, fresh=fresh)
        else:
            # The steps go on in the same planes with the next frame.
            _copy(result, made)
        return Matte(alpha=alpha, reduced=made, held=held)

    def _picture(self, grid: AnalysisFrame) -> tuple[Array, Array]:
        """Luma and chroma of the grid in 8 bits."""
        if self._eight_bits is None:
            return grid.luma, grid.chroma
        planes = (grid.luma, grid.chroma, *self._eight_bits)
        self._convert(self._convert_grid, (_THREADS, 1, 1), planes)
        return self._luma, self._chroma


class CudaDirectMatte(DirectMatte):
    """Takes masks of the frame's size as they are. Works on the current stream.

    Two launches and a few copies a frame, none of which the host waits for.

    Args:
        config: Of which expansion and feather count.
        format: Geometry of all frames.
        batch: Frames at a time.
    """

    def __init__(self, config: MatteConfig, format: FrameFormat, batch: int = 1) -> None:
        shape, grid = format.luma_shape, analysis_shape(format.width, format.height)
        super().__init__(
            [cupy.empty(grid, np.uint8) for _ in range(batch)],
            (cupy.empty(shape, np.uint8), cupy.empty(grid, np.uint8)),
        )
        self._steps = cuda_contour_steps(frame_contour(config, format))
        # What the steps read; the last of them writes the frame's own plane.
        self._planes = [cupy.empty(shape, np.uint8) for _ in self._steps]
        self._opacity = kernel("matte_direct", "opacity")
        self._count = shape[0] * shape[1]
        self._opacity_grid = (-(-self._count // _THREADS), 1, 1)
        factor = analysis_factor(format.width, format.height)
        self._reduce = kernel("matte_direct", f"reduce_alpha_{factor}")
        self._reduce_grid = blocks(grid[1], grid[0])
        self._sizes = tuple(map(np.int32, (*shape, *grid)))

    def _make(self, masks: Sequence[Array | None], mattes: Sequence[Matte]) -> None:
        for mask, matte in zip(masks, mattes, strict=True):
            if mask is None:
                continue
            planes = [*self._planes, matte.alpha]
            args = (mask, planes[0], np.int32(self._count))
            self._opacity(self._opacity_grid, (_THREADS, 1, 1), args)
            for step, source, target in zip(self._steps, planes, planes[1:], strict=False):
                step.apply(source, target)
            self._reduce(self._reduce_grid, BLOCK, (matte.alpha, matte.reduced, *self._sizes))

    def _copy(self, source: tuple[Array, Array], target: tuple[Array, Array]) -> None:
        for plane, copy in zip(source, target, strict=True):
            _copy(plane, copy)


def _copy(source: Array, target: Array) -> None:
    target.data.copy_from_device_async(source.data, source.nbytes, cupy.cuda.get_current_stream())
