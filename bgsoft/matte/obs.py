"""The matte of the OBS background-removal filter, in a file renderer.

The order and the constants are those of obs-backgroundremoval 1.2 (steps 1 to 7 below), which works
on an 8-bit *background* mask (255 = background). Its known properties are kept, which style soft
does not have:

- Holes in the background's outline are filled, so gaps between arm and body close.
- Persons surrounded by background on all sides vanish.
- A newly covered place stays background for a few frames.
- The feather reaches into the person.

Our settings correspond to its own:

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

from typing import TYPE_CHECKING

import cv2
import numpy as np

from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.frame import Array, FrameFormat, Matte
from bgsoft.matte.base import MatteBatch, MatteSetup, MatteStage
from bgsoft.ops.placement import Placement
from bgsoft.ops.resize import Resized
from bgsoft.settings.config import MatteConfig

if TYPE_CHECKING:
    pass

_SQUARE = np.ones((3, 3), np.uint8)


def _odd(value: float) -> int:
    """Return ``int(value)``, or one more if that is even."""
    return int(value) | 1


class ObsMask:
    """Steps 1 to 4, on masks of the model's size, in order.

    Without a threshold the edge is not processed.
    """

    def __init__(self, config: MatteConfig) -> None:
        threshold, share = config.threshold, 1.0 - config.temporal
        shapes = threshold is not None
        self._threshold = threshold
        self._share = share if threshold is None else max(share, threshold)
        self._averages = 0.0 < share < 1.0
        self._contour_share = config.min_area if shapes and config.min_area < 1.0 else 0.0
        self._smooth_side = smooth_side(config)
        self._last: Array | None = None

    def reset(self) -> None:
        """Forget earlier masks."""
        self._last = None

    def apply(self, mask: Array) -> Array:
        """Return the background mask of a raw mask: (h, w) uint8."""
        # 1. Binary background, or the inverted mask where no threshold is set.
        current = cv2.convertScaleAbs(mask, alpha=255.0)
        if self._threshold is None:
            cv2.bitwise_not(current, dst=current)
        else:
            # "fg < limit" is "not fg > limit − 1".
            limit = int(self._threshold * 255)
            cv2.threshold(current, limit - 1, 255, cv2.THRESH_BINARY_INV, dst=current)
        # 2. Recursive average; kept before the contours are filtered.
        if self._averages:
            if self._last is not None and self._last.shape == mask.shape:
                rest = 1.0 - self._share
                cv2.addWeighted(current, self._share, self._last, rest, 0.0, dst=current)
            self._last = current.copy()
        # 3. Only large outer contours of nonzero regions, filled.
        if self._contour_share > 0.0:
            contours, _ = cv2.findContours(current, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
            minimum = self._contour_share * current.size
            large = [contour for contour in contours if cv2.contourArea(contour) > minimum]
            current.fill(0)
            cv2.drawContours(current, large, -1, 255, cv2.FILLED)
        # 4. Smoother contour.
        side = self._smooth_side
        return cv2.stackBlur(current, (side, side)) if side else current


def smooth_side(config: MatteConfig) -> int:
    """Return the side of the contour's blur in mask samples; 0: none."""
    if config.threshold is None or config.smooth <= 0:
        return 0
    return _odd(3 + 11 * config.smooth)


