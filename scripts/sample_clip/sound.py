"""Make the sample clip's sound: a soft plucked tune, and a click at every whole second."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Wave = npt.NDArray[np.float64]

SAMPLE_RATE: Final = 48_000

_TUNE: Final = (
    0, 7, 12, 16, 14, 12, 7, 4, 9, 16, 12, 7,
    5, 9, 12, 16, 7, 11, 14, 19, 16, 12, 7, 12,
)  # fmt: skip
"""Semitones above A3, four to the second, on the half-beats."""

_PEAK: Final = 0.6


def synthesise(duration_seconds: float) -> FloatArray:
    """Return stereo sound, (2, samples) float32 in -1..1, at ``SAMPLE_RATE``."""
    sound = np.zeros((2, round(duration_seconds * SAMPLE_RATE)))
    for index, semitones in enumerate(_TUNE):
        note = 0.5 * _pluck(220.0 * 2.0 ** (semitones / 12.0))
        _add(sound, note, 0.125 + 0.25 * index, 0.35 * np.sin(1.3 * index))
    for second in range(int(duration_seconds)):
        _add(sound, _click(), float(second), 0.0)
    fade = np.clip((duration_seconds - np.arange(sound.shape[1]) / SAMPLE_RATE) / 0.3, 0.0, 1.0)
    sound *= _PEAK / np.abs(sound).max() * fade
    return sound.astype(np.float32)


def _pluck(frequency: float) -> Wave:
    """Return a plucked tone: harmonics of which the higher die sooner."""
    t = np.arange(round(1.2 * SAMPLE_RATE)) / SAMPLE_RATE
    partials = [
        np.sin(2 * np.pi * frequency * n * t) * np.exp(-t * (2.2 + 1.6 * n)) / n**1.6
        for n in range(1, 7)
    ]
    return np.asarray(np.sum(partials, axis=0) * np.clip(t / 0.004, 0.0, 1.0), np.float64)


def _click() -> Wave:
    """Return a short, sharp tick, loudest at its first millisecond."""
    t = np.arange(round(0.05 * SAMPLE_RATE)) / SAMPLE_RATE
    tones = np.sin(2 * np.pi * 2400.0 * t) + 0.6 * np.sin(2 * np.pi * 3900.0 * t)
    return np.asarray(1.1 * tones * np.exp(-t / 0.006), np.float64)


def _add(sound: Wave, wave: Wave, at_seconds: float, pan: float) -> None:
    """Mix a mono wave into stereo sound, pan -1 (left) to 1 (right), at equal power."""
    start = round(at_seconds * SAMPLE_RATE)
    part = wave[: max(0, sound.shape[1] - start)]
    angle = (pan + 1.0) * np.pi / 4.0
    sound[0, start : start + len(part)] += np.cos(angle) * part
    sound[1, start : start + len(part)] += np.sin(angle) * part
