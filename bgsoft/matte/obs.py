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
from typing import TYPE_CHECKING

import cv2
import numpy as np

from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import MatteStage
from bgsoft.matte.plan import ObsPlan
from bgsoft.matte.steps import steps_of
from bgsoft.ops.sides import Side
from bgsoft.settings.config import MatteConfig
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


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


class ObsMatte(MatteStage):
    """Style obs. Steps 1 to 4 in order, the rest of a batch side by side on the host.

    For a device steps 1 to 4, which follow contours on the small mask, are done on the host, too.
    So every mask crosses PCIe twice (256 kB down and 64 kB up for a mask of 256×256, counted in the
    device's meter), and the host waits for it. Everything of frame size stays on the device.

    A held frame gets the last matte unchanged.

    Args:
        side: Where the frames are.
        config: What to do; ``softness`` and ``refine`` have no meaning here.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
        batch: Frames at a time.
        device: Whose copies are counted; None: on the host.
    """

    def __init__(
        self,
        side: Side,
        config: MatteConfig,
        format: FrameFormat,
        workers: Workers,
        batch: int,
        device: CudaDevice | None,
    ) -> None:
        super().__init__(side, format, workers, batch)
        plan, steps = ObsPlan.of(config, format), steps_of(side)
        self._mask = ObsMask(plan)
        self._crossing = steps.Crossing(device)
        self._edges = [steps.ObsEdge(plan, format) for _ in range(workers.lanes)]

    def reset(self) -> None:
        super().reset()
        self._mask.reset()

    def _refine(
        self,
        masks: Sequence[Array | None],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        mattes: Sequence[Matte],
    ) -> None:
        for part in self._workers.parts(len(masks)):
            backgrounds = []
            for mask in masks[part]:
                if mask is not None:
                    down = self._crossing.download(mask)
                    self._background = self._crossing.upload(self._mask.apply(down))
                backgrounds.append(self._background)
            self._workers.map(self._make, backgrounds, mattes[part])

    def _make(self, lane: int, background: Array, matte: Matte) -> None:
        self._edges[lane].apply(background, matte.alpha, matte.reduced)
