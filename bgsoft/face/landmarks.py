"""The squares that the landmark model is shown, and the filter that smooths its landmarks.

The filter follows G. Casiez, N. Roussel and D. Vogel, "1 € Filter: A Simple Speed-based Low-pass
Filter for Noisy Input in Interactive Systems", CHI 2012: a first-order low-pass whose cutoff grows
with the signal's speed, itself low-passed. The mean speed of a face's points is less noisy than
each one's own. Speeds up to that of noise do not count.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import SQUARE_FALL, SQUARE_SCALE
from bgsoft.face.geometry import Box, Roi, face_size, middle
from bgsoft.records import NamedTuple

LANDMARKS = 468
"""Points of a face."""
_PLAY = 0.07
"""A square stays until its centre, angle or side has changed by more than this (parts of the side;
radians; part of the side), as landmarks change a little with the square."""


def square_of(box: Box, angle: float) -> Roi:
    """The square for a detected face."""
    (x, y), size = middle(box), face_size(box)
    fall = SQUARE_FALL * size
    return Roi(x - fall * math.sin(angle), y + fall * math.cos(angle), SQUARE_SCALE * size, angle)


class Mesh(NamedTuple):
    """The landmark model's answer for one square."""

    points: NDArray[np.floating]
    """(3, 468): rows of x, y and z, frame pixels; z in the same scale."""
    presence: float
    """How probably the square holds a face, 0–1."""


def steadied(last: Roi, roi: Roi) -> Roi:
    """Return the last square, or the new one where that differs by more than the play."""
    changes = (
        (roi.x - last.x) / last.side,
        (roi.y - last.y) / last.side,
        roi.side / last.side - 1,
        math.remainder(roi.angle - last.angle, math.tau),
    )
    return last if max(map(abs, changes)) <= _PLAY else roi


MIN_CUTOFF_HZ, BETA, REST_SPEED, SPEED_CUTOFF_HZ = 0.5, 80.0, 0.1, 1.0
"""Cutoff at rest; Hz of it gained per unit of the points' mean speed; the speed up to which it
counts as none, in face sizes a second; and the cutoff of the low-pass on the speed."""


class OneEuro:
    """Smooths the coordinates of points that are sampled together."""

    def __init__(self) -> None:
        self._value: NDArray[np.float64] | None = None
        self._speed: NDArray[np.float64] = np.zeros(0)

    def update(
        self, value: NDArray[np.floating], dt_seconds: float, extent: float, rest_part: float = 1.0
    ) -> NDArray[np.float64]:
        """The next sample smoothed, (D, N) float64.

        Args:
            value: (D, N) coordinates of N points, the same shape in every call; finite.
            dt_seconds: Time since the last sample, above 0.
            extent: Size of what the points belong to, above 0, in units of ``value``.
            rest_part: Multiplies the cutoff at rest: below 1 for noisier samples.
        """
        if self._value is None:
            self._value = np.array(value, np.float64)
            self._speed = np.zeros(len(self._value))
            return self._value
        turn = 2.0 * math.pi * dt_seconds
        step = value - self._value
        # The part of a new sample: 1 / (1 + tau / dt) with tau = 1 / (2 pi cutoff).
        part = turn * SPEED_CUTOFF_HZ / (1.0 + turn * SPEED_CUTOFF_HZ)
        self._speed += (step.mean(axis=1) / (dt_seconds * extent) - self._speed) * part
        fast = max(0.0, math.hypot(*self._speed.tolist()) - REST_SPEED)
        angle = turn * (rest_part * MIN_CUTOFF_HZ + BETA * fast)
        self._value = self._value + angle / (angle + 1.0) * step
        return self._value
