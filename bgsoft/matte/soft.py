"""Style soft, on the host or on a CUDA device.

Order: temporal smoothing of the raw mask, soft threshold, enlargement to the analysis frame,
islands and holes, fit of the edge to the picture, contour smoothing, expansion, feather,
enlargement to the frame. With another background, the edge is fitted, steadied over time, expanded
and feathered at the end, on the frame. A soft edge is invisible in front of its own blurred wall,
but looks like haze in front of a white one.

The mask is smoothed over time before the threshold, because a change still has its true size there;
after the steep step noise would look like movement. Islands are removed before the fit, which then
has less to process and no removed noise in its windows.
"""

from __future__ import annotations

import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.frame import Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import MatteBatch, MatteSetup, MatteStage
from bgsoft.matte.contour import ContourSteps, Shape
from bgsoft.matte.guided import EdgeFitter
from bgsoft.matte.islands import MAX_FRAMES, IslandFilter, MaskState
from bgsoft.matte.temporal import EdgeSmoother, TemporalFilter
from bgsoft.ops.placement import Placement
from bgsoft.settings.config import MatteConfig, Refine


class SoftMatte(MatteStage):
    """Style soft. All buffers are allocated by the end of the first frame.

    Only smoothing over time runs in order: of the mask, and of an edge that is fitted on the frame.
    All other steps run in parallel on the host, a frame a lane. A device has one lane, but finds
    the islands of a whole batch at once; nothing there waits for the host.

    Where the mask is held, the edge is fitted to the new picture (if ``refine`` is guided); earlier
    steps are skipped.

    With ``fine`` it is fitted on the frame itself instead of the grid. For 34 portraits before
    drawn rooms, in 720 lines, this reduces the mean squared error of alpha near the edge by 8 %,
    that of its gradient by 14 %, and of the composite over black by 6 to 8 %. It takes 4 ms of one
    core at 1080p.
    """

    def __init__(self, setup: MatteSetup) -> None:
        super().__init__(setup)
        config, format, placement = setup.config, setup.format, self._placement
        self._temporal = TemporalFilter(placement, config)
        self._fine = setup.fine and config.refine is Refine.GUIDED
        smooths = self._fine and config.temporal > 0.0
        self._smoother = EdgeSmoother(placement, config.temporal, format) if smooths else None
        self._lanes = [
            _Lane(placement, config, format, fine=self._fine) for _ in range(setup.pool.lanes)
        ]
        max_frames = min(setup.batch, MAX_FRAMES) if placement.on_device else 1
        self._islands = [IslandFilter(placement, format, config, max_frames) for _ in self._lanes]
        self._scratch = [_Scratch(placement, format) for _ in range(max_frames * setup.pool.lanes)]
        # The state for the next frames, while the others are reused.
        self._spare = MaskState(placement, self._made[0][0].shape)
        self._last: MaskState | None = None

    def reset(self) -> None:
        super().reset()
        self._last = None
        if self._smoother is not None:
            self._smoother.fresh = True

    def _refine(self, batch: MatteBatch) -> None:
        at_once = len(self._scratch)
        for first in range(0, len(batch.frames), at_once):
            self._refine_part(batch.part(slice(first, first + at_once)))

    def _refine_part(self, batch: MatteBatch) -> None:
        """Make mattes of as many frames as there are buffers for."""
        masks, frames, reduced, mattes = batch
        scratch, holds = self._scratch[: len(frames)], False
        for one, mask, picture in zip(scratch, masks, reduced, strict=True):
            one.luma, one.chroma = one.picture.of(picture.luma, picture.chroma)
            if mask is None:
                holds = True
            else:
                self._average(one, mask)
            assert self._last is not None
            one.source = self._last
        if holds or self._placement.on_device:
            # A frame may use another frame's mask.
            unclean = [one for one in scratch if one.is_unclean]
            if not self._placement.on_device:
                self._pool.map(self._clean, unclean)
            elif unclean:
                self._clean(0, *unclean)
        for part in self._pool.parts(len(frames)):
            some = scratch[part], frames[part], mattes[part]
            self._pool.map(self._make, *some)
            if self._smoother is not None:
                for lane, one, frame in zip(self._lanes, *some[:2], strict=False):
                    self._smoother.apply(lane.fitted_plane(frame), one.luma)
            if self._fine:
                self._pool.map(self._finish, *some[1:])
        for one in scratch:
            if one.state is self._last:
                one.state, self._spare = self._spare, one.state

    def _clean(self, lane: int, *some: _Scratch) -> None:
        """Clean the opacity of the smoothed masks, on the grid."""
        opacities, states = [], []
        for one in some:
            opacities.append(one.opacity)
            states.append(one.state)
            one.is_unclean = False
        self._islands[lane].apply(opacities, states)

    def _make(self, lane: int, one: _Scratch, frame: Frame, matte: Matte) -> None:
        """Make the matte on the grid and on the frame, from opacity on the grid."""
        if one.is_unclean:
            self._clean(lane, one)
        self._lanes[lane].make(one, frame, matte)

    def _finish(self, lane: int, frame: Frame, matte: Matte) -> None:
        self._lanes[lane].finish(frame, matte)

    def _average(self, one: _Scratch, mask: Array) -> None:
        """Smooth a mask over time; call in order."""
        if one.opacity.shape != mask.shape:
            self._spare.allocate(mask.shape)
            for each in self._scratch:
                each.allocate(mask.shape)
        self._temporal.apply(mask, one.luma, one.state, self._last, one.opacity)
        self._last, one.is_unclean = one.state, True