class ObsEdge:
    """Steps 5 to 7, at the frame's size."""

    def __init__(self, placement: Placement, config: MatteConfig, format: FrameFormat) -> None:
        self._placement, self._shape = placement, format.luma_shape
        shape, shapes = format.luma_shape, config.threshold is not None
        self._binarises = smooth_side(config) > 0
        # Dilation of the person, and the box of the feather, in pixels.
        self._dilation_px = round(config.expand_pct * format.height / 100.0) if shapes else 0
        feather_px = config.feather_pct * format.height / 100.0 if shapes else 0.0
        self._feather_side = _odd(feather_px) if feather_px > 0 else 0
        self._background, self._scratch = (placement.xp.empty(shape, np.uint8) for _ in range(2))
        self._enlarged = Resized(placement, shape, np.uint8)
        self._enlarge = placement.operation("morphology", "resize_plane")
        if placement.on_device:
            self._sums = placement.xp.empty(shape if self._feather_side else (0, 0), np.int32)
            self._extreme, self._row_sums, self._column_means = (
                placement.operation("morphology", name)
                for name in ("extreme", "row_sums", "column_means")
            )
        self._reducer = alpha_reducer(format, placement)

    def apply(self, mask: Array, alpha: Array, reduced: Array) -> None:
        """Make a matte, and its reduction to the grid.

        Args:
            mask: (h, w) uint8, the background of the model's size.
            alpha: (H, W) uint8, written.
            reduced: (gh, gw) uint8, written.
        """
        shape = self._shape
        enlarged = self._enlarged.arguments(mask, shape)
        self._enlarge(shape, *enlarged, None, self._binarises, self._background, *shape)
        self._morph(abs(self._dilation_px), largest=self._dilation_px < 0)
        if self._feather_side:
            self._morph(self._feather_side // 3, largest=True)
            self._blur(self._feather_side)
        self._placement.xp.invert(self._background, out=alpha)
        self._reducer.reduce(alpha, reduced)

    def _morph(self, reach: int, *, largest: bool) -> None:
        """Take the extreme over squares: iterated 3×3 equals one square, so rows, then columns."""
        if reach and not self._placement.on_device:
            operation = cv2.MORPH_DILATE if largest else cv2.MORPH_ERODE
            background, scratch = self._background, self._scratch
            cv2.morphologyEx(background, operation, _SQUARE, dst=scratch, iterations=reach)
            self._swap()
        for along_rows in (1, 0) if reach and self._placement.on_device else ():
            planes = self._background, self._scratch
            self._extreme(self._shape, *planes, reach, int(largest), along_rows, *self._shape)
            self._swap()

    def _blur(self, width: int) -> None:
        if not self._placement.on_device:
            cv2.blur(self._background, (width, width), dst=self._scratch)
            self._swap()
            return
        numbers = width // 2, *self._shape
        self._row_sums(self._shape, self._background, self._sums, *numbers)
        self._column_means(self._shape, self._sums, self._background, *numbers)

    def _swap(self) -> None:
        self._background, self._scratch = self._scratch, self._background


class ObsMatte(MatteStage):
    """Style obs. Steps 1 to 4 run in order, the others in parallel on the host.

    For a device too, steps 1 to 4 run on the host, because they follow contours on the small mask.
    So every mask crosses PCIe twice (256 kB down and 64 kB up for 256×256, counted in the device's
    meter), and the host waits for it. Everything of frame size stays on the device.

    A held frame gets the last matte unchanged. ``softness`` and ``refine`` have no effect.
    """

    def __init__(self, setup: MatteSetup) -> None:
        super().__init__(setup)
        self._device = setup.device
        self._mask = ObsMask(setup.config)
        self._edges = [
            ObsEdge(self._placement, setup.config, setup.format) for _ in range(setup.pool.lanes)
        ]

    def reset(self) -> None:
        super().reset()
        self._mask.reset()

    def _refine(self, batch: MatteBatch) -> None:
        for part in self._pool.parts(len(batch.masks)):
            backgrounds = []
            for mask in batch.masks[part]:
                if mask is not None:
                    self._background = self._made_of(mask)
                backgrounds.append(self._background)
            self._pool.map(self._make, backgrounds, batch.mattes[part])

    def _made_of(self, mask: Array) -> Array:
        """Copy the background mask to the device of the masks."""
        if self._device is None:
            return self._mask.apply(mask)
        small = self._mask.apply(mask.get())
        self._device.copies.add_d2h(mask.nbytes)
        self._device.copies.add_h2d(small.nbytes)
        return self._placement.xp.asarray(small)

    def _make(self, lane: int, background: Array, matte: Matte) -> None:
        self._edges[lane].apply(background, matte.alpha, matte.reduced)
