"""Steadies an edge that is fitted on the frame: the fit follows each picture's noise."""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.frame import Array
from bgsoft.matte.plan import MattePlan

_STRIP_ROWS = 64
"""Rows of the frame that are worked on together: they stay in the cache."""


class Steadier:
    """Averages mattes of the frame's size over time, in order, where the picture stands still.

    ``state += (1 − strength) · (alpha − state)``, but never further from alpha than the plan's
    reach, which is 0 where the picture moves. Nor further than alpha is from 0 or 255: what is
    clear or opaque stays so.
    """

    def __init__(self, plan: MattePlan) -> None:
        temporal = plan.temporal
        self._temporal = temporal
        self._window = (temporal.window, temporal.window)
        self._reaches = temporal.reach
        self._factor = factor = plan.factor
        rows, columns = plan.shape
        self._sums, self._last_sums = np.zeros((2, rows, columns), np.uint16)
        self._luma_delta = np.empty(plan.shape, np.uint16)
        self._change = np.empty(plan.shape, np.uint8)
        self._reach = np.empty(rows * columns * factor * factor, np.uint8)
        self._strips = np.empty((2, _STRIP_ROWS * columns * factor), np.uint8)
        self._state = np.empty(plan.format.luma_shape, np.uint8)

    def apply(self, alpha: Array, luma: Array, *, fresh: bool) -> None:
        """Steady the matte of the next frame.

        Args:
            alpha: (H, W) uint8, replaced.
            luma: (gh, gw) uint8, the picture.
            fresh: Earlier frames don't count.
        """
        self._sums, self._last_sums = self._last_sums, self._sums
        cv2.boxFilter(luma, cv2.CV_16U, self._window, dst=self._sums, normalize=False)
        if not fresh:
            self._blend(alpha)
        np.copyto(self._state, alpha)

    def _blend(self, alpha: Array) -> None:
        left, top, width, height = cv2.boundingRect(alpha)
        if width == 0:
            return
        factor, change = self._factor, self._change
        cv2.absdiff(self._sums, self._last_sums, dst=self._luma_delta)
        cv2.convertScaleAbs(self._luma_delta, dst=change, alpha=self._temporal.luma_scale)
        cv2.LUT(change, self._reaches, dst=change)
        # A cell more on each side, which enlarging looks at.
        y, x = max(0, top // factor - 1), max(0, left // factor - 1)
        cells = change[y : (top + height) // factor + 2, x : (left + width) // factor + 2]
        size = cells.shape[1] * factor, cells.shape[0] * factor
        reach = self._reach[: size[0] * size[1]].reshape(size[::-1])
        cv2.resize(cells, size, dst=reach, interpolation=cv2.INTER_LINEAR)
        y, x = y * factor, x * factor
        for first in range(top, top + height, _STRIP_ROWS):
            rows = slice(first, min(first + _STRIP_ROWS, top + height))
            part = np.s_[rows, left : left + width]
            shape = rows.stop - rows.start, width
            low, high = self._strips[:, : shape[0] * width].reshape(2, *shape)
            now, state = alpha[part], self._state[part]
            allowed = reach[rows.start - y : rows.stop - y, left - x : left - x + width]
            cv2.min(allowed, now, dst=allowed)
            cv2.bitwise_not(now, dst=low)
            cv2.min(allowed, low, dst=allowed)
            cv2.subtract(now, allowed, dst=low)
            cv2.add(now, allowed, dst=high)
            share = self._temporal.floor
            cv2.addWeighted(state, 1.0 - share, now, share, 0.0, dst=now)
            cv2.max(now, low, dst=now)
            cv2.min(now, high, dst=now)
