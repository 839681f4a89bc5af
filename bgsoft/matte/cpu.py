"""Mattes on the host: the reference for every other implementation.

The soft matte's order: temporal smoothing of the raw mask, soft threshold, enlargement to the
analysis frame, islands and holes, fit of the edge to the picture, contour smoothing, expansion,
feather, enlargement to the frame. Where another background is put behind the people, the edge is
fitted, steadied over time, expanded and feathered on the frame instead, at the end: a soft edge
does not show before its own wall blurred, but looks like a haze before a white one.

The mask is smoothed over time before it is thresholded, because there a change still has its true
size; after the threshold's steep step noise would look like movement. Islands go before the edge is
fitted, so that the fit has less to work on and no removed noise in its windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.cpu import AreaReducer
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import DirectMatte, MatteStage
from bgsoft.matte.edge import ContourSmoother, GuidedFilter, contour_steps
from bgsoft.matte.mask import (
    FrameUpsampler,
    IslandFilter,
    Moment,
    TemporalFilter,
    threshold_mask,
    to_grid,
)
from bgsoft.matte.obs import CpuObsMatte
from bgsoft.matte.plan import STILL_VARIANCE, GuidedPlan, MattePlan, frame_contour
from bgsoft.matte.steady import Steadier
from bgsoft.settings.config import MatteConfig, MatteStyle
from bgsoft.workers import Workers

_DEEP_TO_BYTE = 1.0 / 256.0
"""10 bits in the high bits of 16: the top byte is the 8-bit value."""


def create_matte_stage(
    config: MatteConfig,
    format: FrameFormat,
    workers: Workers | None = None,
    *,
    from_alpha: bool = False,
    fine: bool = False,
) -> MatteStage:
    """Make the host's matte stage for the style that the settings ask for.

    Args:
        config: The matte settings.
        format: Geometry and sample format of all frames.
        workers: What does it; a lane a frame.
        from_alpha: The model's masks are mattes of the frame's size.
        fine: Style soft fits the edge on the frame, not on the grid: for another background.
    """
    if config.style is MatteStyle.OBS:
        return CpuObsMatte(config, format, workers)
    if from_alpha:
        return CpuDirectMatte(config, format, workers)
    return CpuSoftMatte(config, format, workers, fine=fine)


class CpuSoftMatte(MatteStage):
    """Style soft, with NumPy and OpenCV. All buffers are made before the second frame.

    Only the smoothing over time is done in order, of the mask and of an edge that is fitted on the
    frame. Everything else is done side by side: what comes before it for all frames of a batch,
    then what comes after it.

    Where the mask is held while the picture moves on, the edge is fitted anew to the new picture
    (if ``refine`` is guided): the steps before the fit are skipped. Where the picture stands still
    too, the last matte is given out unchanged; one that is fitted on the frame is fitted anew.

    Args:
        config: What to do; steps that are off cost nothing.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
        fine: Fit the edge on the frame itself.
    """

    def __init__(
        self,
        config: MatteConfig,
        format: FrameFormat,
        workers: Workers | None = None,
        *,
        fine: bool = False,
    ) -> None:
        plan = MattePlan.of(config, format, fine=fine)
        temporal = TemporalFilter(plan.temporal)
        self._is_fine = plan.fine is not None
        self._refits = self._is_fine or plan.guided is not None
        self._steadier = Steadier(plan) if self._is_fine and plan.temporal.floor < 1.0 else None
        self._workers = workers or Workers()
        self._lanes = [_Scratch(plan, temporal) for _ in range(self._workers.lanes)]
        # What the next batch goes on from: the lane of the last mask, the picture last fitted, and
        # the matte last given out.
        self._last = _Scratch(plan, temporal)
        self._fitted_luma = np.empty(plan.shape, np.uint8)
        self._last_matte = np.empty(plan.shape, np.uint8)

    def _refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        lanes = self._lanes[: len(frames)]
        self._workers.map(lambda index, *seen: lanes[index].see(*seen), masks, grids)
        self._follow(masks, lanes)
        self._workers.map(self._make, masks, frames, grids)
        if self._steadier is not None:
            for index, (lane, frame) in enumerate(zip(lanes, frames, strict=True)):
                fresh = not self._has_mask and index == 0
                self._steadier.apply(frame.planes.alpha, lane.luma, lane.matte, fresh=fresh)
        if self._is_fine:
            self._workers.map(lambda index, frame: lanes[index].finish(frame), frames)
        mattes: list[Matte] = []
        for mask, lane, frame in zip(masks, lanes, frames, strict=True):
            if lane.source is None:
                np.copyto(lane.matte, mattes[-1].reduced if mattes else self._last_matte)
                lane.enlarge(frame)
            alpha = frame.planes.alpha
            mattes.append(Matte(alpha=alpha, reduced=lane.matte, held=mask is None))
        self._remember(masks, lanes)
        return mattes

    def _follow(self, masks: Sequence[Array | None], lanes: Sequence[_Scratch]) -> None:
        """Smooth over time, and say for each frame which opacity its matte is made from."""
        last = self._last if self._has_mask else None
        fitted_luma = self._fitted_luma
        for mask, lane in zip(masks, lanes, strict=True):
            if mask is not None:
                lane.follow(mask, last)
                lane.source = last = lane
            else:
                needs_fit = self._is_fine or (self._refits and _has_moved(lane.luma, fitted_luma))
                lane.source = last if needs_fit else None
            if lane.source is not None:
                fitted_luma = lane.luma

    def _make(self, index: int, mask: Array | None, frame: Frame, grid: AnalysisFrame) -> None:
        lane = self._lanes[index]
        if mask is not None:
            lane.clean()
        if lane.source is not None:
            lane.fit(lane.source, grid)
            lane.enlarge(frame)

    def _remember(self, masks: Sequence[Array | None], lanes: Sequence[_Scratch]) -> None:
        """Keep what the next batch goes on from, while the lanes are used again."""
        np.copyto(self._last_matte, lanes[-1].matte)
        fitted = [lane for lane in lanes if lane.source is not None]
        if fitted and self._refits:
            np.copyto(self._fitted_luma, fitted[-1].luma)
        segmented = [index for index, mask in enumerate(masks) if mask is not None]
        if segmented:
            index = segmented[-1]
            self._lanes[index], self._last = self._last, lanes[index]


def _has_moved(luma: Array, fitted_luma: Array) -> bool:
    """Whether a picture differs by more than noise from the one last fitted."""
    return bool(cv2.norm(luma, fitted_luma, cv2.NORM_L2SQR) > STILL_VARIANCE * luma.size)


class _Scratch:
    """One frame on its way from the raw mask to the matte, with all buffers."""

    def __init__(self, plan: MattePlan, temporal: TemporalFilter) -> None:
        self._plan = plan
        self._temporal = temporal
        self._moment = Moment((0, 0))
        self._islands = IslandFilter(plan.islands) if plan.islands else None
        self._guided = GuidedFilter(plan.guided) if plan.guided else None
        self._steps = [
            *([ContourSmoother(plan.smooth)] if plan.smooth else []),
            *([] if plan.fine else contour_steps(plan.contour)),
        ]
        self._to_frame = FrameUpsampler(plan)
        self._fine = _FineEdge(plan, plan.fine) if plan.fine else None
        self._is_deep = plan.format.bit_depth > 8
        self._chroma: Array = np.empty((0, 0, 2), np.uint8)
        self._opacity = np.empty(plan.shape, np.uint8)
        """(gh, gw), clean; of the frame's own mask."""
        self._is_clean = Event()
        self._before: _Scratch | None = None
        self.luma: Array = np.empty(plan.shape, np.uint8)
        """(gh, gw): the picture."""
        self.source: _Scratch | None = None
        """Whose opacity the matte is made from; None: it is that of the frame before."""
        self.matte = np.empty(plan.shape, np.uint8)
        """(gh, gw)."""

    def see(self, mask: Array | None, grid: AnalysisFrame) -> None:
        """Look at the frame, before anything else is done for it."""
        if self._is_deep:
            cv2.convertScaleAbs(grid.luma, dst=self.luma, alpha=_DEEP_TO_BYTE)
        else:
            self.luma = grid.luma
        if mask is None:
            return
        if self._moment.shape != mask.shape:
            self._moment = Moment(mask.shape)
            self._small = np.empty(mask.shape, np.uint8)
            self._scale = self._plan.mask_scale(mask.shape)
            self._samples = self._plan.mask_samples(mask.shape)
        self._temporal.see(self.luma, self._moment)

    def follow(self, mask: Array, before: _Scratch | None) -> None:
        """Smooth the mask over time, in order; ``before`` had the last mask, if that counts."""
        self._is_clean.clear()
        self._before = before
        self._temporal.apply(mask, self._moment, before._moment if before else None)

    def clean(self) -> None:
        """From the smoothed mask to clean opacity; may wait for that of the mask before."""
        try:
            threshold_mask(self._moment.state, self._plan.threshold, self._small)
            to_grid(self._small, self._scale, self._opacity)
            if self._islands is not None:
                before = self._before
                last = before._cleaned_islands if before else None
                self._islands.apply(self._opacity, last, self._gaps)
        finally:
            self._is_clean.set()

    def _cleaned_islands(self) -> IslandFilter:
        assert self._islands is not None
        self._is_clean.wait()
        return self._islands

    def _gaps(self) -> Array:
        """Where the smoothed mask is sure of background: bool, on half the grid."""
        assert self._plan.islands is not None
        rows, columns = self._samples
        return np.asarray(self._moment.state[rows[:, None], columns] < self._plan.islands.gap)

    def fit(self, source: _Scratch, grid: AnalysisFrame) -> None:
        """From clean opacity, once it is made, to the matte."""
        source._is_clean.wait()
        np.copyto(self.matte, source._opacity)
        if self._guided is not None:
            self._guided.apply(self.matte, self.luma, self._chroma8(grid))
        for step in self._steps:
            step.apply(self.matte)

    def enlarge(self, frame: Frame) -> None:
        """Write the matte into the frame's alpha plane."""
        self._to_frame.apply(self.matte, frame.planes.alpha)
        if self._fine is not None:
            self._fine.fit(frame)

    def finish(self, frame: Frame) -> None:
        """What is left to do where the edge is fitted on the frame, once it is steadied."""
        if self._fine is not None:
            self._fine.finish(frame.planes.alpha, self.matte)

    def _chroma8(self, grid: AnalysisFrame) -> Array:
        """The grid's chroma in 8 bits: (ch, cw, 2) uint8."""
        if not self._is_deep:
            return grid.chroma
        if self._chroma.shape != grid.chroma.shape:
            self._chroma = np.empty(grid.chroma.shape, np.uint8)
        cv2.convertScaleAbs(grid.chroma, dst=self._chroma, alpha=_DEEP_TO_BYTE)
        return self._chroma


