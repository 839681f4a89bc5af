"""From a small, finely quantised background to the frame's own samples.

Blurred gradients are so flat that rounding them to the frame's code values shows as bands; a fixed
ordered dither breaks these up.

What camera noise leaves of itself in a blurred picture is a slow wavering by fractions of a code
value. Nobody sees it, but the dither turns it into flickering grain, and an encoder spends bits
and time on it. So a cell keeps its value until it has changed by
:data:`bgsoft.composite.plan.HOLD_STEPS`; that also saves enlarging a still plane again. On a 1080p
webcam clip it cut the encoder's work by a sixth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import Samples
from bgsoft.composite.blend import Background
from bgsoft.composite.plan import DITHER_ROWS, HOLD_STEPS, CellsPlan, dither_pattern
from bgsoft.frame import Frame, FrameFormat

Plane16 = NDArray[np.uint16]


class HeldCells:
    """What is shown of a background on its cells, from frame to frame, and its dither."""

    def __init__(self, plan: CellsPlan) -> None:
        self._steps = HOLD_STEPS[plan.format.bit_depth]
        self.dithers = _dithers(plan.format)
        """Thresholds for each sample of luma and of chroma, whose pairs have theirs in common."""
        luma, chroma, _ = plan.shapes
        self.planes = [np.empty(luma, np.uint16), np.empty((*chroma, 2), np.uint16)]
        """Luma and chroma cells, 16-bit full scale."""
        self.versions = [0, 0]
        """How often each has changed."""
        self.fresh = True
        """The next frame's cells are taken as they are."""
        self._difference = [np.empty_like(_flat(plane)) for plane in self.planes]
        self._changed = [np.empty(plane.shape, np.uint8) for plane in self._difference]

    def follow(self, cells: Sequence[Plane16]) -> None:
        """Take in the next frame's cells, in presentation order: those that differ enough."""
        for index, (shown, plane) in enumerate(zip(self.planes, cells, strict=True)):
            if self.fresh:
                np.copyto(shown, plane)
            else:
                difference, changed = self._difference[index], self._changed[index]
                cv2.absdiff(_flat(plane), _flat(shown), dst=difference)
                np.greater_equal(difference, self._steps, out=changed, casting="unsafe")
                if not changed.any():
                    continue
                cv2.copyTo(_flat(plane), changed, _flat(shown))
            self.versions[index] += 1
        self.fresh = False


class GridBackground(Background):
    """A background that is enlarged bilinearly from 16-bit cells.

    Args:
        plan: The cells.
        held: What is shown of them; shared with the backgrounds of other frames of a batch.
    """

    def __init__(self, plan: CellsPlan, held: HeldCells) -> None:
        super().__init__(plan.format)
        self._held = held
        self.cells = [np.empty_like(plane) for plane in held.planes]
        """Luma and chroma cells, 16-bit full scale; to be filled by :meth:`prepare`."""
        self._shown = [np.empty_like(cells) for cells in self.cells]
        self._versions = [0, 0]
        self._stale = [False, False]
        self._enlarged = [
            np.empty((c.shape[0] * scale, c.shape[1] * scale, *c.shape[2:]), np.uint16)
            for c, scale in zip(self.cells, plan.scales, strict=True)
        ]
        height, half_width = plan.format.height, plan.format.chroma_shape[1]
        self._low_bytes = np.empty((height, 2 * half_width), np.uint8)
        self._code_mask = 0x10000 - (1 << (16 - plan.format.bit_depth))

    def settle(self, frame: Frame) -> None:
        held = self._held
        held.follow(self.cells)
        for index, version in enumerate(held.versions):
            if self._versions[index] != version:
                np.copyto(self._shown[index], held.planes[index])
                self._versions[index] = version
                self._stale[index] = True

    def refresh(self) -> None:
        self._held.fresh = True

    def planes(self) -> tuple[Samples, Samples]:
        for index, plane in enumerate((self.luma, self.chroma)):
            if self._stale[index]:
                self._enlarge(index, plane)
                self._stale[index] = False
        return self.luma, self.chroma

    def _enlarge(self, index: int, plane: Samples) -> None:
        """Bring a plane up to date with the cells that are shown."""
        enlarged = self._enlarged[index]
        size = enlarged.shape[1::-1]
        cv2.resize(self._shown[index], size, dst=enlarged, interpolation=cv2.INTER_LINEAR)
        samples = _flat(plane)
        rows, columns = samples.shape
        wide = _flat(enlarged)[:rows, :columns]
        np.add(wide, self._held.dithers[index], out=wide)
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
    height, (half_height, half_width, _) = format.height, format.chroma_shape
    pattern = dither_pattern(format)
    half_pattern = np.repeat(pattern[: DITHER_ROWS // 2, :half_width], 2, axis=1)
    return (
        np.take(pattern, np.arange(height) % len(pattern), axis=0),
        np.take(half_pattern, np.arange(half_height) % len(half_pattern), axis=0),
    )
