"""Faces stay sharp: their outlines are united with the matte, softly. The host's half.

Everything lies on the analysis grid and is enlarged as the matte itself is, so an outline's soft
edge is as wide in 4K as in 1080p. How opaque a face's cover is in a cell is defined by area: the
share of a square around the cell that its outline encloses. The device computes just that
(:mod:`bgsoft.face.cuda_protect`); OpenCV's polygons come within 16 of 255 of it everywhere and
about 2 on average over the soft edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.face.base import Face
from bgsoft.face.oval import oval_points
from bgsoft.frame import FrameFormat, Matte

__all__ = [
    "MAX_MEASURED",
    "Cover",
    "CoverDrawer",
    "CpuMatteEditor",
    "Guard",
    "MatteEditor",
    "OnCoverage",
    "Outline",
    "paint",
]

Plane8 = NDArray[np.uint8]

MAX_MEASURED = 32
"""Faces of a frame that are measured; more are guarded all the same."""

_GROWTH = 1.02
"""The mesh's outline runs just inside the hairline and the jaw; more would bare the background
beside a face that the mask had found by itself."""
_FEATHER = 0.05
"""Half width of the soft edge, as a fraction of the face's width on the grid."""
_MARGIN = 0.65
"""Cells by which the outline is wider still: neither the grid nor the mesh is finer than that."""
_FADE_STEP = 0.25
"""A face that appears in the middle of a scene is guarded fully from its fourth frame on, and one
that goes fades as fast: a false detection is gone before it shows, and nothing pops."""

_SUBPIXEL_BITS = 4
_PEN = 0.65
"""Pixels by which cv2.fillPoly's anti-aliased polygons are larger than they should be, all round;
measured against the exact area."""
_MIN_CELLS = 1e-3


@dataclass(slots=True, eq=False)
class Outline:
    """One face's outline on the grid. In cells; a cell's centre is at half a cell."""

    points: NDArray[np.float32]
    """(2, 36) all x and all y, in frame pixels."""
    scale: tuple[float, float]
    shift: tuple[float, float]
    """Points times scale plus shift: the outline in cells, where the soft edge is half-way down."""
    middle: tuple[float, float]
    """Of that outline's box."""
    half: tuple[float, float]
    """Half the sides of that box."""
    side: int
    """Of the square whose enclosed share is a cell's opacity; odd. The soft edge is as wide."""
    opacity: float
    """Of the cover within the outline, 0–1."""
    box: tuple[int, int, int, int]
    """Left, top, right, bottom of what is covered, half-open, not empty, inside the grid. The
    outermost cells are not covered, except at the grid's edge."""


@dataclass(slots=True, eq=False)
class Cover:
    """Where faces are, on the analysis grid."""

    outlines: list[Outline]
    """At least one; those of the measured faces come first."""
    faces: list[int]
    """Ids of the measured faces; at most :data:`MAX_MEASURED`."""


OnCoverage = Callable[[Sequence[float]], None]
"""Is told what share of each measured face the matte had covered before, 0–1; of the cells that
are the face's wholly, and 1 where there are none. Perhaps some frames later."""


