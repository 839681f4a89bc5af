"""Faces stay sharp: their outlines are united with the matte, softly. The host's half.

Everything is drawn on the analysis grid and enlarged as the matte itself is, so an outline's soft
edge is as wide in 4K as in 1080p. What is drawn here is also what the device uses
(:mod:`bgsoft.face.cuda_protect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.face.base import Face
from bgsoft.face.oval import face_outline
from bgsoft.frame import FrameFormat, Matte

__all__ = [
    "MAX_MEASURED",
    "Cover",
    "CoverDrawer",
    "CpuMatteEditor",
    "Guard",
    "MatteEditor",
    "OnCoverage",
]

Plane8 = NDArray[np.uint8]

MAX_MEASURED = 32
"""Faces of a frame that are measured; more are guarded all the same."""

_GROWTH = 1.02
"""The mesh's outline runs just inside the hairline and the jaw; more would bare the background
beside a face that the mask had found by itself."""
_FEATHER = 0.05
"""Half width of the soft edge, as a fraction of the face's width on the grid."""
_SUBPIXEL_BITS = 4
_FADE_STEP = 0.25
"""A face that appears in the middle of a scene is guarded fully from its fourth frame on, and one
that goes fades as fast: a false detection is gone before it shows, and nothing pops."""


@dataclass(slots=True, eq=False)
class Cover:
    """Where faces are, on the analysis grid."""

    plane: Plane8
    """(gh, gw), how far each cell is a face's, 0–255; only the box is drawn, the rest is 0."""
    box: tuple[int, int, int, int]
    """Left, top, right, bottom of what is drawn, cells, half-open, not empty."""
    face_boxes: list[tuple[int, int, int, int]]
    """The same for each measured face, in the order of ``faces``; inside ``box``."""
    face_cells: list[int]
    """Cells in each of these boxes that are a face's wholly (255); 0 where it is out of sight."""
    faces: list[int]
    """Ids of the measured faces."""


OnCoverage = Callable[[Sequence[float]], None]
"""Is told what share of each measured face the matte had covered before, 0–1; 1 for a face that is
out of sight. Perhaps some frames later."""


class MatteEditor(Protocol):
    """Changes mattes of frames of one format, wherever they are."""

    def read(self, matte: Matte) -> Plane8:
        """The matte on the grid, on the host: (gh, gw), only to be read; waits for it."""
        ...

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Cut a matte down to ``limit``, then raise it to ``cover``, in that order.

        ``matte.alpha`` is changed in place; ``matte.reduced`` becomes a plane of the editor, as
        the matte stage may go on from its own.

        Args:
            matte: The matte.
            cover: Where it is to be at least as opaque; None: nowhere.
            limit: (gh, gw), what it must not exceed; None: nothing.
            on_coverage: Told what the matte had covered before this call; None: not measured.
        """
        ...

    def close(self) -> None:
        """Report what is outstanding; safe to call twice."""
        ...


class CoverDrawer:
    """Draws the outlines of faces on the grid.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._factor = grid_factor(format.width, format.height)
        self.shape = grid_shape(format.width, format.height)
        """(gh, gw)."""
        self._plane = np.zeros(self.shape, np.uint8)
        self._drawn: tuple[int, int, int, int] | None = None

    def draw(self, faces: Sequence[tuple[Face, float]]) -> Cover | None:
        """Draw some faces, each as opaque as given (0–1).

        Returns:
            The cover, overwritten by the next call; None where none of it lies in the frame.
        """
        if self._drawn is not None:
            left, top, right, bottom = self._drawn
            self._plane[top:bottom, left:right] = 0
            self._drawn = None
        boxes: list[tuple[int, int, int, int]] = []
        ids: list[int] = []
        for face, opacity in faces:
            box = self._draw_one(face, opacity)
            if len(ids) < MAX_MEASURED and opacity >= 1:
                ids.append(face.id)
                boxes.append(box or (0, 0, 0, 0))
            if box is not None:
                self._drawn = box if self._drawn is None else _around(self._drawn, box)
        if self._drawn is None:
            return None
        cells = [
            int(np.count_nonzero(self._plane[top:bottom, left:right] == 255))
            for left, top, right, bottom in boxes
        ]
        return Cover(
            plane=self._plane, box=self._drawn, face_boxes=boxes, face_cells=cells, faces=ids
        )

    def _draw_one(self, face: Face, opacity: float) -> tuple[int, int, int, int] | None:
        points = face_outline(face, _GROWTH) / np.float32(self._factor)
        low, high = points.min(axis=0), points.max(axis=0)
        if not np.isfinite(points).all():
            return None
        radius = max(1, round(_FEATHER * float(high[0] - low[0])))
        rows, columns = self.shape
        reach = 2 * radius + 1
        left, top = (max(0, int(np.floor(value)) - reach) for value in low.tolist())
        right = min(columns, int(np.ceil(high[0])) + reach)
        bottom = min(rows, int(np.ceil(high[1])) + reach)
        if left >= right or top >= bottom:
            return None
        # The outline is drawn where its edge will be half-way down. A margin beyond the grid's
        # edge is drawn too, so that the blur finds the face going on there.
        margin = radius
        patch = np.zeros((bottom - top + 2 * margin, right - left + 2 * margin), np.uint8)
        middle = (low + high) / 2
        size = np.maximum(high - low, 1e-3)
        wider = middle + (points - middle) * (1 + 2 * radius / size)
        # OpenCV's pixel centres are whole numbers.
        corners = (wider - (left - margin + 0.5, top - margin + 0.5)) * (1 << _SUBPIXEL_BITS)
        cv2.fillPoly(
            patch,
            [np.rint(corners).astype(np.int32)],
            255,
            lineType=cv2.LINE_AA,
            shift=_SUBPIXEL_BITS,
        )
        side = 2 * radius + 1
        cv2.blur(patch, (side, side), dst=patch)
        if opacity < 1:
            cv2.convertScaleAbs(patch, dst=patch, alpha=max(0.0, opacity))
        inner = patch[margin : margin + bottom - top, margin : margin + right - left]
        target = self._plane[top:bottom, left:right]
        np.maximum(target, inner, out=target)
        return left, top, right, bottom


