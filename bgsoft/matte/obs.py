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
from numpy.typing import NDArray

from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.matte.base import MatteStage
from bgsoft.matte.plan import ObsPlan
from bgsoft.ops.resize import Resized
from bgsoft.ops.sides import Side
from bgsoft.settings.config import MatteConfig
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_RUN = 32
"""Samples that one thread of the box filter makes."""
_SQUARE = np.ones((3, 3), np.uint8)


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


class ObsEdge:
    """Steps 5 to 7, at the frame's size."""

    def __init__(self, side: Side, plan: ObsPlan, format: FrameFormat) -> None:
        self._side, self._plan = side, plan
        self._shape = shape = format.luma_shape
        self._background, self._scratch = (side.xp.empty(shape, np.uint8) for _ in range(2))
        self._enlarged = Resized(side, shape, np.uint8)
        self._enlarge = side.operation("morphology", "resize_plane")
        if side.on_device:
            self._sums = side.xp.empty(shape if plan.feather_side else (0, 0), np.int32)
            self._extreme, self._row_sums, self._column_means = (
                side.operation("morphology", name)
                for name in ("extreme", "row_sums", "column_means")
            )
        self._reducer = alpha_reducer(format, side)

    def apply(self, mask: Array, alpha: Array, reduced: Array) -> None:
        """Make a matte, and its reduction to the grid.

        Args:
            mask: (h, w) uint8, the background of the model's size.
            alpha: (H, W) uint8, written.
            reduced: (gh, gw) uint8, written.
        """
        plan, shape = self._plan, self._shape
        enlarged = self._enlarged.arguments(mask, shape)
        self._enlarge(shape, *enlarged, None, plan.smooth_side > 0, self._background, *shape)
        self._morph(abs(plan.dilation_px), largest=plan.dilation_px < 0)
        if plan.feather_side:
            self._morph(plan.feather_side // 3, largest=True)
            self._blur(plan.feather_side)
        self._side.xp.invert(self._background, out=alpha)
        self._reducer.reduce(alpha, reduced)

    def _morph(self, reach: int, *, largest: bool) -> None:
        """Extreme over squares: iterated 3×3 is one square, and that is rows, then columns."""
        if reach and not self._side.on_device:
            operation = cv2.MORPH_DILATE if largest else cv2.MORPH_ERODE
            background, scratch = self._background, self._scratch
            cv2.morphologyEx(background, operation, _SQUARE, dst=scratch, iterations=reach)
            self._swap()
        for along_rows in (1, 0) if reach and self._side.on_device else ():
            planes = self._background, self._scratch
            self._extreme(self._shape, *planes, reach, int(largest), along_rows, *self._shape)
            self._swap()

    def _blur(self, width: int) -> None:
        if not self._side.on_device:
            cv2.blur(self._background, (width, width), dst=self._scratch)
            self._swap()
            return
        rows, columns = self._shape
        sizes = (width // 2, *self._shape)
        self._row_sums((rows, -(-columns // _RUN)), self._background, self._sums, *sizes)
        self._column_means((-(-rows // _RUN), columns), self._sums, self._background, *sizes)

    def _swap(self) -> None:
        self._background, self._scratch = self._scratch, self._background


class _Crossing:
    """Small masks to the host and back, through pinned memory; the host waits for them.

    Args:
        side: Where masks are; on the host they are there.
        device: Whose copies are counted.
    """

    def __init__(self, side: Side, device: CudaDevice | None) -> None:
        self._side, self._device = side, device
        self._shape: tuple[int, int] | None = None

    def download(self, mask: Array) -> NDArray[np.float32]:
        """The mask on the host; overwritten by the next."""
        if self._device is None:
            host: NDArray[np.float32] = mask
            return host
        if self._shape != mask.shape:
            from bgsoft.cuda.device import pinned_array

            self._shape = mask.shape
            self._mask: NDArray[np.float32] = pinned_array(mask.shape, np.float32)
            self._staged: NDArray[np.uint8] = pinned_array(mask.shape, np.uint8)
            self._small = self._side.xp.empty(mask.shape, np.uint8)
        stream = self._side.xp.cuda.get_current_stream()
        mask.data.copy_to_host_async(self._mask.ctypes.data, self._mask.nbytes, stream)
        stream.synchronize()
        self._device.copies.add_d2h(self._mask.nbytes)
        return self._mask

    def upload(self, mask: NDArray[np.uint8]) -> Array:
        """(h, w) uint8 where masks are; on a device overwritten by the next."""
        if self._device is None:
            # The next mask is made in the same plane, while this one may still be held.
            return mask.copy()
        # The last upload has ended: it came before the download that was waited for.
        np.copyto(self._staged, mask)
        stream = self._side.xp.cuda.get_current_stream()
        source, size = self._staged.ctypes.data, self._staged.nbytes
        self._small.data.copy_from_host_async(source, size, stream)
        self._device.copies.add_h2d(size)
        return self._small


class ObsMatte(MatteStage):
    """Style obs. Steps 1 to 4 in order, the rest of a batch side by side on the host.

    For a device steps 1 to 4, which follow contours on the small mask, are done on the host, too.
    So every mask crosses PCIe twice (256 kB down and 64 kB up for a mask of 256×256, counted in the
    device's meter), and the host waits for it. Everything of frame size stays on the device.

    A held frame gets the last matte unchanged.

    Args:
        side, format, workers, batch: See :class:`MatteStage`.
        config: What to do; ``softness`` and ``refine`` have no meaning here.
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
        plan = ObsPlan.of(config, format)
        self._mask = ObsMask(plan)
        self._crossing = _Crossing(side, device)
        self._edges = [ObsEdge(side, plan, format) for _ in range(workers.lanes)]

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