class _Scratch:
    """Buffers of one frame, from the raw mask to the matte."""

    def __init__(self, placement: Placement, format: FrameFormat) -> None:
        shape = analysis_shape(format.width, format.height)
        self._placement = placement
        self.state = MaskState(placement, shape)
        """State of the frame's own mask."""
        self.source: MaskState
        """State with the opacity that the matte is made from."""
        self.opacity: Array = placement.xp.empty((0, 0), np.uint8)
        """(h, w) uint8, of the mask's size."""
        self.is_unclean = False
        """Whether the opacity has to be cleaned."""
        self.picture = _EightBits(placement, format, shape, _grid_chroma(format))
        """8-bit pictures on the grid."""
        self.luma: Array
        self.chroma: Array
        """Planes of the current frame in those pictures."""

    def allocate(self, mask_shape: Shape) -> None:
        """Allocate buffers for masks of this shape."""
        self.opacity = self._placement.xp.empty(mask_shape, np.uint8)
        self.state.allocate(mask_shape)


class _Lane:
    """Makes the mattes of frames, one after another."""

    def __init__(
        self, placement: Placement, config: MatteConfig, format: FrameFormat, *, fine: bool
    ) -> None:
        size = format.luma_shape
        shape = analysis_shape(format.width, format.height)
        factor = analysis_factor(format.width, format.height)
        self._placement = placement
        guides = config.refine is Refine.GUIDED and not fine
        self._fitter = EdgeFitter(placement, shape, _grid_chroma(format)) if guides else None
        lines = 0.0 if fine else format.height / factor
        self._steps = ContourSteps(placement, config, shape, smooths=True, lines=lines)
        self._enlarge = placement.operation("matte", "enlarge_alpha")
        room = placement.scratch(2 * shape[1] * factor, np.uint16)
        self._enlarge_args = factor.bit_length() - 1, *shape, *size, room
        self._fine = _FineEdge(placement, config, format) if fine else None

    def make(self, one: _Scratch, frame: Frame, matte: Matte) -> None:
        """Make the matte on the grid and on the frame, from clean opacity on the grid."""
        made = matte.reduced
        opacity, plane = one.source.opacity, self._steps.source(made)
        if self._fitter is None:
            self._placement.copy(opacity, plane)
        else:
            self._fitter.apply(opacity, one.luma, one.chroma, plane)
        self._steps.apply(made)
        target = self.fitted_plane(frame)
        self._enlarge(target.shape, made, target, *self._enlarge_args)
        if self._fine is not None:
            self._fine.fit(frame, target)

    def fitted_plane(self, frame: Frame) -> Array:
        """Return a (H, W) uint8 plane for the matte on the frame, before its edge is moved."""
        alpha = frame.planes.alpha
        return alpha if self._fine is None else self._fine.steps.source(alpha)

    def finish(self, frame: Frame, matte: Matte) -> None:
        """Finish a matte whose edge is fitted on the frame, once it is steadied."""
        if self._fine is not None:
            self._fine.steps.apply(frame.planes.alpha)
            self._fine.reducer.reduce(frame.planes.alpha, matte.reduced)


def _grid_chroma(format: FrameFormat) -> Shape:
    """Return (rows, columns) of the chroma on the grid."""
    if analysis_factor(format.width, format.height) > 1:
        return analysis_shape(format.width, format.height)
    return format.chroma_shape[:2]


class _FineEdge:
    """Steps on the frame, where the edge is fitted there."""

    def __init__(self, placement: Placement, config: MatteConfig, format: FrameFormat) -> None:
        shape, chroma_shape = format.luma_shape, format.chroma_shape[:2]
        self._picture = _EightBits(placement, format, shape, chroma_shape)
        self._fitter = EdgeFitter(placement, shape, chroma_shape, spacing=2)
        self.steps = ContourSteps(placement, config, shape, smooths=False, lines=format.height)
        self.reducer = alpha_reducer(format, placement)

    def fit(self, frame: Frame, plane: Array) -> None:
        """Fit the edge in a plane."""
        picture = self._picture.of(frame.planes.luma, frame.planes.chroma)
        self._fitter.apply(plane, *picture, plane)


class _EightBits:
    """Converts pictures of one shape to 8 bits."""

    def __init__(
        self, placement: Placement, format: FrameFormat, shape: Shape, chroma_shape: Shape
    ) -> None:
        self._is_deep = format.bit_depth > 8
        if self._is_deep:
            self._convert = placement.operation("matte", "eight_bits")
            self._luma = placement.xp.empty(shape, np.uint8)
            self._chroma = placement.xp.empty((*chroma_shape, 2), np.uint8)

    def of(self, luma: Array, chroma: Array) -> tuple[Array, Array]:
        """Return luma and chroma in 8 bits; unchanged if they are already."""
        if not self._is_deep:
            return luma, chroma
        for plane, out in ((luma, self._luma), (chroma, self._chroma)):
            size = plane.shape[0], plane.size // plane.shape[0]
            self._convert(size, plane, out, *size)
        return self._luma, self._chroma