class _FineEdge:
    """What is done on the frame where the edge is fitted there."""

    def __init__(self, plan: MattePlan, guided: GuidedPlan) -> None:
        format = plan.format
        self._guided = GuidedFilter(guided)
        self._steps = contour_steps(plan.contour)
        self._reducer = AreaReducer(*format.luma_shape, plan.factor, "uint8")
        self._eight_bits: tuple[Array, Array] | None = None
        if format.bit_depth > 8:
            shapes = format.luma_shape, format.chroma_shape
            self._eight_bits = np.empty(shapes[0], np.uint8), np.empty(shapes[1], np.uint8)

    def fit(self, frame: Frame) -> None:
        """Fit the edge in the frame's alpha plane."""
        alpha, picture = frame.planes.alpha, (frame.luma, frame.chroma)
        if self._eight_bits is not None:
            for plane, small in zip(picture, self._eight_bits, strict=True):
                cv2.convertScaleAbs(plane, dst=small, alpha=_DEEP_TO_BYTE)
            picture = self._eight_bits
        self._guided.apply(alpha, *picture)

    def finish(self, alpha: Array, reduced: Array) -> None:
        """Move the edge on purpose, and reduce the plane to the grid."""
        for step in self._steps:
            step.apply(alpha)
        self._reducer.reduce(alpha, reduced)


