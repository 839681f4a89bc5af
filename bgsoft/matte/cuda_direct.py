"""The matte of a model that makes one itself, on a CUDA device; the twin of
:mod:`bgsoft.matte.direct`. Two launches and a few copies a frame, none of which the host waits for.
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.config import MatteConfig
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.matte.base import Matter
from bgsoft.matte.contour import EdgeShift, Feather
from bgsoft.matte.cuda_contour import CudaEdgeShift, CudaFeather

__all__ = ["CudaDirectMatter"]

_THREADS = 256


class CudaDirectMatter(Matter):
    """Takes masks of the frame's size as they are. Works on the current stream.

    Args:
        config: Of which expansion and feather count.
        format: Geometry of all frames.
        batch: Frames at a time.
    """

    def __init__(self, config: MatteConfig, format: FrameFormat, batch: int = 1) -> None:
        shape = format.luma_shape
        shift = config.expand_pct * format.height / 100.0
        rim = config.feather_pct * format.height / 100.0
        self._steps: list[CudaEdgeShift | CudaFeather] = []
        if shift:
            self._steps.append(CudaEdgeShift(EdgeShift(shape, shift), shape))
        if rim > 0:
            self._steps.append(CudaFeather(Feather(shape, rim), shape))
        # What the steps read; the last of them writes the frame's own plane.
        self._planes = [cupy.empty(shape, np.uint8) for _ in self._steps]
        grid = grid_shape(format.width, format.height)
        self._reduced = [cupy.empty(grid, np.uint8) for _ in range(batch)]
        self._last = (cupy.empty(shape, np.uint8), cupy.empty(grid, np.uint8))
        self._has_mask = False
        self._opacity = kernel("matte_direct", "opacity")
        self._count = shape[0] * shape[1]
        self._opacity_grid = (-(-self._count // _THREADS), 1, 1)
        factor = grid_factor(format.width, format.height)
        self._reduce = kernel("matte_direct", f"reduce_alpha_{factor}")
        self._reduce_grid = blocks(grid[1], grid[0])
        self._sizes = tuple(map(np.int32, (*shape, *grid)))

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """See :meth:`bgsoft.matte.base.Matter.refine`; masks are (H, W), on the device."""
        if masks[0] is None and not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        self._has_mask = True
        alpha, reduced = self._last
        mattes: list[Matte] = []
        for mask, made, frame in zip(masks, self._reduced, frames, strict=False):
            matte = Matte(alpha=frame.planes.alpha, reduced=made, held=mask is None)
            if mask is None:
                _copy(alpha, matte.alpha)
                _copy(reduced, matte.reduced)
            else:
                self._make(mask, matte)
            alpha, reduced = matte.alpha, matte.reduced
            mattes.append(matte)
        # Faces may change what is given out.
        if alpha is not self._last[0]:
            _copy(alpha, self._last[0])
            _copy(reduced, self._last[1])
        return mattes

    def _make(self, mask: Array, matte: Matte) -> None:
        planes = [*self._planes, matte.alpha]
        args = (mask, planes[0], np.int32(self._count))
        self._opacity(self._opacity_grid, (_THREADS, 1, 1), args)
        for step, source, target in zip(self._steps, planes, planes[1:], strict=False):
            step.apply(source, target)
        self._reduce(self._reduce_grid, BLOCK, (matte.alpha, matte.reduced, *self._sizes))

    def reset(self) -> None:
        self._has_mask = False


def _copy(source: Array, target: Array) -> None:
    target.data.copy_from_device_async(source.data, source.nbytes, cupy.cuda.get_current_stream())
