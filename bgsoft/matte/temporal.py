"""Smoothing of masks over time that does not lag: it acts only where nothing happens."""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.frame import Array

__all__ = ["Moment", "TemporalFilter"]

_WINDOW = 5
"""Side of the box, in mask samples, over which changes are averaged: single samples are noise."""
_MASK_CHANGE = (0.15, 0.40)
"""Mean change of the mask at which following starts, and at which it is immediate."""
_LUMA_CHANGE = (1.0, 3.5)
"""Change of the mean of 8-bit luma likewise: where the picture moves, the mask may. The mean of
the window moves with an edge, while noise and fine texture cancel out in it."""
_LUMA_STEPS = 32.0
"""Steps per code value in which that change is counted."""


def _ramp(low: float, high: float) -> Array:
    """256-entry uint8 table rising smoothly from 0 at ``low`` to 255 at ``high``."""
    x = np.clip((np.arange(256) - low) / (high - low), 0.0, 1.0)
    return np.rint(255.0 * x * x * (3.0 - 2.0 * x)).astype(np.uint8)


class Moment:
    """What the temporal filter keeps of one mask, until the next one has been averaged.

    Args:
        shape: (h, w) of the mask.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.state: Array = np.empty(shape, np.float32)
        """(h, w): the smoothed mask."""
        self.luma: Array = np.empty(shape, np.uint8)
        """(h, w): the picture at the mask's size."""
        self.luma_sums: Array = np.empty(shape, np.uint16)
        """(h, w): sums of its luma over the window."""


class TemporalFilter:
    """A recursive average per mask sample whose weight depends on what happens there.

    ``state += w · (mask − state)``, with ``w`` between ``1 − strength`` where both the mask and
    the picture are steady (model noise, flicker) and 1 where either changes over a neighbourhood
    (movement), so that moving edges are followed in the same frame. Differences are compared with
    fixed amounts, never stretched to the frame's own extremes: noise stays small.
    """

    def __init__(self, strength: float) -> None:
        """Prepare the filter.

        Args:
            strength: 0 (off)–1; at 1 a steady place keeps its value until something changes.
        """
        self._floor = 1.0 - strength
        self._mask_ramp = _ramp(_MASK_CHANGE[0] * 255.0, _MASK_CHANGE[1] * 255.0)
        self._luma_ramp = _ramp(*(_LUMA_STEPS * change for change in _LUMA_CHANGE))
        scale, floor = np.float32((1.0 - self._floor) / 255.0), np.float32(self._floor)
        self._mask_weights = self._mask_ramp * scale + floor
        self._luma_weights = self._luma_ramp * scale + floor
        self._shape: tuple[int, int] | None = None

    def see(self, luma: Array, moment: Moment) -> None:
        """Take the picture's window sums. Needs nothing of earlier frames, unlike :meth:`apply`.

        Args:
            luma: (gh, gw) uint8, the picture the mask belongs to.
            moment: Its sums are filled.
        """
        if self._floor < 1.0:
            size = moment.shape[::-1]
            cv2.resize(luma, size, dst=moment.luma, interpolation=cv2.INTER_LINEAR)
            window = (_WINDOW, _WINDOW)
            cv2.boxFilter(moment.luma, cv2.CV_16U, window, dst=moment.luma_sums, normalize=False)

    def apply(self, mask: Array, moment: Moment, last: Moment | None) -> None:
        """Average one mask with those before it.

        Args:
            mask: (h, w) float32 in [0, 1].
            moment: Its picture was seen; its state is filled.
            last: That of the mask before; None: the mask is taken as it is.
        """
        if last is None or self._floor >= 1.0:
            np.copyto(moment.state, mask)
        else:
            self._blend(mask, moment, last)
        # A model that overflows must not spoil every frame after.
        cv2.patchNaNs(moment.state, 0.0)

    def _blend(self, mask: Array, moment: Moment, last: Moment) -> None:
        """Move the state towards the mask: much where something happens, little elsewhere."""
        if self._shape != moment.shape:
            self._allocate(moment.shape)
        delta, change, weight = self._delta, self._change, self._weight
        cv2.absdiff(moment.luma_sums, last.luma_sums, dst=self._luma_delta)
        steps = _LUMA_STEPS / (_WINDOW * _WINDOW)
        cv2.convertScaleAbs(self._luma_delta, dst=change, alpha=steps)
        cv2.LUT(change, self._luma_weights, dst=self._luma_weight)
        cv2.subtract(mask, last.state, dst=delta)
        cv2.convertScaleAbs(delta, dst=change, alpha=255.0)
        cv2.blur(change, (_WINDOW, _WINDOW), dst=change)
        cv2.LUT(change, self._mask_weights, dst=weight)
        cv2.max(weight, self._luma_weight, dst=weight)
        cv2.multiply(delta, weight, dst=delta)
        cv2.add(last.state, delta, dst=moment.state)

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._delta = np.empty(shape, np.float32)
        self._weight = np.empty(shape, np.float32)
        self._luma_weight = np.empty(shape, np.float32)
        self._luma_delta = np.empty(shape, np.uint16)
        self._change = np.empty(shape, np.uint8)