class MatteEditor(Protocol):
    """Changes mattes of frames of one format, wherever they are."""

    def fetch(self, matte: Matte, index: int) -> None:
        """Send for a matte on the grid, for :meth:`read`; does not wait.

        On a device ``matte.reduced`` becomes a copy, until the next one with this number is sent
        for: several may be under way while the matte stage goes on. Host mattes stay where they
        are, each to be read and applied before the next is made.

        Args:
            matte: The matte, as the matte stage made it.
            index: Its number among those under way, from 0.
        """
        ...

    def read(self, index: int) -> Plane8:
        """A matte that was sent for, on the host: (gh, gw), only to be read; waits for it."""
        ...

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Cut a matte down to ``limit``, then raise it to ``cover``, in that order.

        ``matte.alpha`` is changed in place; ``matte.reduced`` becomes a plane of the editor where
        it changes, as the matte stage may go on from its own.

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
    """Draws the outlines of faces on the grid, as polygons; editors fill them.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._cell = 1.0 / grid_factor(format.width, format.height)
        self._shape = grid_shape(format.width, format.height)

    def draw(self, faces: Sequence[tuple[Face, float]]) -> Cover | None:
        """Draw some faces, each as opaque as given (0–1).

        Returns:
            The cover; None where no face lies in the frame.
        """
        measured: list[Outline] = []
        others: list[Outline] = []
        ids: list[int] = []
        for face, opacity in faces:
            outline = self._outline(face, opacity)
            if outline is None:
                continue
            if opacity >= 1 and len(ids) < MAX_MEASURED:
                ids.append(face.id)
                measured.append(outline)
            else:
                others.append(outline)
        outlines = measured + others
        return Cover(outlines, ids) if outlines else None

    def _outline(self, face: Face, opacity: float) -> Outline | None:
        """A face's outline; None where it is out of sight or no outline."""
        points = oval_points(face)
        # Plain numbers from here on: for so few, an array operation takes as long as ten of theirs.
        (low_x, low_y), (high_x, high_y) = points.min(axis=1).tolist(), points.max(axis=1).tolist()
        if not math.isfinite(low_x + low_y + high_x + high_y):
            return None
        cell = self._cell
        x, y = (low_x + high_x) / 2, (low_y + high_y) / 2
        half_x = _GROWTH * cell * (high_x - low_x) / 2
        half_y = _GROWTH * cell * (high_y - low_y) / 2
        radius = max(1, round(_FEATHER * 2 * half_x))
        side = 2 * radius + 1
        # The soft edge reaches half a square beyond the widened outline; a cell or two stay free.
        reach = side + 2
        rows, columns = self._shape
        left = max(0, math.floor(x * cell - half_x) - reach)
        top = max(0, math.floor(y * cell - half_y) - reach)
        right = min(columns, math.ceil(x * cell + half_x) + reach)
        bottom = min(rows, math.ceil(y * cell + half_y) + reach)
        if left >= right or top >= bottom:
            return None
        wider = radius + _MARGIN
        scale_x = _GROWTH * cell * (1 + wider / max(half_x, _MIN_CELLS))
        scale_y = _GROWTH * cell * (1 + wider / max(half_y, _MIN_CELLS))
        return Outline(
            points=points,
            scale=(scale_x, scale_y),
            shift=(x * (cell - scale_x), y * (cell - scale_y)),
            middle=(x * cell, y * cell),
            half=(half_x + wider, half_y + wider),
            side=side,
            opacity=opacity,
            box=(left, top, right, bottom),
        )


