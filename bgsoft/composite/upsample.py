"""From a small, finely quantised background to the frame's own samples.

Backgrounds are kept as 16-bit full-scale samples: code value ``<< 8`` of 8-bit frames and ``<< 6``
of 10-bit frames, which is the same scale. Blurred gradients are so flat that rounding them to the
frame's code values shows as bands; a fixed ordered dither breaks these up.

What camera noise leaves of itself in a blurred picture is a slow wavering by fractions of a code
value. Nobody sees it, but the dither turns it into flickering grain, and an encoder spends bits
and time on it. So a cell keeps its value until it has changed by :data:`HOLD_STEPS`; that also
saves enlarging a still plane again. On a 1080p webcam clip it cut the encoder's work by a sixth.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import Samples
from bgsoft.composite.blend import STRIP_ROWS, Background
from bgsoft.frame import Frame, FrameFormat, PixelLayout

__all__ = [
    "HOLD_STEPS",
    "GridBackground",
    "HeldCells",
    "dither_pattern",
    "full_scale_shift",
    "hold",
]

Plane16 = NDArray[np.uint16]

_DEAD_ZONE = 1 / 16
"""Part of a code value around whole ones that dithering leaves alone, so that flat areas stay."""

HOLD_STEPS = {8: 256, 10: 128}
"""By bit depth: 16-bit full-scale steps below which a change of a cell is not followed: one code
value of 8 bits, two of 10."""


def full_scale_shift(format: FrameFormat) -> int:
    """Left shift from stored samples to 16-bit full scale: 8 for NV12, 0 for P010."""
    return 8 if format.layout is PixelLayout.NV12 else 0


def dither_pattern(rows: int, columns: int, levels: int) -> Plane16:
    """Thresholds that are added before the fraction of a code value is cut off.

    Interleaved gradient noise: it looks like fine grain, without the checks of a Bayer matrix.
    J. Jimenez, "Next generation post processing in Call of Duty: Advanced Warfare", SIGGRAPH 2014.

    Args:
        rows: Rows of the pattern.
        columns: Columns of the pattern.
        levels: 16-bit full-scale steps per code value.

    Returns:
        (rows, columns) uint16 in [levels / 16, levels · 15 / 16), mean about levels / 2.
    """
    y, x = np.mgrid[:rows, :columns].astype(np.float64)
    noise = np.modf(52.9829189 * np.modf(0.06711056 * x + 0.00583715 * y)[0])[0]
    pattern: Plane16 = (levels * (_DEAD_ZONE + (1 - 2 * _DEAD_ZONE) * noise)).astype(np.uint16)
    return pattern


def hold(
    cells: Plane16, shown: Plane16, steps: int, changed: NDArray[np.uint8], scratch: Plane16
) -> bool:
    """Let ``shown`` follow ``cells`` where they differ by ``steps`` or more.

    Args:
        cells: (h, w) uint16.
        shown: (h, w) uint16, updated.
        steps: Least difference that is followed.
        changed: (h, w) uint8; set to 1 where ``shown`` was updated, else 0.
        scratch: (h, w) uint16, overwritten.

    Returns:
        Whether anything was updated.
    """
    cv2.absdiff(cells, shown, dst=scratch)
    np.greater_equal(scratch, steps, out=changed, casting="unsafe")
    if not changed.any():
        return False
    cv2.copyTo(cells, changed, shown)
    return True


class HeldCells:
    """What is shown of a background on its cells, from frame to frame.

    Args:
        shapes: (h, w) of luma, Cb and Cr cells.
        steps: Least change that is followed, 16-bit full scale.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], steps: int) -> None:
        self._steps = steps
        self.planes = [np.empty(shape, np.uint16) for shape in shapes]
        """Luma, Cb and Cr, (h, w) uint16, 16-bit full scale."""
        self.versions = [0, 0, 0]
        """How often each has changed."""
        self._changed = [np.empty(shape, np.uint8) for shape in shapes]
        self._difference = [np.empty(shape, np.uint16) for shape in shapes]

    def follow(self, cells: Sequence[Plane16]) -> None:
        """Take in the next frame's cells, in presentation order."""
        for index, (shown, plane) in enumerate(zip(self.planes, cells, strict=True)):
            if self.versions[index] == 0:
                np.copyto(shown, plane)
            elif not hold(plane, shown, self._steps, self._changed[index], self._difference[index]):
                continue
            self.versions[index] += 1


