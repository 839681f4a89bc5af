"""Style soft, on the host or on a CUDA device.

Order: temporal smoothing of the raw mask, soft threshold, enlargement to the analysis frame,
islands and holes, fit of the edge to the picture, contour smoothing, expansion, feather,
enlargement to the frame. Where another background is put behind the people, the edge is
fitted, steadied over time, expanded and feathered on the frame instead, at the end: a soft edge
does not show before its own wall blurred, but looks like a haze before a white one.

The mask is smoothed over time before it is thresholded, because there a change still has its true
size; after the threshold's steep step noise would look like movement. Islands go before the edge is
fitted, so that the fit has less to work on and no removed noise in its windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import MatteStage
from bgsoft.matte.contour import apply_in_turn, contour_step, grid_steps
from bgsoft.matte.guided import EdgeFitter
from bgsoft.matte.islands import FLAG_COUNT, SQUARES, IslandFilter, MaskState
from bgsoft.matte.plan import STILL_VARIANCE, MattePlan, Shape
from bgsoft.matte.temporal import EdgeSmoother, TemporalFilter
from bgsoft.ops.sides import Side
from bgsoft.settings.config import MatteConfig
from bgsoft.workers import Workers


class SoftMatte(MatteStage):
    """Style soft. All buffers are made by the first frame's end.

    Only the smoothing over time is done in order, of the mask and of an edge that is fitted on the
    frame. Everything else is done side by side on the host, for as many frames as there are lanes;
    a device has one lane, and nothing there waits for the host.

    Where the mask is held while the picture moves on, the edge is fitted anew to the new picture
    (if ``refine`` is guided): the steps before the fit are skipped. Where the picture stands still
    too, the last matte is given out unchanged; one that is fitted on the frame is fitted anew.

    Args:
        side, format, workers, batch: See :class:`MatteStage`.
        config: What to do; steps that are off cost nothing.
        fine: Fit the edge on the frame itself.
    """

    def __init__(
        self,
        side: Side,
        config: MatteConfig,
        format: FrameFormat,
        workers: Workers,
        batch: int,
        *,
        fine: bool = False,
    ) -> None:
        super().__init__(side, format, workers, batch)
        self._plan = plan = MattePlan.of(config, format, fine=fine)
        self._temporal = TemporalFilter(side, plan)
        smooths = plan.fine is not None and plan.temporal.floor < 1.0
        self._smoother = EdgeSmoother(side, plan) if smooths else None
        self._compare = side.operation("matte", "squared_difference")
        # The picture last fitted; on a device kept by the kernel that fits.
        self._fitted_luma = side.xp.zeros(plan.shape, np.uint8)
        kept = self._fitted_luma if side.on_device else None
        self._scratch = [_Scratch(side, plan, kept) for _ in range(workers.lanes)]
        # What the next frames go on from, while the lanes are used again. Faces may change mattes
        # that were given out.
        self._spare = MaskState(side, plan)
        self._last: MaskState | None = None
        self._last_matte = side.xp.empty(plan.shape, np.uint8)

    def reset(self) -> None:
        super().reset()
        self._last = None
        if self._smoother is not None:
            self._smoother.fresh = True

    def _refine(
        self,
        masks: Sequence[Array | None],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        mattes: Sequence[Matte],
    ) -> None:
        made, before = [matte.reduced for matte in mattes], self._last_matte
        for part in self._workers.parts(len(frames)):
            self._refine_part(masks[part], frames[part], reduced[part], made[part], before)
            before = made[part][-1]
        if not self._side.on_device:
            self._last_matte[...] = before

    def _refine_part(
        self,
        masks: Sequence[Array | None],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        made: Sequence[Array],
        before: Array,
    ) -> None:
        """Make mattes of as many frames as there are lanes; ``before``: that of the one before."""
        scratch = self._scratch[: len(frames)]
        fitted_luma = self._fitted_luma
        for one, mask, picture in zip(scratch, masks, reduced, strict=True):
            one.luma, one.chroma = one.picture.of(picture.luma, picture.chroma)
            if mask is not None:
                self._average(one, mask)
            moves = mask is not None or self._moves(one, fitted_luma)
            one.source = self._last if moves else None
            fitted_luma = fitted_luma if one.source is None else one.luma
        self._workers.map(self._make, masks, frames, made)
        if self._smoother is not None:
            for one, frame in zip(scratch, frames, strict=True):
                self._smoother.apply(one.fitted_plane(frame), one.luma)
        if self._plan.fine is not None:
            self._workers.map(lambda lane, *each: scratch[lane].finish(*each), frames, made)
        for one, frame, plane in zip(scratch, frames, made, strict=True):
            if one.source is None:
                self._side.copy(before, plane)
                one.enlarge(plane, frame)
            before = plane
        if fitted_luma is not self._fitted_luma and not self._side.on_device:
            self._fitted_luma[...] = fitted_luma
        for one in scratch:
            if one.state is self._last:
                one.state, self._spare = self._spare, one.state

    def _average(self, one: _Scratch, mask: Array) -> None:
        """Smooth a mask over time, in order."""
        state, before = one.state, self._last
        if one.opacity.shape != mask.shape:
            self._spare.allocate(mask.shape)
            for each in self._scratch:
                each.allocate(mask.shape)
        self._temporal.apply(mask, one.luma, state, before, one.opacity, one.flags)
        state.cleaning.acquire(blocking=False)  # it is held where an earlier frame has failed
        state.before = before
        self._last = state

    def _moves(self, one: _Scratch, fitted_luma: Array) -> bool:
        """Whether a held matte is made anew; a device decides where nobody waits for it."""
        if self._plan.fine is not None:
            return True
        if self._plan.guided is None:
            return self._side.on_device
        rows, columns = shape = self._plan.shape
        # A thread adds up eight rows.
        self._compare((-(-rows // 8), columns), one.luma, fitted_luma, one.flags, *shape)
        if self._side.on_device:
            return True
        squares = int(one.flags[SQUARES : SQUARES + 2].view(np.uint64)[0])
        return squares > int(STILL_VARIANCE * rows * columns)

    def _make(self, lane: int, mask: Array | None, frame: Frame, made: Array) -> None:
        one = self._scratch[lane]
        if one.source is not None:
            one.make(one.source, frame, made, held=mask is None)


class _Scratch:
    """The buffers that one frame needs on its way from the raw mask to the matte."""

    def __init__(self, side: Side, plan: MattePlan, fitted_luma: Array | None) -> None:
        xp, format, shape = side.xp, plan.format, plan.shape
        self._side, self._plan = side, plan
        self.flags = xp.zeros(FLAG_COUNT, np.int32)
        """See ``bgsoft/ops/matte.cuh``."""
        self.state = MaskState(side, plan)
        """Of the frame's own mask."""
        self.source: MaskState | None = None
        """Whose opacity the matte is made from; None: it is that of the frame before."""
        self.opacity: Array = xp.empty((0, 0), np.uint8)
        """(h, w): of the mask's size."""
        self._islands = IslandFilter(side, plan)
        self._limit = side.operation("matte", "limit_alpha") if plan.islands else None
        chroma_shape = shape if plan.factor > 1 else format.chroma_shape[:2]
        self.picture = _EightBits(side, format, shape, chroma_shape)
        """On the grid."""
        self.luma: Array
        self.chroma: Array
        """What it gives of the frame at hand."""
        self._fitter = EdgeFitter(
            side, shape, chroma_shape, plan.guided, plan.smooth, self.flags, fitted_luma
        )
        self._steps = grid_steps(side, [] if plan.fine else plan.contour)
        self._planes = [xp.empty(shape, np.uint8) for _ in self._steps]
        self._enlarge = side.operation("matte", "enlarge_alpha")
        lines = side.scratch(2 * shape[1] * plan.factor, np.uint16)
        size = format.luma_shape
        self._enlarge_args = self.flags, plan.factor.bit_length() - 1, *shape, *size, lines
        self._fine = _FineEdge(side, plan, self.flags) if plan.fine else None

    def allocate(self, mask_shape: Shape) -> None:
        """Make room for masks of this shape."""
        self.opacity = self._side.xp.empty(mask_shape, np.uint8)
        self.state.allocate(mask_shape)

    def make(self, source: MaskState, frame: Frame, made: Array, *, held: bool) -> None:
        """From the smoothed mask's opacity to the matte on the grid and on the frame.

        Where the mask is held: from what was cleaned for the last one.
        """
        shape = self._plan.shape
        if held:
            with source.cleaning:
                pass
        else:
            try:
                self._islands.apply(self.opacity, source, self.flags)
                if self._limit is not None:
                    self._limit(shape, source.opacity, self._islands.limits, self.flags, *shape)
            finally:
                source.cleaning.release()
        planes = [*self._planes, made]
        self._fitter.apply(source.opacity, self.luma, self.chroma, planes[0], held=held)
        apply_in_turn(self._steps, planes)
        self.enlarge(made, frame)
        if self._fine is not None:
            self._fine.fit(frame)

    def enlarge(self, made: Array, frame: Frame) -> None:
        """Write a matte on the grid into the plane of the frame's size."""
        target = self.fitted_plane(frame)
        self._enlarge(target.shape, made, target, *self._enlarge_args)

    def fitted_plane(self, frame: Frame) -> Array:
        """(H, W) uint8: where the matte of the frame's size is made, before its edge is moved."""
        alpha = frame.planes.alpha
        return alpha if self._fine is None else self._fine.planes(alpha)[0]

    def finish(self, frame: Frame, made: Array) -> None:
        """What is left to do where the edge is fitted on the frame, once it is steadied."""
        if self._fine is not None:
            self._fine.finish(frame.planes.alpha, made)