class CpuDirectMatte(DirectMatte):
    """Takes masks of the frame's size as they are, with NumPy and OpenCV.

    Args:
        config: Of which expansion and feather count.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, workers: Workers | None = None
    ) -> None:
        shape, grid = format.luma_shape, analysis_shape(format.width, format.height)
        self._workers = workers or Workers()
        lanes = range(self._workers.lanes)
        super().__init__(
            [np.empty(grid, np.uint8) for _ in lanes],
            (np.empty(shape, np.uint8), np.empty(grid, np.uint8)),
        )
        self._steps = [contour_steps(frame_contour(config, format)) for _ in lanes]
        factor = analysis_factor(format.width, format.height)
        self._reducers = [AreaReducer(*shape, factor, "uint8") for _ in lanes]

    def _make(self, masks: Sequence[Array | None], mattes: Sequence[Matte]) -> None:
        self._workers.map(self._make_one, masks, mattes)

    def _make_one(self, lane: int, mask: Array | None, matte: Matte) -> None:
        if mask is None:
            return
        cv2.convertScaleAbs(mask, dst=matte.alpha, alpha=255.0)
        for step in self._steps[lane]:
            step.apply(matte.alpha)
        self._reducers[lane].reduce(matte.alpha, matte.reduced)

    def _copy(self, source: tuple[Array, Array], target: tuple[Array, Array]) -> None:
        for plane, copy in zip(source, target, strict=True):
            np.copyto(copy, plane)
