"""Landmarks of faces, smoothed over time, where they are asked for.

The filter follows G. Casiez, N. Roussel and D. Vogel, "1 € Filter: A Simple Speed-based Low-pass
Filter for Noisy Input in Interactive Systems", CHI 2012: a first-order low-pass whose cutoff grows
with the signal's speed, itself low-passed. The mean speed of a face's points is less noisy than
each one's own. Speeds up to that of noise do not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face
from bgsoft.face.networks import FaceNetworks, FramePair, Landmarks

_KEPT_SECONDS = 0.12
"""Without landmarks for longer, smoothing begins again."""
_FULL_SIZE = 128.0
"""Frame pixels below which a face is smoothed the more at rest: it is enlarged with its noise."""
_DEFAULT_DT_SECONDS = 1 / 30
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
            extent: Size of the face, above 0, in units of ``value``.
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


class MeshMaker:
    """Makes landmarks of faces; what is asked for of a face in frames in a row is smoothed."""

    def __init__(self, networks: FaceNetworks) -> None:
        self._networks = networks
        self.reset()

    def reset(self) -> None:
        """A new scene begins."""
        self._known: dict[int, tuple[float, OneEuro]] = {}
        """For each face, the time of its last landmarks, and their filter."""

    def make(self, pairs: Sequence[FramePair], faces: Sequence[Sequence[Face]]) -> list[list[Face]]:
        """The faces of consecutive frames with their landmarks; without, where the model sees none.

        Raises:
            InferenceError: The model failed.
        """
        asked = [
            (pair, face.square) for pair, own in zip(pairs, faces, strict=True) for face in own
        ]
        meshes = iter(self._networks.landmarks(asked))
        made = []
        for (frame, _), own in zip(pairs, faces, strict=True):
            seconds = frame.time_seconds
            self._known = {
                id: (last, smoothing)
                for id, (last, smoothing) in self._known.items()
                if 0 <= seconds - last <= _KEPT_SECONDS
            }
            made.append([self._with(face, next(meshes), seconds) for face in own])
        return made

    def _with(self, face: Face, points: Landmarks | None, seconds: float) -> Face:
        if points is None or not np.isfinite(points).all():
            return face
        last, smoothing = self._known.get(face.id, (seconds, OneEuro()))
        self._known[face.id] = seconds, smoothing
        size = max(1.0, float(np.ptp(points[:2], axis=1).max()))
        rest = min(1.0, size / _FULL_SIZE)
        passed = seconds - last or _DEFAULT_DT_SECONDS
        points = smoothing.update(points, passed, size, rest)
        return replace(face, landmarks=np.ascontiguousarray(points.T, np.float32))