class GridBackground(Background):
    """A background that is enlarged bilinearly from 16-bit planes of a fraction of the frame.

    Args:
        format: Format of every frame.
        factor: Luma pixels per luma cell, each way, a power of two.
        chroma_factor: Luma pixels per chroma cell, each way, a power of two, 2 or more.
        held: What is shown, shared with the backgrounds of other frames of a batch; None: made.
    """

    def __init__(
        self, format: FrameFormat, factor: int, chroma_factor: int, held: HeldCells | None = None
    ) -> None:
        self._shift = 8 if format.layout is PixelLayout.NV12 else 6
        height, width = format.luma_shape
        half_height, half_width, _ = format.chroma_shape
        shape = -(-height // factor), -(-width // factor)
        chroma_factor //= 2  # from here on in chroma samples
        chroma_shape = -(-half_height // chroma_factor), -(-half_width // chroma_factor)
        self.cells: tuple[Plane16, Plane16, Plane16] = (
            np.empty(shape, np.uint16),
            np.empty(chroma_shape, np.uint16),
            np.empty(chroma_shape, np.uint16),
        )
        """Luma, Cb and Cr cells, 16-bit full scale; to be filled by :meth:`prepare`."""
        self.held = held or HeldCells([c.shape for c in self.cells], HOLD_STEPS[format.bit_depth])
        """Shared with others."""
        self._shown = [np.empty_like(cells) for cells in self.cells]
        self._versions = [0, 0, 0]
        self._stale = [False, False, False]
        scales = (factor, chroma_factor, chroma_factor)
        self._planes = [
            cells
            if scale == 1
            else np.empty((cells.shape[0] * scale, cells.shape[1] * scale), np.uint16)
            for cells, scale in zip(self._shown, scales, strict=True)
        ]
        self._size = (height, width)
        self._half_size = (half_height, half_width)
        levels = 1 << (16 - format.bit_depth)
        self._mask = (0xFFFF // levels) * levels & 0xFFFF
        strip = min(STRIP_ROWS, height)
        self._dither = dither_pattern(strip, width, levels)
        self._half_dither = dither_pattern((strip + 1) // 2, half_width, levels)
        self._wide = np.empty((strip, width), np.uint16)
        self._half_wide = [np.empty(self._half_dither.shape, np.uint16) for _ in range(2)]
        self._eight_bit = format.bit_depth == 8
        self._luma_strip: Samples = np.empty((strip, width), format.dtype)
        self._low_bytes = np.empty((strip, width), np.uint8)
        self._chroma_strip: Samples = np.empty((*self._half_dither.shape, 2), format.dtype)

    def settle(self, frame: Frame) -> None:
        held = self.held
        held.follow(self.cells)
        for index, version in enumerate(held.versions):
            if self._versions[index] != version:
                np.copyto(self._shown[index], held.planes[index])
                self._versions[index] = version
                self._stale[index] = True

    def _enlarged(self, index: int) -> Plane16:
        """A plane at the frame's size, brought up to date."""
        shown, plane = self._shown[index], self._planes[index]
        if self._stale[index] and plane is not shown:
            cv2.resize(shown, plane.shape[::-1], dst=plane, interpolation=cv2.INTER_LINEAR)
        self._stale[index] = False
        return plane

    def luma(self, start: int, stop: int) -> Samples:
        rows, width = stop - start, self._size[1]
        strip = self._luma_strip[:rows]
        wide = self._wide[:rows]
        np.add(self._enlarged(0)[start:stop, :width], self._dither[:rows], out=wide)
        if self._eight_bit:
            # The high byte of each sample, by OpenCV's vectorised de-interleaving.
            pairs = wide.view(np.uint8).reshape(rows, width, 2)
            cv2.split(pairs, (self._low_bytes[:rows], strip))
        else:
            np.bitwise_and(wide, self._mask, out=strip)
        return strip

    def chroma(self, start: int, stop: int) -> Samples:
        rows, width = stop - start, self._half_size[1]
        strip = self._chroma_strip[:rows]
        dither = self._half_dither[:rows]
        cb, cr = (plane[:rows] for plane in self._half_wide)
        np.add(self._enlarged(1)[start:stop, :width], dither, out=cb)
        np.add(self._enlarged(2)[start:stop, :width], dither, out=cr)
        np.bitwise_and(cr, self._mask, out=cr)
        if self._eight_bit:
            # Little-endian: Cb is the first byte of the pair.
            np.right_shift(cb, 8, out=cb)
            np.bitwise_or(cb, cr, out=strip.view(np.uint16)[..., 0])
        else:
            np.bitwise_and(cb, self._mask, out=cb)
            cv2.merge((cb, cr), strip)
        return strip