class _FineEdge:
    """What is done on the frame where the edge is fitted there."""

    def __init__(self, side: Side, plan: MattePlan, flags: Array) -> None:
        format = plan.format
        shape, chroma_shape = format.luma_shape, format.chroma_shape[:2]
        self._picture = _EightBits(side, format, shape, chroma_shape)
        self._fitter = EdgeFitter(side, shape, chroma_shape, plan.fine, None, flags)
        self._steps = [contour_step(side, each) for each in plan.contour]
        self._planes = [side.xp.empty(shape, np.uint8) for _ in self._steps]
        self._reducer = alpha_reducer(format, side)

    def planes(self, alpha: Array) -> list[Array]:
        """What the steps read, one after the other, and the frame's own plane."""
        return [*self._planes, alpha]

    def fit(self, frame: Frame) -> None:
        """Fit the edge in the first of the planes."""
        plane = self.planes(frame.planes.alpha)[0]
        self._fitter.apply(plane, *self._picture.of(frame.planes.luma, frame.planes.chroma), plane)

    def finish(self, alpha: Array, reduced: Array) -> None:
        """Move the edge on purpose, and reduce the plane to the grid."""
        apply_in_turn(self._steps, self.planes(alpha))
        self._reducer.reduce(alpha, reduced)


class _EightBits:
    """Pictures of one shape in 8 bits."""

    def __init__(self, side: Side, format: FrameFormat, shape: Shape, chroma_shape: Shape) -> None:
        self._is_deep = format.bit_depth > 8
        if self._is_deep:
            self._convert = side.operation("matte", "eight_bits")
            self._luma = side.xp.empty(shape, np.uint8)
            self._chroma = side.xp.empty((*chroma_shape, 2), np.uint8)

    def of(self, luma: Array, chroma: Array) -> tuple[Array, Array]:
        """Luma and chroma; those of 8 bits themselves."""
        if not self._is_deep:
            return luma, chroma
        for plane, out in ((luma, self._luma), (chroma, self._chroma)):
            size = plane.shape[0], plane.size // plane.shape[0]
            self._convert(size, plane, out, *size)
        return self._luma, self._chroma