def _around(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


class Guard:
    """Decides how opaque each face's cover is, over time."""

    def __init__(self) -> None:
        self._opacity: dict[int, float] = {}
        self._last: dict[int, Face] = {}
        self._fresh = True

    def reset(self) -> None:
        """A new scene begins: its first faces are guarded fully at once."""
        self._opacity.clear()
        self._last.clear()
        self._fresh = True

    def faces(self, faces: Sequence[Face]) -> list[tuple[Face, float]]:
        """The faces to cover in this frame, with the opacity of each in (0, 1].

        Called once for every frame, in order.
        """
        seen = set()
        for face in faces:
            seen.add(face.id)
            before = self._opacity.get(face.id, 1.0 if self._fresh else 0.0)
            self._opacity[face.id] = min(1.0, before + _FADE_STEP)
            self._last[face.id] = face
        for gone in self._opacity.keys() - seen:
            self._opacity[gone] -= _FADE_STEP
            if self._opacity[gone] <= 0:
                del self._opacity[gone], self._last[gone]
        self._fresh = False
        return [(self._last[id], opacity) for id, opacity in self._opacity.items()]


class CpuMatteEditor:
    """Changes mattes on the host; the reference.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._factor = grid_factor(format.width, format.height)
        self._reduced = np.empty(grid_shape(format.width, format.height), np.uint8)
        self._limit: Plane8 | None = None

    def read(self, matte: Matte) -> Plane8:
        """The matte on the grid; see :class:`MatteEditor`."""
        plane: Plane8 = matte.reduced
        return plane

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Change a matte; see :meth:`MatteEditor.apply`."""
        if cover is None and limit is None:
            return
        if cover is not None and on_coverage is not None:
            on_coverage(coverage(matte.reduced, cover))
        np.copyto(self._reduced, matte.reduced)
        matte.reduced = self._reduced
        if limit is not None:
            np.minimum(self._reduced, limit, out=self._reduced)
            self._limit = self._enlarge(limit, self._limit)
            height, width = matte.alpha.shape
            cv2.min(matte.alpha, self._limit[:height, :width], dst=matte.alpha)
        if cover is not None:
            self._raise(matte.alpha, cover)

    def _raise(self, alpha: Plane8, cover: Cover) -> None:
        left, top, right, bottom = cover.box
        target = self._reduced[top:bottom, left:right]
        np.maximum(target, cover.plane[top:bottom, left:right], out=target)
        # One cell more each way, where there is one, so that the border is interpolated too.
        rows, columns = self._reduced.shape
        left, top = max(0, left - 1), max(0, top - 1)
        right, bottom = min(columns, right + 1), min(rows, bottom + 1)
        patch = self._enlarge(cover.plane[top:bottom, left:right], None)
        factor = self._factor
        shown = alpha[top * factor : bottom * factor, left * factor : right * factor]
        np.maximum(shown, patch[: shown.shape[0], : shown.shape[1]], out=shown)

    def _enlarge(self, plane: Plane8, out: Plane8 | None) -> Plane8:
        """Whole cells of frame pixels, bilinearly, as the matte stage enlarges its own."""
        factor = self._factor
        if factor == 1:
            return plane
        size = (plane.shape[1] * factor, plane.shape[0] * factor)
        enlarged = cv2.resize(plane, size, dst=out, interpolation=cv2.INTER_LINEAR)
        return np.asarray(enlarged, np.uint8)

    def close(self) -> None:
        """Nothing is outstanding."""


def coverage(reduced: Plane8, cover: Cover) -> list[float]:
    """The share of each measured face that a matte covers, 0–1; 1 where it is out of sight.

    Args:
        reduced: (gh, gw) matte.
        cover: Where the faces are.
    """
    shares = []
    for (left, top, right, bottom), cells in zip(cover.face_boxes, cover.face_cells, strict=True):
        inside = cover.plane[top:bottom, left:right] == 255
        total = int(reduced[top:bottom, left:right][inside].sum(dtype=np.int64))
        shares.append(total / (255.0 * cells) if cells else 1.0)
    return shares
