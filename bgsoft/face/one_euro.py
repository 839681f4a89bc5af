"""The One-Euro filter for points that move together: steady when slow, quick when fast.

After G. Casiez, N. Roussel and D. Vogel, "1 € Filter: A Simple Speed-based Low-pass Filter for
Noisy Input in Interactive Systems", CHI 2012: a first-order low-pass whose cutoff frequency grows
with the speed of the signal, which is itself low-passed. Points of one face share most of their
motion, and their mean speed is far less noisy than each one's own, so that it counts for more; and
speeds up to that of noise count for nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["OneEuro"]


class OneEuro:
    """Smooths the coordinates of points that are sampled together.

    Speeds are in parts of the points' extent a second.

    Args:
        min_cutoff_hz: Cutoff at rest.
        beta: Hz of cutoff gained per unit of the points' common speed.
        own_beta: The same for each coordinate's own speed, the common one taken off.
        rest_speed: Up to here a speed counts as none.
        speed_cutoff_hz: Cutoff of the low-pass on speeds.
    """

    def __init__(
        self,
        min_cutoff_hz: float,
        beta: float,
        own_beta: float,
        rest_speed: float = 0.0,
        speed_cutoff_hz: float = 1.0,
    ) -> None:
        self._min_cutoff = min_cutoff_hz
        self._betas = beta, own_beta
        self._rest_speed = rest_speed
        self._speed_cutoff = speed_cutoff_hz
        self._value: NDArray[np.float64] | None = None
        self._speed = self._step = self._angle = self._sum = np.zeros((0, 0))

    def update(
        self,
        value: NDArray[np.floating],
        dt_seconds: float,
        extent: float,
        rest_part: float = 1.0,
    ) -> NDArray[np.float64]:
        """Filter the next sample.

        Args:
            value: (D, N) coordinates of N points, the same shape in every call; finite.
            dt_seconds: Time since the last sample, above 0.
            extent: Size of what the points belong to, above 0, in units of ``value``.
            rest_part: Multiplies the cutoff at rest: below 1 for noisier samples.

        Returns:
            The smoothed sample, (D, N) float64; belongs to the caller.
        """
        if self._value is None:
            self._value = np.array(value, np.float64)
            self._speed = np.zeros_like(self._value)
            self._step = np.empty_like(self._value)
            self._angle = np.empty_like(self._value)
            self._sum = np.empty_like(self._value)
            return self._value.copy()
        # Results go into buffers: at this size an allocation takes as long as the arithmetic.
        speed, step, angle = self._speed, self._step, self._angle
        np.subtract(value, self._value, out=step)
        np.multiply(step, 1.0 / (dt_seconds * extent), out=angle)
        angle -= speed
        angle *= _part(self._speed_cutoff, dt_seconds)
        speed += angle
        common = np.add.reduce(speed, axis=1, keepdims=True) / speed.shape[1]
        fast = max(0.0, math.hypot(*common.ravel().tolist()) - self._rest_speed)
        np.subtract(speed, common, out=angle)
        np.abs(angle, out=angle)
        angle -= self._rest_speed
        np.maximum(angle, 0.0, out=angle)
        # The part of a new sample: 1 / (1 + tau / dt) with tau = 1 / (2 pi cutoff).
        turn = 2.0 * math.pi * dt_seconds
        angle *= turn * self._betas[1]
        angle += turn * (rest_part * self._min_cutoff + self._betas[0] * fast)
        np.add(angle, 1.0, out=self._sum)
        angle /= self._sum
        angle *= step
        self._value += angle
        return self._value.copy()


def _part(cutoff_hz: float, dt_seconds: float) -> float:
    angle = 2.0 * math.pi * cutoff_hz * dt_seconds
    return angle / (1.0 + angle)
