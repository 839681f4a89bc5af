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

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import Samples
from bgsoft.composite.blend import Background
from bgsoft.frame import Frame, FrameFormat, PixelLayout

__all__ = [
    "DITHER_ROWS",
    "HOLD_STEPS",
    "GridBackground",
    "HeldCells",
    "dither_pattern",
    "full_scale_shift",
    "hold",
]

Plane16 = NDArray[np.uint16]

DITHER_ROWS = 128
"""Luma rows after which the dither repeats; chroma's repeats after half of them."""

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
        shapes: (h, w) of luma cells and (h, w, 2) of chroma cells.
        steps: Least change that is followed, 16-bit full scale.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], steps: int) -> None:
        self._steps = steps
        self.planes = [np.empty(shape, np.uint16) for shape in shapes]
        """Luma and chroma cells, 16-bit full scale."""
        self.versions = [0, 0]
        """How often each has changed."""
        flat = [(shape[0], math.prod(shape[1:])) for shape in shapes]
        self._changed = [np.empty(shape, np.uint8) for shape in flat]
        self._difference = [np.empty(shape, np.uint16) for shape in flat]

    def follow(self, cells: Sequence[Plane16]) -> None:
        """Take in the next frame's cells, in presentation order."""
        for index, (shown, plane) in enumerate(zip(self.planes, cells, strict=True)):
            if self.versions[index] == 0:
                np.copyto(shown, plane)
            elif not hold(
                _flat(plane),
                _flat(shown),
                self._steps,
                self._changed[index],
                self._difference[index],
            ):
                continue
            self.versions[index] += 1


class GridBackground(Background):
    """A background that is enlarged bilinearly from 16-bit planes of a fraction of the frame.

    Args:
        format: Format of every frame.
        factor: Luma pixels per luma cell, each way, a power of two.
        chroma_factor: Luma pixels per chroma cell, each way, a power of two, 2 or more.
        shared: The background of another frame of the same batch, with which this one shares what
            is held and the dither; None: the first.
    """

    def __init__(
        self,
        format: FrameFormat,
        factor: int,
        chroma_factor: int,
        shared: GridBackground | None = None,
    ) -> None:
        height, width = format.luma_shape
        half_height, half_width, _ = format.chroma_shape
        chroma_scale = chroma_factor // 2
        cells = -(-height // factor), -(-width // factor)
        chroma_cells = -(-half_height // chroma_scale), -(-half_width // chroma_scale)
        self.cells = np.empty(cells, np.uint16), np.empty((*chroma_cells, 2), np.uint16)
        """Luma and chroma cells, 16-bit full scale; to be filled by :meth:`prepare`."""
        if shared is None:
            self._held = HeldCells([c.shape for c in self.cells], HOLD_STEPS[format.bit_depth])
            self._dithers = _dithers(format)
        else:
            self._held, self._dithers = shared._held, shared._dithers
        self._shown = [np.empty_like(cells) for cells in self.cells]
        self._versions = [0, 0]
        self._stale = [False, False]
        self._enlarged = [
            np.empty((c.shape[0] * scale, c.shape[1] * scale, *c.shape[2:]), np.uint16)
            for c, scale in zip(self.cells, (factor, chroma_scale), strict=True)
        ]
        self._planes: tuple[Samples, Samples] = (
            np.empty(format.luma_shape, format.dtype),
            np.empty(format.chroma_shape, format.dtype),
        )
        self._low_bytes = np.empty((height, 2 * half_width), np.uint8)
        self._code_mask = 0x10000 - (1 << (16 - format.bit_depth))

    def settle(self, frame: Frame) -> None:
        held = self._held
        held.follow(self.cells)
        for index, version in enumerate(held.versions):
            if self._versions[index] != version:
                np.copyto(self._shown[index], held.planes[index])
                self._versions[index] = version
                self._stale[index] = True

    def planes(self) -> tuple[Samples, Samples]:
        for index, stale in enumerate(self._stale):
            if stale:
                self._enlarge(index)
                self._stale[index] = False
        return self._planes

    def _enlarge(self, index: int) -> None:
        """Bring a plane up to date with the cells that are shown."""
        plane, enlarged = self._planes[index], self._enlarged[index]
        size = enlarged.shape[1::-1]
        cv2.resize(self._shown[index], size, dst=enlarged, interpolation=cv2.INTER_LINEAR)
        samples = _flat(plane)
        rows, columns = samples.shape
        wide = _flat(enlarged)[:rows, :columns]
        np.add(wide, self._dithers[index], out=wide)
        if samples.dtype == np.uint8:
            # The high byte of each sample, by OpenCV's vectorised de-interleaving.
            pairs = wide.view(np.uint8).reshape(rows, columns, 2)
            low = self._low_bytes[:rows, :columns]
            cv2.split(pairs, (low, samples))
        else:
            np.bitwise_and(wide, self._code_mask, out=samples)


def _flat(plane: NDArray[Any]) -> NDArray[Any]:
    """A plane with the samples of a row side by side, whatever their channels."""
    return plane.reshape(len(plane), -1)


def _dithers(format: FrameFormat) -> tuple[Plane16, Plane16]:
    """Thresholds for each sample of luma and of chroma, whose pairs have theirs in common."""
    height, width = format.luma_shape
    half_height, half_width, _ = format.chroma_shape
    pattern = dither_pattern(DITHER_ROWS, width, 1 << (16 - format.bit_depth))
    half_pattern = np.repeat(pattern[: DITHER_ROWS // 2, :half_width], 2, axis=1)
    return (
        np.take(pattern, np.arange(height) % len(pattern), axis=0),
        np.take(half_pattern, np.arange(half_height) % len(half_pattern), axis=0),
    )
