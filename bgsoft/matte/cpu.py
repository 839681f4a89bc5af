"""The soft matte on the host: the reference for every other implementation.

Order: temporal smoothing of the raw mask, soft threshold, enlargement to the analysis grid, islands
and holes, fit of the edge to the picture, contour smoothing, expansion, feather, enlargement to
the frame. The mask is smoothed over time before it is thresholded, because there a change still
has its true size; after the threshold's steep step noise would look like movement. Islands go
before the edge is fitted, so that the fit has less to work on and no removed noise in its windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.config import MatteConfig, Refine
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.matte.contour import ContourSmoother, EdgeShift, Feather
from bgsoft.matte.geometry import FrameUpsampler, MaskResampler
from bgsoft.matte.islands import IslandFilter
from bgsoft.matte.refine import GuidedRefiner
from bgsoft.matte.temporal import Moment, TemporalFilter
from bgsoft.matte.threshold import SoftThreshold
from bgsoft.workers import Workers

__all__ = ["CpuMatter"]

_DEEP_TO_BYTE = 1.0 / 256.0
"""10 bits in the high bits of 16: the top byte is the 8-bit value."""
_STILL_VARIANCE = 6.5
"""Mean squared difference of 8-bit luma (40 dB) below which two pictures differ in noise only."""


class CpuMatter:
    """Style soft, with NumPy and OpenCV. All buffers are made before the second frame.

    Only the smoothing over time is done in order. Everything else is done side by side: what
    comes before it for all frames of a batch, then what comes after it.

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
        self._refits = config.refine is Refine.GUIDED
        self._workers = workers or Workers()
        self._lanes = [_Lane(config, format, self._temporal) for _ in range(self._workers.lanes)]
        # What the next batch goes on from: the last mask's opacity, the picture last fitted, and
        # the matte last given out.
        self._last = _Opacity(config, format, self._temporal)
        self._has_mask = False
        self._fitted_luma = np.empty(shape, np.uint8)
        self._last_matte = np.empty(shape, np.uint8)

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._has_mask = False

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """Make the mattes of some frames; see :meth:`bgsoft.matte.base.Matter.refine`."""
        lanes = self._lanes[: len(frames)]
        self._workers.map(self._see, masks, grids)
        self._follow(masks, lanes)
        self._workers.map(self._make, masks, frames, grids)
        mattes: list[Matte] = []
        for mask, lane, frame in zip(masks, lanes, frames, strict=True):
            if lane.source is None:
                np.copyto(lane.matte, mattes[-1].reduced if mattes else self._last_matte)
                lane.enlarge(frame)
            alpha = frame.planes.alpha
            mattes.append(Matte(alpha=alpha, reduced=lane.matte, held=mask is None))
        self._remember(masks, lanes)
        return mattes

    def _see(self, index: int, mask: Array | None, grid: Reduced) -> None:
        self._lanes[index].see(mask, grid)

    def _follow(self, masks: Sequence[Array | None], lanes: Sequence[_Lane]) -> None:
        """Smooth over time, and say for each frame which opacity its matte is made from."""
        last = self._last if self._has_mask else None
        fitted_luma = self._fitted_luma
        for mask, lane in zip(masks, lanes, strict=True):
            if mask is not None:
                lane.opacity.follow(mask, last)
                lane.source = last = lane.opacity
            elif last is None:
                raise ValueError("no mask to hold: the first frame must be segmented")
            elif self._refits and _has_moved(lane.luma, fitted_luma):
                lane.source = last
            else:
                lane.source = None
            if lane.source is not None:
                fitted_luma = lane.luma

    def _make(self, index: int, mask: Array | None, frame: Frame, grid: Reduced) -> None:
        lane = self._lanes[index]
        if mask is not None:
            lane.opacity.clean()
        if lane.source is not None:
            lane.fit(lane.source.wait(), grid)
            lane.enlarge(frame)

    def _remember(self, masks: Sequence[Array | None], lanes: Sequence[_Lane]) -> None:
        """Keep what the next batch goes on from, while the lanes are used again."""
        np.copyto(self._last_matte, lanes[-1].matte)
        fitted = [lane for lane in lanes if lane.source is not None]
        if fitted and self._refits:
            np.copyto(self._fitted_luma, fitted[-1].luma)
        segmented = [lane for mask, lane in zip(masks, lanes, strict=True) if mask is not None]
        if segmented:
            lane = segmented[-1]
            lane.opacity, self._last = self._last, lane.opacity
            self._has_mask = True


