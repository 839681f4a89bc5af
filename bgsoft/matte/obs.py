"""The matte of the OBS background-removal filter, for its look in a file renderer.

The order and the constants are those of obs-backgroundremoval 1.2 (steps 1 to 7 below), working on
an 8-bit *background* mask (255 = background). Known properties that come with it: holes in the
background's outline are filled, so gaps between arm and body close; persons surrounded by
background on all sides vanish; a newly covered place stays background for a few frames; the
feather reaches into the person. Style soft has none of them.

How our settings map to its own:

====================  ==========================================================================
``threshold``         threshold; None is "enable threshold" off
``min_area``          contour filter, a fraction of the mask's area
``smooth``            smooth contour
``temporal``          1 − temporal smooth factor; both ends switch it off, as they do there
``expand_pct``        mask expansion, rounded to whole frame pixels
``feather_pct``       feather: its kernel of ``40 · feather`` pixels is this share of the frame
                      height, so 3.7 % at 1080 lines (or 5.6 % at 720) is its feather of 1
``softness, refine``  nothing: the mask is binary
====================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_factor
from bgsoft.analysis.cpu import AreaReducer
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import MatteStage
from bgsoft.matte.plan import ObsPlan
from bgsoft.settings.config import MatteConfig
from bgsoft.workers import Workers


class ObsMask:
    """Steps 1 to 4, on masks of the model's size, one after the other."""

    def __init__(self, plan: ObsPlan) -> None:
        self._plan = plan
        self._shape: tuple[int, int] | None = None
        self._has_last = False

    def reset(self) -> None:
        """Forget earlier masks."""
        self._has_last = False

    def apply(self, mask: Array) -> Array:
        """The background mask of a raw mask: (h, w) uint8; overwritten by the next call."""
        if self._shape != mask.shape:
            self._shape = mask.shape
            self._current, self._last, self._blurred = np.empty((3, *mask.shape), np.uint8)
            self._has_last = False
        current, last = self._current, self._last
        # 1. Binary background, or the inverted mask where no threshold is set.
        cv2.convertScaleAbs(mask, dst=current, alpha=255.0)
        if self._plan.threshold is None:
            cv2.bitwise_not(current, dst=current)
        else:
            # "fg < limit" is "not fg > limit − 1".
            limit = int(self._plan.threshold * 255)
            cv2.threshold(current, limit - 1, 255, cv2.THRESH_BINARY_INV, dst=current)
        # 2. Recursive average; kept before the contours are filtered.
        share = self._plan.share
        if share is not None:
            if self._has_last:
                cv2.addWeighted(current, share, last, 1.0 - share, 0.0, dst=current)
            np.copyto(last, current)
            self._has_last = True
        # 3. Only large outer contours of whatever is not zero, filled.
        if self._plan.contour_share > 0.0:
            contours, _ = cv2.findContours(current, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
            minimum = self._plan.contour_share * current.size
            large = [contour for contour in contours if cv2.contourArea(contour) > minimum]
            current.fill(0)
            cv2.drawContours(current, large, -1, 255, cv2.FILLED)
        # 4. Smoother contour.
        side = self._plan.smooth_side
        if not side:
            return current
        cv2.stackBlur(current, (side, side), dst=self._blurred)
        return self._blurred


class CpuObsMatte(MatteStage):
    """Style obs, with NumPy and OpenCV. Steps 1 to 4 in order, the rest of a batch side by side.

    A held frame gets the last matte unchanged.

    Args:
        config: What to do; ``softness`` and ``refine`` have no meaning here.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, workers: Workers | None = None
    ) -> None:
        plan = ObsPlan.of(config, format)
        self._mask = ObsMask(plan)
        self._workers = workers or Workers()
        self._lanes = [_Scratch(plan, format) for _ in range(self._workers.lanes)]

    def reset(self) -> None:
        super().reset()
        self._mask.reset()

    def _refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        for mask, lane in zip(masks, self._lanes, strict=False):
            if mask is not None:
                self._held = self._mask.apply(mask)
            lane.mask = self._held.copy()
        reduced = self._workers.map(lambda lane, frame: self._lanes[lane].finish(frame), frames)
        return [
            Matte(alpha=frame.planes.alpha, reduced=matte, held=mask is None)
            for mask, frame, matte in zip(masks, frames, reduced, strict=True)
        ]


class _Scratch:
    """Steps 5 to 7, with the full-frame buffers of one frame."""

    def __init__(self, plan: ObsPlan, format: FrameFormat) -> None:
        self._plan = plan
        self._kernel = np.ones((3, 3), np.uint8)
        height, width = shape = format.luma_shape
        self._background, self._scratch = np.empty((2, *shape), np.uint8)
        self._reducer = AreaReducer(height, width, analysis_factor(width, height), "uint8")
        self._reduced = np.empty(self._reducer.shape, np.uint8)
        self.mask: Array
        """(h, w) uint8, the background mask of the model's size."""

    def finish(self, frame: Frame) -> Array:
        """Write the frame's matte; returns it on the grid."""
        plan, background = self._plan, self._background
        # 5. Enlarge; a smoothed mask becomes binary again.
        size = background.shape[::-1]
        cv2.resize(self.mask, size, dst=background, interpolation=cv2.INTER_LINEAR)
        if plan.smooth_side:
            cv2.threshold(background, 128, 255, cv2.THRESH_BINARY, dst=background)
        # 6. Grow the person by eroding the background, or the other way round.
        grow = cv2.MORPH_ERODE if plan.dilation_px > 0 else cv2.MORPH_DILATE
        self._morph(grow, abs(plan.dilation_px))
        # 7. Feather: grow the background by a third of the kernel, then average over it.
        side = plan.feather_side
        if side:
            self._morph(cv2.MORPH_DILATE, side // 3)
            cv2.blur(self._background, (side, side), dst=self._scratch)
            self._swap()
        cv2.bitwise_not(self._background, dst=frame.planes.alpha)
        self._reducer.reduce(frame.planes.alpha, self._reduced)
        return self._reduced

    def _morph(self, operation: int, times: int) -> None:
        if times:
            background, scratch = self._background, self._scratch
            cv2.morphologyEx(background, operation, self._kernel, dst=scratch, iterations=times)
            self._swap()

    def _swap(self) -> None:
        self._background, self._scratch = self._scratch, self._background
