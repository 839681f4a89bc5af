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
        # In cells: how far beyond the matte the fit may spread, and one that enlarging looks at.
        spread = 0 if plan.fine is None else 2 * plan.fine.margin
        self._margin = spread // factor + 2
        rows, columns = plan.shape
        self._sums, self._last_sums = np.zeros((2, rows, columns), np.uint16)
        self._luma_delta = np.empty(plan.shape, np.uint16)
        self._change = np.empty(plan.shape, np.uint8)
        self._reach = np.empty(rows * columns * factor * factor, np.uint8)
        self._strips = np.empty((2, _STRIP_ROWS * columns * factor), np.uint8)
        self._state = np.empty(plan.format.luma_shape, np.uint8)

    def apply(self, alpha: Array, luma: Array, matte: Array, *, fresh: bool) -> None:
        """Steady the matte of the next frame.

        Args:
            alpha: (H, W) uint8, replaced.
            luma: (gh, gw) uint8, the picture.
            matte: (gh, gw) uint8, the matte before the fit.
            fresh: Earlier frames don't count.
        """
        self._sums, self._last_sums = self._last_sums, self._sums
        cv2.boxFilter(luma, cv2.CV_16U, self._window, dst=self._sums, normalize=False)
        if not fresh:
            self._blend(alpha, matte)
        np.copyto(self._state, alpha)

    def _blend(self, alpha: Array, matte: Array) -> None:
        left, top, width, height = cv2.boundingRect(matte)
        factor, margin, change = self._factor, self._margin, self._change
        cv2.absdiff(self._sums, self._last_sums, dst=self._luma_delta)
        cv2.convertScaleAbs(self._luma_delta, dst=change, alpha=self._temporal.luma_scale)
        cv2.LUT(change, self._reaches, dst=change)
        y, x = max(0, top - margin), max(0, left - margin)
        cells = change[y : top + height + margin, x : left + width + margin]
        size = cells.shape[1] * factor, cells.shape[0] * factor
        reach = self._reach[: size[0] * size[1]].reshape(size[::-1])
        cv2.resize(cells, size, dst=reach, interpolation=cv2.INTER_LINEAR)
        top, left = y * factor, x * factor
        now, state = (plane[top:, left:][: size[1], : size[0]] for plane in (alpha, self._state))
        height, width = now.shape
        for first in range(0, height, _STRIP_ROWS):
            part = np.s_[first : first + _STRIP_ROWS]
            self._blend_strip(now[part], state[part], reach[part, :width])

    def _blend_strip(self, now: Array, state: Array, reach: Array) -> None:
        low, high = self._strips[:, : now.size].reshape(2, *now.shape)
        reach = reach[: len(now)]
        cv2.min(reach, now, dst=reach)
        cv2.bitwise_not(now, dst=low)
        cv2.min(reach, low, dst=reach)
        cv2.subtract(now, reach, dst=low)
        cv2.add(now, reach, dst=high)
        share = self._temporal.floor
        cv2.addWeighted(state, 1.0 - share, now, share, 0.0, dst=now)
        cv2.max(now, low, dst=now)
        cv2.min(now, high, dst=now)
