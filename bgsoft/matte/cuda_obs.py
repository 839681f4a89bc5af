"""The OBS matte on a CUDA device; reference: :mod:`bgsoft.matte.obs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.cuda.device import CudaDevice, pinned_array
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import MatteStage
from bgsoft.matte.obs import ObsMask
from bgsoft.matte.plan import ObsPlan
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.settings.config import MatteConfig

_RUN = 32
"""Samples that one thread of the box filter makes."""


class CudaObsMatte(MatteStage):
    """Style obs. Steps 1 to 4, which follow contours on the small mask, are done on the host.

    So every mask crosses PCIe twice (256 kB down and 64 kB up for a mask of 256×256, counted in
    the device's meter), and the host waits for it. Everything of frame size stays on the device.

    Args:
        config: What to do; ``softness`` and ``refine`` have no meaning here.
        format: Geometry of all frames.
        device: Where the frames are.
        batch: Frames at a time.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, device: CudaDevice, batch: int = 1
    ) -> None:
        self._device = device
        self._plan = plan = ObsPlan.of(config, format)
        self._host = ObsMask(plan)
        shape = format.luma_shape
        self._frame_shape = shape
        self._sizes = tuple(map(np.int32, shape))
        self._grid = blocks(shape[1], shape[0])
        factor = analysis_factor(format.width, format.height)
        grid = analysis_shape(format.width, format.height)
        self._background, self._scratch = (cupy.empty(shape, np.uint8) for _ in range(2))
        self._made = [cupy.empty(grid, np.uint8) for _ in range(batch)]
        self._finish = kernel("matte_obs", f"obs_finish_{factor}")
        self._finish_grid = blocks(grid[1], grid[0])
        self._finish_sizes = tuple(map(np.int32, (*shape, *grid)))
        self._enlarge = kernel("matte_obs", "obs_enlarge")
        self._extreme = kernel("matte_obs", "obs_extreme")
        self._row_sums = kernel("matte_obs", "obs_row_sums")
        self._column_means = kernel("matte_obs", "obs_column_means")
        self._sums = cupy.empty(shape if plan.feather_side else (0, 0), np.int32)
        self._copied = cupy.cuda.Event(disable_timing=True)
        self._mask_shape: tuple[int, int] | None = None

    def reset(self) -> None:
        super().reset()
        self._host.reset()

    def _refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        each = zip(masks, frames, self._made, strict=False)
        return [self._refine_one(*one) for one in each]

    def _refine_one(self, mask: Array | None, frame: Frame, reduced: Array) -> Matte:
        if mask is not None:
            self._upload(self._host.apply(self._download(mask)))
            self._to_frame()
        alpha = frame.planes.alpha
        planes = (self._background, alpha, reduced)
        self._finish(self._finish_grid, BLOCK, (*planes, *self._finish_sizes))
        return Matte(alpha=alpha, reduced=reduced, held=mask is None)

    def _download(self, mask: Array) -> NDArray[np.float32]:
        """Bring the mask to the host."""
        if self._mask_shape != mask.shape:
            self._allocate(mask.shape)
        stream = cupy.cuda.get_current_stream()
        mask.data.copy_to_host_async(self._mask.ctypes.data, self._mask.nbytes, stream)
        self._copied.record(stream)
        self._copied.synchronize()
        self._device.copies.add_d2h(self._mask.nbytes)
        return self._mask

    def _upload(self, small: NDArray[np.uint8]) -> None:
        # The last upload has ended: it came before the download that was waited for.
        np.copyto(self._staged, small)
        stream = cupy.cuda.get_current_stream()
        source, size = self._staged.ctypes.data, self._staged.nbytes
        self._small.data.copy_from_host_async(source, size, stream)
        self._device.copies.add_h2d(size)

    def _to_frame(self) -> None:
        """Steps 5 to 7: fill the full-size background mask."""
        plan = self._plan
        args: tuple[Any, ...] = (self._small, *self._tables, self._background)
        binarise = np.int32(plan.smooth_side > 0)
        self._enlarge(self._grid, BLOCK, (*args, binarise, *self._sizes))
        self._morph(abs(plan.dilation_px), largest=plan.dilation_px < 0)
        if plan.feather_side:
            self._morph(plan.feather_side // 3, largest=True)
            self._blur(plan.feather_side // 2)

    def _morph(self, reach: int, *, largest: bool) -> None:
        """Extreme over squares: iterated 3×3 is one square, and that is rows, then columns."""
        if not reach:
            return
        settings = (np.int32(reach), np.int32(largest))
        for along_rows in (1, 0):
            planes = (self._background, self._scratch)
            args = (*planes, *settings, np.int32(along_rows), *self._sizes)
            self._extreme(self._grid, BLOCK, args)
            self._background, self._scratch = self._scratch, self._background

    def _blur(self, radius: int) -> None:
        rows, columns = self._frame_shape
        sizes = (np.int32(radius), *self._sizes)
        row_grid = blocks(-(-columns // _RUN), rows)
        self._row_sums(row_grid, BLOCK, (self._background, self._sums, *sizes))
        column_grid = blocks(columns, -(-rows // _RUN))
        self._column_means(column_grid, BLOCK, (self._sums, self._background, *sizes))

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._mask_shape = shape
        self._mask: NDArray[np.float32] = pinned_array(shape, np.float32)
        self._staged: NDArray[np.uint8] = pinned_array(shape, np.uint8)
        self._small = cupy.empty(shape, np.uint8)
        tables = resampling(shape, self._frame_shape, area=False, fixed_point=True)
        self._tables = (np.int32(shape[1]), *tables.args)
