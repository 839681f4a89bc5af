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

from bgsoft.analysis.base import grid_factor
from bgsoft.analysis.cpu import AreaReducer
from bgsoft.config import MatteConfig
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.workers import Workers

__all__ = ["ObsMatter", "ObsPlan"]


def _odd(value: float) -> int:
    """``int(value)``, one more where that is even."""
    return int(value) | 1


class ObsPlan:
    """What the settings come to, for one frame format.

    Args:
        config: The settings.
        format: Geometry of all frames.
    """

    def __init__(self, config: MatteConfig, format: FrameFormat) -> None:
        self.threshold = config.threshold
        share = 1.0 - config.temporal
        self.keeps_history = 0.0 < share < 1.0
        """Whether earlier masks count."""
        if config.threshold is not None:
            share = max(share, config.threshold)
        self.share = share
        """Weight of a new mask against the earlier ones."""
        self.contour_share = config.min_area
        """Part of the mask that a contour must enclose."""
        self.smooth_side = _odd(3 + 11 * config.smooth) if config.smooth > 0 else 0
        """Side of the contour's blur, mask samples; 0: none."""
        self.shift_px = round(config.expand_pct * format.height / 100.0)
        """By how much the person grows, frame pixels."""
        feather_px = config.feather_pct * format.height / 100.0
        self.feather_side = _odd(feather_px) if feather_px > 0 else 0
        """Side of the feather's kernel, frame pixels; 0: none."""


class ObsMatter:
    """Style obs, with NumPy and OpenCV. Steps 1 to 4 in order, the rest of a batch side by side.

    Args:
        config: What to do; ``softness`` and ``refine`` have no meaning here.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, workers: Workers | None = None
    ) -> None:
        self.plan = ObsPlan(config, format)
        self._workers = workers or Workers()
        self._lanes = [_Lane(self.plan, format) for _ in range(self._workers.lanes)]
        self._mask_shape: tuple[int, int] | None = None
        self._has_last = False
        self._has_mask = False

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._has_last = False
        self._has_mask = False

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """Make the mattes of some frames; see :meth:`bgsoft.matte.base.Matter.refine`.

        A held frame gets the last matte unchanged.
        """
        for mask, lane in zip(masks, self._lanes, strict=False):
            if mask is not None:
                self._held = self.small_mask(mask)
                self._has_mask = True
            elif not self._has_mask:
                raise ValueError("no mask to hold: the first frame must be segmented")
            lane.take(self._held)
        reduced = self._workers.map(self._finish, frames)
        return [
            Matte(alpha=frame.planes.alpha, reduced=matte, held=mask is None)
            for mask, frame, matte in zip(masks, frames, reduced, strict=True)
        ]

    def _finish(self, lane: int, frame: Frame) -> Array:
        return self._lanes[lane].finish(frame.planes.alpha)

    def small_mask(self, mask: Array) -> Array:
        """Steps 1 to 4: (h, w) uint8 background mask at model size."""
        if self._mask_shape != mask.shape:
            self._allocate(mask.shape)
        current, last = self._current, self._last
        # 1. Binary background, or the inverted mask where no threshold is set.
        cv2.convertScaleAbs(mask, dst=current, alpha=255.0)
        if self.plan.threshold is None:
            cv2.bitwise_not(current, dst=current)
        else:
            limit = int(self.plan.threshold * 255)
            # "fg < limit" is "not fg > limit − 1".
            cv2.threshold(current, limit - 1, 255, cv2.THRESH_BINARY_INV, dst=current)
        # 2. Recursive average; kept before the contours are filtered.
        if self.plan.keeps_history:
            if self._has_last:
                share = self.plan.share
                cv2.addWeighted(current, share, last, 1.0 - share, 0.0, dst=current)
            np.copyto(last, current)
            self._has_last = True
        if self.plan.threshold is None:
            return current
        # 3. Only large outer contours of whatever is not zero, filled.
        if 0.0 < self.plan.contour_share < 1.0:
            contours, _ = cv2.findContours(current, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
            minimum = self.plan.contour_share * current.size
            large = [contour for contour in contours if cv2.contourArea(contour) > minimum]
            current.fill(0)
            cv2.drawContours(current, large, -1, 255, cv2.FILLED)
        # 4. Smoother contour.
        if self.plan.smooth_side:
            side = (self.plan.smooth_side, self.plan.smooth_side)
            cv2.stackBlur(current, side, dst=self._blurred)
            return self._blurred
        return current

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._mask_shape = shape
        self._current = np.empty(shape, np.uint8)
        self._last = np.empty(shape, np.uint8)
        self._blurred = np.empty(shape, np.uint8)
        self._has_last = False


class _Lane:
    """Steps 5 to 7, with the full-frame buffers of one frame."""

    def __init__(self, plan: ObsPlan, format: FrameFormat) -> None:
        self._plan = plan
        self._kernel = np.ones((3, 3), np.uint8)
        height, width = format.luma_shape
        self._frame_size = (width, height)
        self._small: Array = np.empty((0, 0), np.uint8)
        self._background = np.empty((height, width), np.uint8)
        self._scratch = np.empty((height, width), np.uint8)
        self._reducer = AreaReducer(height, width, grid_factor(width, height), "uint8")
        self._reduced = np.empty(self._reducer.shape, np.uint8)

    def take(self, mask: Array) -> None:
        """Keep a mask of :meth:`ObsMatter.small_mask`."""
        if self._small.shape != mask.shape:
            self._small = np.empty(mask.shape, np.uint8)
        np.copyto(self._small, mask)

    def finish(self, alpha: Array) -> Array:
        """Write the frame's matte; returns it on the grid."""
        self._to_frame()
        cv2.bitwise_not(self._background, dst=alpha)
        self._reducer.reduce(alpha, self._reduced)
        return self._reduced

    def _to_frame(self) -> None:
        """Steps 5 to 7: fill the full-size background mask."""
        background, scratch = self._background, self._scratch
        # 5. Enlarge; a smoothed mask becomes binary again.
        cv2.resize(self._small, self._frame_size, dst=background, interpolation=cv2.INTER_LINEAR)
        if self._plan.threshold is None:
            return
        if self._plan.smooth_side:
            cv2.threshold(background, 128, 255, cv2.THRESH_BINARY, dst=background)
        # 6. Grow the person by eroding the background, or the other way round.
        if self._plan.shift_px:
            morph = cv2.erode if self._plan.shift_px > 0 else cv2.dilate
            morph(background, self._kernel, dst=scratch, iterations=abs(self._plan.shift_px))
            background, scratch = scratch, background
        # 7. Feather: grow the background by a third of the kernel, then average over it.
        if self._plan.feather_side:
            side = self._plan.feather_side
            if side // 3:
                cv2.dilate(background, self._kernel, dst=scratch, iterations=side // 3)
                background, scratch = scratch, background
            cv2.blur(background, (side, side), dst=scratch)
            background, scratch = scratch, background
        self._background, self._scratch = background, scratch
