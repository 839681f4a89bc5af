"""Faces are blurred beyond recognition, in place, in the finished frame. The host's half.

An ellipse around the face is replaced by the means of a few coarse cells, enlarged smoothly, with
a feathered rim outside it. Cells hang on the face, not on the frame: a grid that a face moves
across would show other means in each frame, from which finer detail could be put together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Ellipse
from bgsoft.frame import Array, Frame, FrameFormat

__all__ = ["Anonymizer", "CpuAnonymizer", "Patch", "make_patch"]

Samples = NDArray[Any]

CELLS_ACROSS = 5
"""Cells across an ellipse, which is wider than the face: eyes and mouth are a cell each or less."""
MAX_CELLS = 16
"""Cells of a patch each way, at most; thin, tilted ellipses get larger cells."""
FEATHER = 0.15
"""Width of the rim in which the frame returns, as a part of the half axes; all of it outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """The cells under an ellipse, laid out on the frame."""

    ellipse: Ellipse
    left: int
    """Frame column of the first cell; even, may be negative."""
    top: int
    """Frame row of the first cell; even, may be negative."""
    edge: int
    """Frame pixels per cell, each way; even."""
    columns: int
    rows: int

    def part_of(self, plane: Array, step: int) -> PatchPart | None:
        """Where the cells lie in one plane of the frame; None where none of them is inside.

        Args:
            plane: (h, w) or (h, w, channels).
            step: Frame pixels per sample, 1 or 2.
        """
        height, width = plane.shape[:2]
        left, top, edge = self.left // step, self.top // step, self.edge // step
        right, bottom = left + self.columns * edge, top + self.rows * edge
        inside = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
        if inside[0] >= inside[2] or inside[1] >= inside[3]:
            return None
        return PatchPart(edge, (left, top, right, bottom), inside)


class PatchPart(NamedTuple):
    """The cells of a patch in one plane, in samples."""

    edge: int
    """Samples per cell, each way."""
    cells: tuple[int, int, int, int]
    """Left, top, right, bottom of all cells; may reach over the plane's edge."""
    inside: tuple[int, int, int, int]
    """The same of what lies in the plane."""


def make_patch(ellipse: Ellipse, format: FrameFormat) -> Patch | None:
    """Lay out the cells for an ellipse; None where none of it is in the frame.

    Args:
        ellipse: What is to be hidden.
        format: Format of the frame.
    """
    values = (ellipse.x, ellipse.y, ellipse.across, ellipse.along)
    if not all(math.isfinite(value) for value in values):
        return None
    outer = 1 + FEATHER
    half_width = outer * math.hypot(ellipse.across * ellipse.cos, ellipse.along * ellipse.sin)
    half_height = outer * math.hypot(ellipse.across * ellipse.sin, ellipse.along * ellipse.cos)
    if (
        ellipse.x + half_width <= 0
        or ellipse.y + half_height <= 0
        or ellipse.x - half_width >= format.width
        or ellipse.y - half_height >= format.height
    ):
        return None
    wanted = 2 * min(ellipse.across, ellipse.along) / CELLS_ACROSS
    # Two pixels are lost to rounding at most, and one cell more covers them.
    least = 2 * max(half_width, half_height) / (MAX_CELLS - 2)
    edge = 2 * max(1, math.ceil(max(wanted, least) / 2))
    columns = math.ceil((2 * half_width + 2) / edge)
    rows = math.ceil((2 * half_height + 2) / edge)
    left = 2 * round((ellipse.x - columns * edge / 2) / 2)
    top = 2 * round((ellipse.y - rows * edge / 2) / 2)
    return Patch(ellipse=ellipse, left=left, top=top, edge=edge, columns=columns, rows=rows)


class Anonymizer(Protocol):
    """Hides faces in frames of one format, wherever they are."""

    def apply(self, frame: Frame, ellipses: Sequence[Ellipse]) -> None:
        """Hide what is inside some ellipses, one after another, in place."""
        ...


class CpuAnonymizer:
    """Hides faces on the host; the reference.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._format = format
        self._deep = format.bit_depth > 8

    def apply(self, frame: Frame, ellipses: Sequence[Ellipse]) -> None:
        """Hide some faces; see :meth:`Anonymizer.apply`."""
        for ellipse in ellipses:
            patch = make_patch(ellipse, self._format)
            if patch is None:
                continue
            self._hide(frame.luma, patch, 1)
            self._hide(frame.chroma, patch, 2)

    def _hide(self, plane: Samples, patch: Patch, step: int) -> None:
        """Hide one plane's part.

        Args:
            plane: (h, w) or (h, w, channels), changed in place.
            patch: The cells.
            step: Frame pixels per sample, 1 or 2.
        """
        part = patch.part_of(plane, step)
        if part is None:
            return
        left, top, right, bottom = part.cells
        x0, y0, x1, y1 = part.inside
        inside = plane[y0:y1, x0:x1]
        # Cells that the frame's edge cuts see the edge's samples repeated.
        whole = cv2.copyMakeBorder(
            inside, y0 - top, bottom - y1, x0 - left, right - x1, cv2.BORDER_REPLICATE
        )
        means = cv2.resize(
            whole.astype(np.float32), (patch.columns, patch.rows), interpolation=cv2.INTER_AREA
        )
        size = (right - left, bottom - top)
        smooth = cv2.resize(means, size, interpolation=cv2.INTER_LINEAR)
        smooth = smooth[y0 - top : y1 - top, x0 - left : x1 - left]
        weight = _weights(patch.ellipse, part.inside, step)
        if plane.ndim == 3:
            weight = weight[..., None]
        mixed = inside + (smooth - inside) * weight
        if self._deep:
            # 10-bit code values sit in the high bits.
            values = np.rint(mixed / 64).astype(np.uint16)
            hidden: Samples = np.minimum(values, 1023) << 6
        else:
            hidden = np.rint(mixed).astype(np.uint8)
        # Where nothing is hidden not a bit changes, whatever the low bits hold.
        np.copyto(inside, hidden, where=weight > 0)


def _weights(ellipse: Ellipse, box: tuple[int, int, int, int], step: int) -> NDArray[np.float32]:
    """How far each sample of a box is hidden: 1 in the ellipse, falling to 0 at the rim's end.

    Args:
        ellipse: In frame pixels.
        box: Left, top, right, bottom in samples.
        step: Frame pixels per sample.
    """
    x = (np.arange(box[0], box[2], dtype=np.float32) + 0.5) * step - np.float32(ellipse.x)
    y = (np.arange(box[1], box[3], dtype=np.float32)[:, None] + 0.5) * step - np.float32(ellipse.y)
    cos, sin = np.float32(ellipse.cos), np.float32(ellipse.sin)
    u = (x * cos + y * sin) / np.float32(ellipse.across)
    v = (y * cos - x * sin) / np.float32(ellipse.along)
    distance = np.sqrt(u * u + v * v)
    weight: NDArray[np.float32] = np.clip(
        (np.float32(1 + FEATHER) - distance) * np.float32(1 / FEATHER), 0, 1
    )
    return weight
