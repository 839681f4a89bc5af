"""Darkening of the background."""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.analysis.cpu import Samples
from bgsoft.composite.blend import Background
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["DimBackground", "darken"]


class DimBackground(Background):
    """The frame's own picture with part of its light taken away.

    Luma moves towards black and chroma towards neutral, both in proportion, so hue and saturation
    stay.

    Args:
        format: Format of every frame.
        percent: Light taken away, 0–100.
    """

    def __init__(self, format: FrameFormat, percent: float) -> None:
        self._percent = percent
        self._black, self._neutral = format.luma_range[0], format.chroma_neutral
        self._luma: Samples = np.empty(format.luma_shape, format.dtype)
        self._chroma: Samples = np.empty(format.chroma_shape, format.dtype)

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        darken(frame.luma, self._black, self._percent, self._luma)
        rows = len(frame.chroma)
        chroma, target = frame.chroma.reshape(rows, -1), self._chroma.reshape(rows, -1)
        darken(chroma, self._neutral, self._percent, target)

    def planes(self) -> tuple[Samples, Samples]:
        return self._luma, self._chroma


def darken(source: Samples, towards: int, percent: float, target: Samples) -> None:
    """``target ← source + (towards − source) · percent / 100``, rounded to code values.

    Args:
        source: (h, w) uint8, or uint16 with 10 bits in the high ones.
        towards: The sample that no light leaves: black, or neutral chroma.
        percent: Light taken away, 0–100.
        target: As ``source``, overwritten.
    """
    keep = 1 - percent / 100
    offset = towards * (1 - keep)
    if source.dtype == np.uint8:
        # Never negative, so the absolute value that it takes is the value.
        cv2.convertScaleAbs(source, dst=target, alpha=keep, beta=offset)
    else:
        # Half a code value more makes the cut-off a rounding.
        cv2.addWeighted(source, keep, source, 0, offset + 32, dst=target)
        np.bitwise_and(target, 0xFFC0, out=target)
