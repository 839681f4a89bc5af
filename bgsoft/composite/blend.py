"""Blending of a background into a frame, in place, plane by plane, in strips.

Only samples that change are touched. The matte is looked over once, in tiles; tiles that show the
person only are left alone, tiles that show the background only are copied, and just the rest is
multiplied out. Strips keep everything in the processor's second-level cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import Samples, halve
from bgsoft.frame import Frame, FrameFormat, Matte, PixelLayout, Reduced

__all__ = ["STRIP_ROWS", "Background", "Blender"]

STRIP_ROWS = 128
"""Luma rows per strip; even, so that strips share no chroma row."""
TILE_COLUMNS = 32
"""Luma columns per tile; even."""

_JOIN_COLUMNS = 256
"""Mixing this many columns more costs about as much as starting another run."""

_Run = tuple[int, int, bool]
"""Luma columns [first, last) of a strip, and whether the background alone shows there."""

_CODE_MASK_10 = 0xFFC0
_HALF_CODE_10 = 32


class Background(ABC):
    """The background of one frame at a time, in the frame's sample format.

    Frames of a batch are worked on side by side, each by a background of its own; what one knows
    of earlier frames it shares with the others.
    """

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:  # noqa: B027
        """Begin the next frame, side by side with others; the frame itself is only read."""

    def settle(self, frame: Frame) -> None:  # noqa: B027
        """Bring in what is known of earlier frames; called in presentation order.

        Raises:
            DecodeError: A background video can no longer be read.
        """

    @abstractmethod
    def luma(self, start: int, stop: int) -> Samples:
        """Luma rows [start, stop) as (stop − start, W); good until the next call."""

    @abstractmethod
    def chroma(self, start: int, stop: int) -> Samples:
        """Chroma rows [start, stop) as (stop − start, ⌈W/2⌉, 2); good until the next call."""

    def close(self) -> None:  # noqa: B027
        """Free what it holds; safe to call twice."""


class Blender:
    """Blends backgrounds into frames of one format.

    A blended sample is at most one code value off the exact ``α·frame + (1 − α)·background`` at 8
    bit, and the nearest code value at 10 bit. Chroma takes the mean α of its 2×2 luma samples.

    Args:
        format: Format of every frame.
        keeps_partial: Samples with any alpha stay as they are, as an opaque one does: what is
            partly transparent is blended by others, later.
    """

    def __init__(self, format: FrameFormat, *, keeps_partial: bool = False) -> None:
        self._format = format
        self._dtype = np.dtype(format.dtype)
        self._kept = np.empty(format.luma_shape, np.uint8) if keeps_partial else None
        height, width = format.luma_shape
        strips, tiles = -(-height // STRIP_ROWS), -(-width // TILE_COLUMNS)
        self._tile_starts = np.arange(0, width, TILE_COLUMNS)
        self._column_max = np.empty((strips, width), np.uint8)
        self._column_min = np.empty((strips, width), np.uint8)
        # A border of "nothing to do" on each side, so that every run has two ends.
        self._states = np.zeros((strips, tiles + 2), np.uint8)
        samples = (STRIP_ROWS + 1) * (width + 1)
        self._mean_alpha = np.empty(samples, np.uint8)
        self._pair_alpha = np.empty(samples, np.uint8)
        self._scratch: list[Samples] = [np.empty(samples, format.dtype) for _ in range(3)]
        self._mix = _mix_8bit if format.layout is PixelLayout.NV12 else _mix_10bit

    def blend(self, frame: Frame, alpha: NDArray[np.uint8], background: Background) -> None:
        """Blend ``background`` into ``frame``.

        Args:
            frame: Luma and chroma are overwritten, except where alpha is 255.
            alpha: (H, W) uint8, 255 = frame.
            background: The background of this frame.

        Raises:
            ValueError: A plane's shape or dtype is not the format's.
        """
        self._check(frame, alpha)
        if self._kept is not None:
            cv2.threshold(alpha, 0, 255, cv2.THRESH_BINARY, dst=self._kept)
            alpha = self._kept
        height = self._format.height
        for strip, runs in enumerate(self._plan(alpha)):
            if not runs:
                continue
            start = strip * STRIP_ROWS
            stop = min(start + STRIP_ROWS, height)
            half_start, half_stop = start // 2, (stop + 1) // 2
            half_rows = half_stop - half_start
            luma = frame.luma[start:stop]
            new_luma = background.luma(start, stop)
            # Cb and Cr side by side: a chroma row is as long as an (even) luma row.
            chroma = frame.chroma[half_start:half_stop].reshape(half_rows, -1)
            new_chroma = background.chroma(half_start, half_stop).reshape(half_rows, -1)
            for first, last, plain in runs:
                even_last = last + (last & 1)
                if plain:
                    np.copyto(luma[:, first:last], new_luma[:, first:last])
                    np.copyto(chroma[:, first:even_last], new_chroma[:, first:even_last])
                    continue
                alpha_run = alpha[start:stop, first:last]
                self._mix(luma[:, first:last], new_luma[:, first:last], alpha_run, self._scratch)
                self._mix(
                    chroma[:, first:even_last],
                    new_chroma[:, first:even_last],
                    self._chroma_alpha(alpha_run),
                    self._scratch,
                )

    def _check(self, frame: Frame, alpha: NDArray[np.uint8]) -> None:
        wanted = self._format
        shapes = (frame.luma.shape, frame.chroma.shape, alpha.shape)
        if shapes != (wanted.luma_shape, wanted.chroma_shape, wanted.luma_shape):
            raise ValueError(
                f"luma, chroma and alpha are {shapes} but frames are {wanted.width}x{wanted.height}"
            )
        dtypes = (frame.luma.dtype, frame.chroma.dtype, alpha.dtype)
        if dtypes != (self._dtype, self._dtype, np.dtype(np.uint8)):
            raise ValueError(f"luma, chroma and alpha are {dtypes} but frames are {wanted.layout}")

    def _plan(self, alpha: NDArray[np.uint8]) -> list[list[_Run]]:
        """What is to be done in each strip."""
        height, width = alpha.shape
        whole = height // STRIP_ROWS
        if whole:
            strips = alpha[: whole * STRIP_ROWS].reshape(whole, STRIP_ROWS, width)
            strips.max(axis=1, out=self._column_max[:whole])
            strips.min(axis=1, out=self._column_min[:whole])
        if height % STRIP_ROWS:
            alpha[whole * STRIP_ROWS :].max(axis=0, out=self._column_max[whole])
            alpha[whole * STRIP_ROWS :].min(axis=0, out=self._column_min[whole])
        tile_max = np.maximum.reduceat(self._column_max, self._tile_starts, axis=1)
        tile_min = np.minimum.reduceat(self._column_min, self._tile_starts, axis=1)
        inner = self._states[:, 1:-1]
        np.less(tile_min, 255, out=inner)  # 1: some background shows
        inner += (tile_max > 0) & (tile_min < 255)  # 2: some of the person too
        plan: list[list[_Run]] = [[] for _ in range(len(inner))]
        strip_of, tile_of = np.nonzero(self._states[:, 1:] != self._states[:, :-1])
        state_after = self._states[strip_of, tile_of + 1].tolist()
        ends = np.minimum(tile_of * TILE_COLUMNS, width).tolist()
        for change, strip in enumerate(strip_of.tolist()):
            state = state_after[change]
            if state:
                _append_run(plan[strip], (ends[change], ends[change + 1], state == 1))
        return plan

    def _chroma_alpha(self, alpha: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Mean alpha of 2×2 samples, or 255 if any is kept, each twice: (⌈h/2⌉, 2·⌈w/2⌉)."""
        rows, columns = (alpha.shape[0] + 1) // 2, (alpha.shape[1] + 1) // 2
        mean = self._mean_alpha[: rows * columns].reshape(rows, columns)
        halve(alpha, mean)
        if self._kept is not None:
            cv2.threshold(mean, 0, 255, cv2.THRESH_BINARY, dst=mean)
        pairs = self._pair_alpha[: rows * columns * 2].reshape(rows, columns, 2)
        cv2.merge((mean, mean), pairs)
        return pairs.reshape(rows, columns * 2)


def _append_run(runs: list[_Run], run: _Run) -> None:
    """Add a run to a strip's, joining it with an earlier mixed one that is not far away."""
    first, last, plain = run
    if not plain:
        for index, (earlier_first, earlier_last, earlier_plain) in enumerate(runs):
            if not earlier_plain and first - earlier_last <= _JOIN_COLUMNS:
                runs[index:] = [(earlier_first, last, False)]
                return
    runs.append(run)


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
