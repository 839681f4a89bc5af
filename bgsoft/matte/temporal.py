"""Smoothing of masks over time that does not lag: it acts only where nothing happens."""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.frame import Array

__all__ = ["TemporalFilter"]

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
        self._shape: tuple[int, int] | None = None
        self._luma: Array = np.empty((0, 0), np.uint16)
        self._last_luma: Array = np.empty((0, 0), np.uint16)
        self._fresh = True

    def reset(self) -> None:
        """Forget earlier masks; the next one is taken as it is."""
        self._fresh = True

    def apply(self, mask: Array, luma: Array) -> Array:
        """Average one mask into the state.

        Args:
            mask: (h, w) float32 in [0, 1].
            luma: (gh, gw) uint8, the picture the mask belongs to.

        Returns:
            (h, w) float32, the smoothed mask; overwritten by the next call.
        """
        if self._shape != mask.shape:
            self._allocate(mask.shape)
        if self._floor < 1.0:
            self._see(luma)
        if self._fresh or self._floor >= 1.0:
            np.copyto(self._state, mask)
            self._fresh = False
        else:
            self._blend(mask)
        # A model that overflows must not spoil every frame after.
        cv2.patchNaNs(self._state, 0.0)
        return self._state

    def _see(self, luma: Array) -> None:
        """Keep the last picture's window sums and take this one's."""
        self._luma, self._last_luma = self._last_luma, self._luma
        height, width = self._small_luma.shape
        cv2.resize(luma, (width, height), dst=self._small_luma, interpolation=cv2.INTER_LINEAR)
        window = (_WINDOW, _WINDOW)
        cv2.boxFilter(self._small_luma, cv2.CV_16U, window, dst=self._luma, normalize=False)

    def _blend(self, mask: Array) -> None:
        """Move the state towards the mask: much where something happens, little elsewhere."""
        window = (_WINDOW, _WINDOW)
        cv2.subtract(mask, self._state, dst=self._delta)
        cv2.convertScaleAbs(self._delta, dst=self._change, alpha=255.0)
        cv2.blur(self._change, window, dst=self._change)
        cv2.LUT(self._change, self._mask_ramp, dst=self._change)
        cv2.absdiff(self._luma, self._last_luma, dst=self._luma_delta)
        steps = _LUMA_STEPS / (_WINDOW * _WINDOW)
        cv2.convertScaleAbs(self._luma_delta, dst=self._motion, alpha=steps)
        cv2.LUT(self._motion, self._luma_ramp, dst=self._motion)
        cv2.max(self._change, self._motion, dst=self._change)
        scale = (1.0 - self._floor) / 255.0
        np.multiply(self._change, np.float32(scale), out=self._weight)
        np.add(self._weight, np.float32(self._floor), out=self._weight)
        cv2.multiply(self._delta, self._weight, dst=self._delta)
        cv2.add(self._state, self._delta, dst=self._state)

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._state = np.empty(shape, np.float32)
        self._delta = np.empty(shape, np.float32)
        self._weight = np.empty(shape, np.float32)
        self._small_luma = np.empty(shape, np.uint8)
        self._luma = np.empty(shape, np.uint16)
        self._last_luma = np.empty(shape, np.uint16)
        self._luma_delta = np.empty(shape, np.uint16)
        self._change = np.empty(shape, np.uint8)
        self._motion = np.empty(shape, np.uint8)
        self._fresh = True