def paint(outline: Outline) -> Plane8:
    """How far each cell of an outline's box is the face's: (bottom - top, right - left), 0–255."""
    left, top, right, bottom = outline.box
    radius = outline.side // 2
    rows, columns = bottom - top, right - left
    # A margin beyond the box is painted too: where the box ends at the grid's edge, the squares
    # of the cells there have to find the face going on.
    size = (rows + 2 * radius, columns + 2 * radius)
    # The fewer cells an edge is wide, the more it matters where in a cell it runs.
    halvings = 2 if radius == 1 else 1 if radius < 5 else 0
    scale = 1 << halvings
    patch = np.zeros((size[0] * scale, size[1] * scale), np.uint8)
    # From cells to parts of the patch's pixels, about the middle. OpenCV's pixel centres are whole
    # numbers.
    one = float(scale << _SUBPIXEL_BITS)
    pen, pixel = _PEN / scale, 0.5 * (1 << _SUBPIXEL_BITS)
    scales, shifts = [], []
    for axis, first in enumerate((left - radius, top - radius)):
        parts = one * (1 - pen / outline.half[axis])
        origin = (outline.middle[axis] - first) * one - outline.middle[axis] * parts - pixel
        scales.append((outline.scale[axis] * parts,))
        shifts.append((outline.shift[axis] * parts + origin,))
    corners = outline.points * np.array(scales, np.float32)
    corners += np.array(shifts, np.float32)
    cv2.fillPoly(
        patch,
        [np.rint(corners).T.astype(np.int32, order="C")],
        255,
        lineType=cv2.LINE_AA,
        shift=_SUBPIXEL_BITS,
    )
    for left_over in range(halvings - 1, -1, -1):
        halved = (size[1] << left_over, size[0] << left_over)
        patch = np.asarray(cv2.resize(patch, halved, interpolation=cv2.INTER_AREA), np.uint8)
    cv2.blur(patch, (outline.side, outline.side), dst=patch)
    inner = patch[radius : radius + rows, radius : radius + columns]
    if outline.opacity < 1:
        inner = np.asarray(cv2.convertScaleAbs(inner, alpha=max(0.0, outline.opacity)), np.uint8)
    return inner


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

    Where the matte is 255 already nothing can rise, so most of a face that the mask has found
    costs nothing more than looking.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._factor = grid_factor(format.width, format.height)
        self._reduced = np.empty(grid_shape(format.width, format.height), np.uint8)
        self._limit: Plane8 | None = None
        self._fetched: dict[int, Plane8] = {}

    def fetch(self, matte: Matte, index: int) -> None:
        """Remember where a matte is; see :meth:`MatteEditor.fetch`."""
        self._fetched[index] = matte.reduced

    def read(self, index: int) -> Plane8:
        """The matte on the grid; see :meth:`MatteEditor.read`."""
        return self._fetched[index]

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Change a matte; see :meth:`MatteEditor.apply`."""
        before: Plane8 = matte.reduced
        if limit is not None:
            self._cut(matte, limit)
        if cover is None:
            return
        patches = [paint(outline) for outline in cover.outlines]
        # All is looked at before anything is raised: faces may overlap.
        places = [
            _lacking(matte.reduced, outline, patch)
            for outline, patch in zip(cover.outlines, patches, strict=True)
        ]
        if on_coverage is not None:
            measured = zip(cover.outlines[: len(cover.faces)], patches, places, strict=False)
            on_coverage(
                [
                    1.0 if place is None else _coverage(before, outline, patch)
                    for outline, patch, place in measured
                ]
            )
        if not any(places):
            return
        if limit is None:
            np.copyto(self._reduced, before)
            matte.reduced = self._reduced
        for outline, patch, place in zip(cover.outlines, patches, places, strict=True):
            if place is not None:
                self._raise(matte.alpha, outline, patch, place)

    def _cut(self, matte: Matte, limit: Plane8) -> None:
        np.minimum(matte.reduced, limit, out=self._reduced)
        matte.reduced = self._reduced
        self._limit = self._enlarge(limit, self._limit)
        height, width = matte.alpha.shape
        cv2.min(matte.alpha, self._limit[:height, :width], dst=matte.alpha)

    def _raise(
        self, alpha: Plane8, outline: Outline, patch: Plane8, place: tuple[int, int, int, int]
    ) -> None:
        """Raise the matte to a patch, in a place that holds every cell that can rise.

        Args:
            alpha: The matte of the frame.
            outline: Whose patch it is.
            patch: Cells of the outline's box.
            place: Left, top, right, bottom, cells of the grid.
        """
        left, top = outline.box[:2]
        x0, y0, x1, y1 = place
        target = self._reduced[y0:y1, x0:x1]
        cv2.max(target, patch[y0 - top : y1 - top, x0 - left : x1 - left], dst=target)
        # One cell more each way, where there is one, so that what lies between is interpolated;
        # of the frame's pixels in it those that are nearer to the cells of the place.
        rows, columns = patch.shape
        x0, y0 = max(0, x0 - left - 1), max(0, y0 - top - 1)
        x1, y1 = min(columns, x1 - left + 1), min(rows, y1 - top + 1)
        large = self._enlarge(patch[y0:y1, x0:x1], None)
        factor, half = self._factor, self._factor // 2
        cut_x0, cut_y0 = half * (x0 + left > 0), half * (y0 + top > 0)
        grid_rows, grid_columns = self._reduced.shape
        cut_x1, cut_y1 = half * (x1 + left < grid_columns), half * (y1 + top < grid_rows)
        at_x, at_y = (x0 + left) * factor + cut_x0, (y0 + top) * factor + cut_y0
        large = large[cut_y0 : large.shape[0] - cut_y1, cut_x0 : large.shape[1] - cut_x1]
        shown = alpha[at_y : at_y + large.shape[0], at_x : at_x + large.shape[1]]
        cv2.max(shown, large[: shown.shape[0], : shown.shape[1]], dst=shown)

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


def _lacking(reduced: Plane8, outline: Outline, patch: Plane8) -> tuple[int, int, int, int] | None:
    """The box of cells that are covered and not opaque yet, on the grid; None where none is."""
    left, top, right, bottom = outline.box
    lacking = cv2.bitwise_not(reduced[top:bottom, left:right])
    cv2.min(lacking, patch, dst=lacking)
    x, y, width, height = cv2.boundingRect(lacking)
    if not width:
        return None
    return left + x, top + y, left + x + width, top + y + height


def _coverage(reduced: Plane8, outline: Outline, patch: Plane8) -> float:
    """The share of a face that a matte covers, 0–1; 1 where no cell is the face's wholly."""
    left, top, right, bottom = outline.box
    inside = reduced[top:bottom, left:right][patch == 255]
    return int(inside.sum(dtype=np.int64)) / (255.0 * inside.size) if inside.size else 1.0
