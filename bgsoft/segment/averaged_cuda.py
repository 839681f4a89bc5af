"""Mattes averaged with masks on a CUDA device; reference: :mod:`bgsoft.segment.averaged`."""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.frame import Array, FrameFormat
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.segment.averaged import HIGH, LOW, thin_width


class CudaAverage:
    """Changes the mattes of frames of one format; four launches each on the current stream.

    Args:
        format: Format of the frames.
    """

    def __init__(self, format: FrameFormat) -> None:
        frame, grid = format.luma_shape, analysis_shape(format.width, format.height)
        self._sizes, self._frame_sizes = tuple(map(np.int32, grid)), tuple(map(np.int32, frame))
        self._grid, self._frame_grid = blocks(grid[1], grid[0]), blocks(frame[1], frame[0])
        self._reduce = resampling(frame, grid, area=True, fixed_point=False).args
        self._enlarge = resampling(grid, frame, area=False, fixed_point=False).args
        self._ramp = (np.float32(LOW), np.float32(1.0 / (HIGH - LOW)))
        self._reach = np.int32(thin_width(grid) // 2)
        self._change = cupy.empty(grid, np.float32)
        self._eroded = cupy.empty((2, *grid), np.float32)
        self._find, self._erode, self._dilate, self._apply = (
            kernel("average", name)
            for name in ("find_change", "erode_change", "dilate_change", "apply_change")
        )

    def __call__(self, mattes: Sequence[Array], masks: Sequence[Array]) -> None:
        """Change (H, W) float32 mattes, by (gh, gw) float32 masks."""
        window = (self._reach, *self._sizes)
        for matte, mask in zip(mattes, masks, strict=True):
            pitch = self._frame_sizes[1]
            args = (matte, pitch, *self._reduce, mask, *self._ramp, self._change, *self._sizes)
            self._find(self._grid, BLOCK, args)
            self._erode(self._grid, BLOCK, (self._change, self._eroded, *window))
            self._dilate(self._grid, BLOCK, (self._eroded, self._change, *window))
            args = (self._change, self._sizes[1], *self._enlarge, matte, *self._frame_sizes)
            self._apply(self._frame_grid, BLOCK, args)
