"""The soft matte on a CUDA device; reference: :mod:`bgsoft.matte.cpu`.

A frame with a mask takes 12 launches at the default settings (one more for P010, one for an
expansion, four or five for a feather), none of which the host waits for. What the host decides
from pixel values is decided by flags on the device here.

For the same input alpha is within 2 of 255 of the reference's nearly everywhere: the guided filter
sums in whole numbers here and in float32 there, everything else is the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.config import MatteConfig, MatteStyle, Refine
from bgsoft.cuda.device import CudaDevice
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.matte.base import Matter
from bgsoft.matte.contour import EdgeShift, Feather
from bgsoft.matte.cuda_contour import CudaEdgeShift, CudaFeather
from bgsoft.matte.cuda_direct import CudaDirectMatter
from bgsoft.matte.cuda_guided import CudaEdgeFitter
from bgsoft.matte.cuda_islands import CudaIslandFilter
from bgsoft.matte.cuda_mask import CudaMaskFilter
from bgsoft.matte.cuda_obs import CudaObsMatter
from bgsoft.matte.cuda_state import GridState

__all__ = ["CudaMatter", "create_cuda_matter"]

_STORE = 16
"""Pixels that one thread of ``enlarge_alpha`` writes."""


class CudaMatter:
    """Style soft. Works on the current stream; all buffers are made by the first frame's end.

    Args:
        config: What to do; steps that are off cost nothing.
        format: Geometry of all frames.
        device: Where the frames are.
        batch: Frames at a time.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, device: CudaDevice, batch: int = 1
    ) -> None:
        self.device = device
        self._format = format
        shape = grid_shape(format.width, format.height)
        factor = grid_factor(format.width, format.height)
        cells_per_pct = format.height / factor / 100.0
        self._state = state = GridState(shape)
        self._mask_filter = CudaMaskFilter(config, format, state)
        self._islands = CudaIslandFilter(state, config.min_area) if config.min_area > 0 else None
        self._refits = config.refine is Refine.GUIDED
        shift, rim = config.expand_pct * cells_per_pct, config.feather_pct * cells_per_pct
        self._steps: list[CudaEdgeShift | CudaFeather] = []
        if shift:
            self._steps.append(CudaEdgeShift(EdgeShift(shape, shift), shape))
        if rim > 0:
            self._steps.append(CudaFeather(Feather(shape, rim), shape))
        # The fitter's result, then one plane for each step.
        self._planes = [cupy.empty(shape, np.uint8) for _ in range(len(self._steps) + 1)]
        self._made = [cupy.empty(shape, np.uint8) for _ in range(batch)]
        """The mattes of a batch, on the grid."""
        self._fitter = CudaEdgeFitter(config, state, self._planes[0])

        chroma_shape = shape if factor > 1 else format.chroma_shape[:2]
        chroma_sizes = tuple(map(np.int32, chroma_shape))
        sizes = tuple(map(np.int32, shape))
        self._pack = kernel("matte", "limit_and_pack")
        self._pack_after = (*chroma_sizes, state.packed, state.flags)
        self._sizes = sizes
        self._eight_bits: tuple[Any, ...] | None = None
        if format.bit_depth > 8:
            self._luma = cupy.empty(shape, np.uint8)
            self._chroma = cupy.empty((*chroma_shape, 2), np.uint8)
            counts = tuple(map(np.int32, (self._luma.size, self._chroma.size)))
            self._eight_bits = (self._luma, self._chroma, *counts)
            self._convert = kernel("matte", "eight_bits")
            self._convert_grid = (-(-(self._luma.size + self._chroma.size) // 256), 1, 1)
        self._enlarge = kernel("matte", "enlarge_alpha")
        self._shift = np.int32(factor.bit_length() - 1)
        self._frame_sizes = tuple(map(np.int32, (*shape, *format.luma_shape)))
        self._frame_grid = blocks(-(-format.width // _STORE), format.height)
        self._has_mask = False

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._state.make_fresh()
        self._has_mask = False

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """Make the mattes of some frames; see :meth:`bgsoft.matte.base.Matter.refine`.

        Args:
            masks: (h, w) float32 on the device, C-contiguous; or None.
            frames: On the device; their alpha planes are written.
            grids: The same frames on the analysis grid.
        """
        return [self._refine(*each) for each in zip(masks, frames, grids, self._made, strict=False)]

    def _refine(self, mask: Array | None, frame: Frame, reduced: Reduced, made: Array) -> Matte:
        if mask is None and not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        if mask is not None or self._refits:
            luma, chroma = self._picture(reduced)
            if mask is not None:
                self._mask_filter.apply(mask, luma)
                if self._islands is not None:
                    self._islands.apply()
            else:
                self._fitter.compare(luma)
            held = mask is None
            state = self._state
            args = (state.coarse, state.limits, luma, chroma, *self._pack_after, np.int32(held))
            self._pack(state.half_grid, BLOCK, (*args, *self._sizes))
            self._fitter.apply(luma, held)
            for step, source, target in zip(
                self._steps, self._planes, self._planes[1:], strict=False
            ):
                step.apply(source, target)
            self._has_mask = True
        result, alpha = self._planes[-1], frame.planes.alpha
        wide = self._format.width % _STORE == 0 and alpha.data.ptr % _STORE == 0
        last = (result, alpha, self._state.flags, self._shift, *self._frame_sizes, np.int32(wide))
        self._enlarge(self._frame_grid, BLOCK, last)
        # The steps go on in the same planes with the next frame.
        stream = cupy.cuda.get_current_stream()
        made.data.copy_from_device_async(result.data, made.nbytes, stream)
        return Matte(alpha=alpha, reduced=made, held=mask is None)

    def _picture(self, reduced: Reduced) -> tuple[Array, Array]:
        """Luma and chroma of the grid in 8 bits."""
        if self._eight_bits is None:
            return reduced.luma, reduced.chroma
        planes = (reduced.luma, reduced.chroma, *self._eight_bits)
        self._convert(self._convert_grid, (256, 1, 1), planes)
        return self._luma, self._chroma


def create_cuda_matter(
    config: MatteConfig,
    format: FrameFormat,
    device: CudaDevice,
    batch: int = 1,
    *,
    from_alpha: bool = False,
) -> Matter:
    """Make the device's matte stage for the style that the settings ask for.

    Args:
        config: The matte settings.
        format: Geometry and sample format of all frames.
        device: Where the frames are.
        batch: Frames at a time.
        from_alpha: The model's masks are mattes of the frame's size.
    """
    if config.style is MatteStyle.OBS:
        return CudaObsMatter(config, format, device, batch)
    if from_alpha:
        return CudaDirectMatter(config, format, batch)
    return CudaMatter(config, format, device, batch)