def _has_moved(luma: Array, fitted_luma: Array) -> bool:
    """Whether a picture differs by more than noise from the one last fitted."""
    return bool(cv2.norm(luma, fitted_luma, cv2.NORM_L2SQR) > _STILL_VARIANCE * luma.size)


class _Opacity:
    """The way of one mask to clean opacity on the grid, with its buffers."""

    def __init__(self, config: MatteConfig, format: FrameFormat, temporal: TemporalFilter) -> None:
        shape = grid_shape(format.width, format.height)
        self._temporal = temporal
        self._threshold = SoftThreshold(config.threshold, config.softness)
        self._to_grid = MaskResampler(format)
        self._islands = IslandFilter(shape, config.min_area) if config.min_area > 0 else None
        self._moment = Moment((0, 0))
        self._small: Array = np.empty((0, 0), np.uint8)
        self._plane = np.empty(shape, np.uint8)
        self._before: _Opacity | None = None
        self._is_clean = Event()

    def see(self, mask: Array, luma: Array) -> None:
        """Look at the picture that the mask belongs to: (gh, gw) uint8."""
        if self._moment.shape != mask.shape:
            self._moment = Moment(mask.shape)
            self._small = np.empty(mask.shape, np.uint8)
        self._temporal.see(luma, self._moment)

    def follow(self, mask: Array, before: _Opacity | None) -> None:
        """Smooth the mask over time, in order; ``before`` is the last mask's, if that counts."""
        self._is_clean.clear()
        self._before = before
        self._temporal.apply(mask, self._moment, before._moment if before else None)

    def clean(self) -> None:
        """From the smoothed mask to clean opacity; may wait for that of the mask before."""
        try:
            self._threshold.apply(self._moment.state, self._small)
            self._to_grid.apply(self._small, self._plane)
            if self._islands is not None:
                before = self._before
                self._islands.apply(self._plane, before._cleaned_islands if before else None)
        finally:
            self._is_clean.set()

    def _cleaned_islands(self) -> IslandFilter:
        assert self._islands is not None
        self._is_clean.wait()
        return self._islands

    def wait(self) -> Array:
        """The clean opacity, once it is made: (gh, gw) uint8."""
        self._is_clean.wait()
        return self._plane


class _Lane:
    """The steps that need nothing of earlier frames, with the buffers of one frame."""

    def __init__(self, config: MatteConfig, format: FrameFormat, temporal: TemporalFilter) -> None:
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
        self._chroma: Array = np.empty((0, 0, 2), np.uint8)
        self.luma: Array = np.empty(shape, np.uint8)
        """(gh, gw): the picture."""
        self.opacity = _Opacity(config, format, temporal)
        """For the frame's own mask."""
        self.source: _Opacity | None = None
        """What the matte is made from; None: the frame gets the matte of the frame before."""
        self.matte = np.empty(shape, np.uint8)
        """(gh, gw)."""

    def see(self, mask: Array | None, grid: Reduced) -> None:
        """Look at the frame, before anything else is done for it."""
        if self._is_deep:
            cv2.convertScaleAbs(grid.luma, dst=self.luma, alpha=_DEEP_TO_BYTE)
        else:
            self.luma = grid.luma
        if mask is not None:
            self.opacity.see(mask, self.luma)

    def fit(self, opacity: Array, grid: Reduced) -> None:
        """From clean opacity to the matte."""
        alpha = self.matte
        np.copyto(alpha, opacity)
        if self._refiner is not None:
            self._refiner.apply(alpha, self.luma, self._chroma8(grid))
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
