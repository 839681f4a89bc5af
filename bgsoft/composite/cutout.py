"""What a cut-out's colour planes hold where nothing is opaque: nothing of the room.

Players and editors that ignore alpha, and codecs that lose it, show these planes. So colour under
alpha 0 is black, except next to the foreground: there its own colour runs on, filled in from where
it is wholly opaque, and fades out. Scaling and chroma subsampling then find no edge at the edge.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import halve
from bgsoft.composite.fill import BackgroundFill
from bgsoft.composite.plate import PlateBackground
from bgsoft.composite.upsample import full_scale_shift
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["CutoutBackground", "full_scale_black", "reach_samples"]

_REACH_PCT = 0.75
"""How far colour runs on, in percent of the frame height: 8 pixels at 1080p."""


def reach_samples(format: FrameFormat) -> int:
    """Half of how far colour runs on, in chroma samples."""
    return max(1, round(_REACH_PCT / 100 * format.height / 4))


def full_scale_black(format: FrameFormat) -> tuple[int, int, int]:
    """Black luma and neutral chroma, twice, as 16-bit full-scale samples."""
    up = full_scale_shift(format)
    neutral = format.chroma_neutral << up
    return format.luma_range[0] << up, neutral, neutral


class CutoutBackground(PlateBackground):
    """The foreground's colour running out into black; all at the resolution of chroma.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        super().__init__(
            np.empty(format.luma_shape, format.dtype), np.empty(format.chroma_shape, format.dtype)
        )
        black_of = full_scale_black(format)
        self._fill = BackgroundFill(format, last_resort=black_of)
        self._room = np.empty(self._fill.near.shape, np.uint8)
        rows, columns = self._shape = format.chroma_shape[:2]
        side = 2 * reach_samples(format) + 1
        self._around, self._side = np.ones((side, side), np.uint8), (side, side)
        self._seen = np.empty(format.luma_shape, np.uint8)
        self._seen_samples = np.empty((rows, columns), np.uint8)
        rest = 255 - np.arange(256, dtype=np.float32)
        self._rests = [np.rint(black * rest / 255).astype(np.uint16) for black in black_of]
        scale = self._fill.factor // 2
        cells = self._fill.cells[0].shape
        self._enlarged = np.empty((cells[0] * scale, cells[1] * scale), np.uint16)
        self._weight = np.empty((rows, columns), np.uint16)
        self._faded, self._rest = np.empty_like(self._weight), np.empty_like(self._weight)
        self._eight_bit = format.bit_depth == 8
        self._samples = np.empty((rows, columns), format.dtype)
        self._luma_pairs = np.empty((2 * rows, 2 * columns), format.dtype)

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        # What is filled in is the room, from the people.
        np.invert(matte.reduced, out=self._room)
        self._fill.update(Matte(alpha=matte.alpha, reduced=self._room), reduced)
        weight = self._weigh(matte)
        np.copyto(self._weight, weight)
        self._fade(0, weight)
        size = self._luma_pairs.shape[::-1]
        cv2.resize(self._samples, size, dst=self._luma_pairs, interpolation=cv2.INTER_NEAREST)
        height, width = self._luma.shape
        np.copyto(self._luma, self._luma_pairs[:height, :width])
        for index in (1, 2):
            self._fade(index, weight)
            np.copyto(self._chroma[..., index - 1], self._samples)

    def _weigh(self, matte: Matte) -> NDArray[np.uint8]:
        """What the fill counts against black: 255 on all that is seen, falling evenly from there.

        Widened by some samples, then averaged over as many to each side.
        """
        cv2.threshold(matte.alpha, 0, 255, cv2.THRESH_BINARY, dst=self._seen)
        seen = self._seen_samples
        halve(self._seen, seen)
        cv2.threshold(seen, 0, 255, cv2.THRESH_BINARY, dst=seen)
        cv2.dilate(seen, self._around, dst=seen)
        cv2.blur(seen, self._side, dst=seen, borderType=cv2.BORDER_REPLICATE)
        return seen

    def _fade(self, index: int, weight: NDArray[np.uint8]) -> None:
        """One plane of the fill, weighted against black, as samples."""
        size = self._enlarged.shape[::-1]
        cells = self._fill.cells[index]
        cv2.resize(cells, size, dst=self._enlarged, interpolation=cv2.INTER_LINEAR)
        rows, columns = self._shape
        faded = self._faded
        cv2.multiply(self._enlarged[:rows, :columns], self._weight, dst=faded, scale=1 / 255)
        np.take(self._rests[index], weight, out=self._rest, mode="clip")
        cv2.add(faded, self._rest, dst=faded)
        if self._eight_bit:
            cv2.convertScaleAbs(faded, dst=self._samples, alpha=1 / 256)
        else:
            np.add(faded, 32, out=faded)
            np.bitwise_and(faded, 0xFFC0, out=self._samples)
