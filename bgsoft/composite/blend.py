"""Blending of a background into a frame, in place, plane by plane.

Whole planes at a time: OpenCV's 8-bit arithmetic is so fast that looking for the samples that need
none costs more than it saves, and each call less is a wait less for the interpreter's lock.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import Samples, halve
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte, PixelLayout

_BAND_SAMPLES = 1 << 21
"""Samples blended at a time, which bounds the memory for 4K and 8K: 1080p in one go."""

_CODE_MASK_10 = 0xFFC0
_HALF_CODE_10 = 32


class Background:
    """The background of one frame at a time, in the frame's sample format.

    Frames of a batch are worked on side by side, each by a background of its own; what one knows
    of earlier frames it shares with the others.
    """

    def __init__(self, format: FrameFormat) -> None:
        self.luma: Samples = np.empty(format.luma_shape, format.dtype)
        """(H, W)."""
        self.chroma: Samples = np.empty(format.chroma_shape, format.dtype)
        """(⌈H/2⌉, ⌈W/2⌉, 2)."""

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Begin the next frame, side by side with others; the frame itself is only read."""

    def settle(self, frame: Frame) -> None:
        """Bring in what is known of earlier frames; called in presentation order.

        Raises:
            DecodeError: A background video can no longer be read.
        """

    def refresh(self) -> None:
        """See :meth:`bgsoft.composite.base.Compositor.refresh`."""

    def planes(self) -> tuple[Samples, Samples]:
        """Luma and chroma of the frame that was begun; only read."""
        return self.luma, self.chroma

    def close(self) -> None:
        """Free what it holds; safe to call twice."""


class Blender:
    """Blends backgrounds into frames of one format.

    A blended sample is at most one code value off the exact ``α·frame + (1 − α)·background`` at 8
    bit, and the nearest code value at 10 bit.

    Args:
        format: Format of every frame.
        keeps_partial: Samples with any alpha stay as they are, as an opaque one does: what is
            partly transparent is blended by others, later.
    """

    def __init__(self, format: FrameFormat, *, keeps_partial: bool = False) -> None:
        rows, columns, _ = format.chroma_shape
        self._kept: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None
        if keeps_partial:
            self._kept = np.empty(format.luma_shape, np.uint8), np.empty((rows, columns), np.uint8)
        self._pair_alpha = np.empty((rows, columns, 2), np.uint8)
        self._band = max(1, min(_BAND_SAMPLES // (2 * columns), format.height))
        self._mix = _mix_8bit if format.layout is PixelLayout.NV12 else _mix_10bit
        temporaries = 1 if format.layout is PixelLayout.NV12 else 3
        self._scratch: list[Samples] = [
            np.empty(self._band * 2 * columns, format.dtype) for _ in range(temporaries)
        ]

    def blend(
        self,
        frame: Frame,
        alpha: NDArray[np.uint8],
        chroma_alpha: NDArray[np.uint8],
        background: Background,
    ) -> None:
        """Blend ``background`` into ``frame``.

        Args:
            frame: Luma and chroma are overwritten, except where alpha is 255.
            alpha: (H, W) uint8, 255 = frame.
            chroma_alpha: (⌈H/2⌉, ⌈W/2⌉) uint8: its mean over 2×2 samples.
            background: The background of this frame.
        """
        if self._kept is not None:
            kept, kept_pairs = self._kept
            cv2.threshold(alpha, 0, 255, cv2.THRESH_BINARY, dst=kept)
            halve(kept, kept_pairs)  # a pair of which any is kept has a mean above 0
            cv2.threshold(kept_pairs, 0, 255, cv2.THRESH_BINARY, dst=kept_pairs)
            alpha, chroma_alpha = self._kept
        luma, chroma = background.planes()
        self._blend_plane(frame.luma, luma, alpha)
        # Cb and Cr side by side, each with the alpha of its pair.
        rows, pairs = len(chroma), self._pair_alpha
        cv2.merge((chroma_alpha, chroma_alpha), pairs)
        flat = (plane.reshape(rows, -1) for plane in (frame.chroma, chroma, pairs))
        self._blend_plane(*flat)

    def _blend_plane(self, samples: Samples, other: Samples, alpha: NDArray[np.uint8]) -> None:
        for start in range(0, len(samples), self._band):
            band = slice(start, start + self._band)
            self._mix(samples[band], other[band], alpha[band], self._scratch)


def _mix_8bit(
    samples: Samples, other: Samples, alpha: NDArray[np.uint8], scratch: list[Samples]
) -> None:
    """``samples ← (α·samples + (255 − α)·other) / 255`` for uint8.

    Each product is rounded on its own, so that OpenCV's vectorised uint8 arithmetic does it all;
    α = 255 gives ``samples`` and α = 0 gives ``other``, exactly.
    """
    part = scratch[0][: samples.size].reshape(samples.shape)
    cv2.bitwise_not(alpha, dst=part)
    cv2.multiply(other, part, dst=part, scale=1 / 255)
    cv2.multiply(samples, alpha, dst=samples, scale=1 / 255)
    cv2.add(samples, part, dst=samples)


def _mix_10bit(
    samples: Samples, other: Samples, alpha: NDArray[np.uint8], scratch: list[Samples]
) -> None:
    """The same for 10-bit code values in the high bits of uint16.

    The products are rounded to 1/64 of a code value, their sum to a whole one.
    """
    weight, part, result = (flat[: samples.size].reshape(samples.shape) for flat in scratch)
    np.copyto(weight, alpha)
    cv2.multiply(samples, weight, dst=result, scale=1 / 255)
    np.bitwise_xor(weight, 255, out=weight)  # 255 − α
    cv2.multiply(other, weight, dst=part, scale=1 / 255)
    np.add(result, part, out=result)
    # At most 1023 · 64 + 32, so no overflow.
    np.add(result, _HALF_CODE_10, out=result)
    np.bitwise_and(result, _CODE_MASK_10, out=samples)
