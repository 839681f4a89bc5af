"""Darkening of the background."""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.analysis.cpu import Samples
from bgsoft.composite.blend import STRIP_ROWS, Background
from bgsoft.frame import Frame, FrameFormat, Matte, PixelLayout, Reduced

__all__ = ["DimBackground"]


class DimBackground(Background):
    """The frame's own picture with part of its light taken away.

    Luma moves towards black and chroma towards neutral, both in proportion, so hue and saturation
    stay.

    Args:
        format: Format of every frame.
        percent: Light taken away, 0–100.
    """

    def __init__(self, format: FrameFormat, percent: float) -> None:
        self._keep = 1 - percent / 100
        self._black = format.luma_range[0]
        self._neutral = format.chroma_neutral
        self._eight_bit = format.layout is PixelLayout.NV12
        rows = min(STRIP_ROWS, format.height)
        half_rows, half_columns = (rows + 1) // 2, format.chroma_shape[1]
        self._luma: Samples = np.empty((rows, format.width), format.dtype)
        self._chroma: Samples = np.empty((half_rows, half_columns, 2), format.dtype)
        self._frame: Frame | None = None

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        self._frame = frame

    def luma(self, start: int, stop: int) -> Samples:
        assert self._frame is not None, "prepare() comes first"
        target = self._luma[: stop - start]
        self._scale(self._frame.luma[start:stop], self._black, target)
        return target

    def chroma(self, start: int, stop: int) -> Samples:
        assert self._frame is not None, "prepare() comes first"
        target = self._chroma[: stop - start]
        rows = stop - start
        self._scale(
            self._frame.chroma[start:stop].reshape(rows, -1),
            self._neutral,
            target.reshape(rows, -1),
        )
        return target

    def _scale(self, source: Samples, towards: int, target: Samples) -> None:
        """``target ← towards + keep · (source − towards)``, rounded to code values."""
        offset = towards * (1 - self._keep)
        if self._eight_bit:
            # Never negative, so the absolute value that it takes is the value.
            cv2.convertScaleAbs(source, dst=target, alpha=self._keep, beta=offset)
        else:
            # Half a code value more makes the cut-off a rounding.
            cv2.addWeighted(source, self._keep, source, 0, offset + 32, dst=target)
            np.bitwise_and(target, 0xFFC0, out=target)

    def close(self) -> None:
        self._frame = None
