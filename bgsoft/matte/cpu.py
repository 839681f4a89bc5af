"""The soft matte on the host: the reference for every other implementation.

Order: temporal smoothing of the raw mask, soft threshold, enlargement to the analysis grid, islands
and holes, fit of the edge to the picture, contour smoothing, expansion, feather, enlargement to
the frame. The mask is smoothed over time before it is thresholded, because there a change still
has its true size; after the threshold's steep step noise would look like movement. Islands go
before the edge is fitted, so that the fit has less to work on and no removed noise in its windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.config import MatteConfig, Refine
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.matte.contour import ContourSmoother, EdgeShift, Feather
from bgsoft.matte.geometry import FrameUpsampler, MaskResampler
from bgsoft.matte.islands import IslandFilter
from bgsoft.matte.refine import GuidedRefiner
from bgsoft.matte.temporal import TemporalFilter
from bgsoft.matte.threshold import SoftThreshold
from bgsoft.workers import Workers

__all__ = ["CpuMatter"]

_DEEP_TO_BYTE = 1.0 / 256.0
"""10 bits in the high bits of 16: the top byte is the 8-bit value."""
_STILL_VARIANCE = 6.5
"""Mean squared difference of 8-bit luma (40 dB) below which two pictures differ in noise only."""


class CpuMatter:
    """Style soft, with NumPy and OpenCV. All buffers are made before the second frame.

    What follows earlier frames (smoothing over time, islands) is done in order, the rest of a
    batch side by side.

    Where the mask is held while the picture moves on, the edge is fitted anew to the new picture
    (if ``refine`` is guided): the steps before the fit are skipped. Where the picture stands still
    too, the last matte is given out unchanged.

    Args:
        config: What to do; steps that are off cost nothing.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, workers: Workers | None = None
    ) -> None:
        shape = grid_shape(format.width, format.height)
        self._temporal = TemporalFilter(config.temporal)
        self._threshold = SoftThreshold(config.threshold, config.softness)
        self._to_grid = MaskResampler(format)
        self._islands = IslandFilter(shape, config.min_area) if config.min_area > 0 else None
        self._refits = config.refine is Refine.GUIDED
        self._opacity: Array = np.empty((0, 0), np.uint8)
        self._coarse = np.empty(shape, np.uint8)
        self._fitted_luma = np.empty(shape, np.uint8)
        self._has_mask = False
        self._workers = workers or Workers()
        self._lanes = [_Lane(config, format) for _ in range(self._workers.lanes)]
        self._last = np.empty(shape, np.uint8)
        """The matte of the last frame of the last call, on the grid."""

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._temporal.reset()
        if self._islands is not None:
            self._islands.reset()
        self._has_mask = False

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """Make the mattes of some frames; see :meth:`bgsoft.matte.base.Matter.refine`."""
        lanes = self._lanes[: len(frames)]
        fitted = [
            self._follow(mask, lane, grid)
            for mask, lane, grid in zip(masks, lanes, grids, strict=True)
        ]
        made = self._workers.map(self._make, frames, grids, fitted)
        mattes: list[Matte] = []
        for mask, lane, frame, is_made in zip(masks, lanes, frames, made, strict=True):
            if not is_made:
                np.copyto(lane.matte, mattes[-1].reduced if mattes else self._last)
                lane.enlarge(frame)
            alpha = frame.planes.alpha
            mattes.append(Matte(alpha=alpha, reduced=lane.matte, held=mask is None))
        np.copyto(self._last, mattes[-1].reduced)
        return mattes

    def _follow(self, mask: Array | None, lane: _Lane, grid: Reduced) -> bool:
        """Take in the next frame; whether its matte differs from the last one."""
        luma = lane.see(grid)
        if mask is not None:
            self._make_coarse(mask, luma)
            self._has_mask = True
        elif not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        elif not self._refits or not self._has_moved(luma):
            return False
        np.copyto(lane.matte, self._coarse)
        if self._refits:
            np.copyto(self._fitted_luma, luma)
        return True

    def _make_coarse(self, mask: Array, luma: Array) -> None:
        """From the raw mask to clean opacity on the grid."""
        if self._opacity.shape != mask.shape:
            self._opacity = np.empty(mask.shape, np.uint8)
        self._threshold.apply(self._temporal.apply(mask, luma), self._opacity)
        self._to_grid.apply(self._opacity, self._coarse)
        if self._islands is not None:
            self._islands.apply(self._coarse)

    def _has_moved(self, luma: Array) -> bool:
        """Whether the picture differs by more than noise from the one last fitted."""
        squares = cv2.norm(luma, self._fitted_luma, cv2.NORM_L2SQR)
        return bool(squares > _STILL_VARIANCE * luma.size)

    def _make(self, index: int, frame: Frame, grid: Reduced, is_fitted: bool) -> bool:
        if is_fitted:
            lane = self._lanes[index]
            lane.fit(grid)
            lane.enlarge(frame)
        return is_fitted


class _Lane:
    """The steps that need nothing of earlier frames, with the buffers of one frame."""

    def __init__(self, config: MatteConfig, format: FrameFormat) -> None:
        shape = grid_shape(format.width, format.height)
        cells_per_pct = format.height / grid_factor(format.width, format.height) / 100.0
        self._refiner = GuidedRefiner(shape) if config.refine is Refine.GUIDED else None
        self._smoother = ContourSmoother(shape, config.smooth) if config.smooth > 0 else None
        shift = config.expand_pct * cells_per_pct
        self._shift = EdgeShift(shape, shift) if shift else None
        rim = config.feather_pct * cells_per_pct
        self._feather = Feather(shape, rim) if rim > 0 else None
        self._to_frame = FrameUpsampler(format)
        self._is_deep = format.bit_depth > 8
        self._luma: Array = np.empty(shape, np.uint8)
        self._chroma: Array = np.empty((0, 0, 2), np.uint8)
        self.matte = np.empty(shape, np.uint8)
        """(gh, gw): clean opacity, and after :meth:`fit` the matte."""

    def see(self, grid: Reduced) -> Array:
        """The grid's luma in 8 bits: (gh, gw) uint8."""
        if self._is_deep:
            cv2.convertScaleAbs(grid.luma, dst=self._luma, alpha=_DEEP_TO_BYTE)
        else:
            self._luma = grid.luma
        return self._luma

    def fit(self, grid: Reduced) -> None:
        """From clean opacity to the matte, of the frame last seen."""
        alpha = self.matte
        if self._refiner is not None:
            self._refiner.apply(alpha, self._luma, self._chroma8(grid))
        if self._smoother is not None:
            self._smoother.apply(alpha)
        if self._shift is not None:
            self._shift.apply(alpha)
        if self._feather is not None:
            self._feather.apply(alpha)

    def enlarge(self, frame: Frame) -> None:
        """Write the matte into the frame's alpha plane."""
        self._to_frame.apply(self.matte, frame.planes.alpha)

    def _chroma8(self, grid: Reduced) -> Array:
        """The grid's chroma in 8 bits: (ch, cw, 2) uint8."""
        if not self._is_deep:
            return grid.chroma
        if self._chroma.shape != grid.chroma.shape:
            self._chroma = np.empty(grid.chroma.shape, np.uint8)
        cv2.convertScaleAbs(grid.chroma, dst=self._chroma, alpha=_DEEP_TO_BYTE)
        return self._chroma
