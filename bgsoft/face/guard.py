"""Faces that the mask has missed are filled in, inside their outlines. The host's half.

Whether a mask may have missed a part of a face is seen by samples of the matte where the face's
outline is to be expected from the detector's box: landmarks, and with them the outline itself, are
only made of faces that lack some there.

A face that the mask has is left as it is, bit for bit: the mesh's outline is no better than the
mask's own, and where it runs wider it would show a rim of the old background. How much of a face
is missing decides how strongly it is filled in, so that nothing flickers.

Everything lies on the analysis frame and is enlarged as the matte itself is, so an outline's soft
edge is as wide in 4K as in 1080p. A cover is defined by area: the share of a square around a cell
that the outline encloses. One half of it is the outline itself, where the fill begins; it is whole
half a square further in. The device computes just that (:mod:`bgsoft.face.cuda_effects`); OpenCV's
polygons come within 16 of 255 of the share everywhere (28 where a face is ten cells wide or less)
and about 2 on average over the soft edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.face.base import Face, oval_points
from bgsoft.face.geometry import Roi
from bgsoft.face.landmarks import EXPECTED_HALF, EXPECTED_RISE
from bgsoft.frame import FrameFormat, Matte

Plane8 = NDArray[np.uint8]

MAX_MEASURED = 32
"""Faces of a frame that are measured; more are guarded all the same."""

MISSED_SHARE = 0.05
"""A mask that leaves out more of a face than this has missed it. Of faces that it had found in
clips and portraits it left out a hundredth at most, of others a third and more."""
FILLED_SHARE = 0.15
"""From here on a face is filled in fully; in between evenly more."""

MAY_MISS_SHARE = 0.01
"""Landmarks are made of faces of which the matte misses more than this, where they are expected.
Over 25,140 faces in mattes as they are and damaged in 59 ways, 25 of the 19,533 that landmarks say
are missed by more than :data:`MISSED_SHARE` have less, mostly in the wake of landmarks beside the
face; of mattes as they are, no face in clips has more, and a tenth of those in portraits."""
_EXPECTED_SCALE = 0.95
"""Of the expected outline in which that is measured. At its full size more of the background than
of the face lies between the two."""
_SAMPLES_ACROSS = 20
"""Samples along each axis of the expected outline."""
_AXIS = (np.arange(_SAMPLES_ACROSS) + 0.5) * 2 / _SAMPLES_ACROSS - 1
_SQUARE = np.stack(np.meshgrid(_AXIS, _AXIS))
_DISC = _SQUARE[:, np.hypot(*_SQUARE) < 1]
SAMPLES = _DISC.shape[1]
"""In the disc that becomes the expected outline."""

_GROWTH = 0.95
"""What enlarging cells and an outline a little off may add beyond the face is less than this takes
away."""
_FEATHER = 0.05
"""Width of the soft edge, as a fraction of the face's width on the grid."""
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
    scale: float
    shift: tuple[float, float]
    """Points times scale plus shift: the outline in cells, where the soft edge begins."""
    middle: tuple[float, float]
    """Of that outline's box."""
    half: tuple[float, float]
    """Half the sides of that box."""
    side: int
    """Of the square around a cell, in cells; odd. The soft edge is half as wide."""
    opacity: float
    """Of the fill where the face is missing, 0–1."""
    box: tuple[int, int, int, int]
    """Left, top, right, bottom of the cells whose squares the outline touches, half-open, not
    empty, inside the grid. The outermost ones are not touched, except at the grid's edge."""


@dataclass(slots=True, eq=False)
class Cover:
    """Where faces are, on the analysis frame."""

    outlines: list[Outline]
    """At least one; those of the measured faces come first."""
    faces: list[int]
    """Ids of the measured faces; at most :data:`MAX_MEASURED`."""


OnCoverage = Callable[[Sequence[float]], None]
"""Called with the share, 0–1, of each measured face that the matte covered before it was filled in.
The soft edge counts as much as it is opaque. The call may come some frames later."""


class MatteEditor(Protocol):
    """Reads and changes mattes of frames of one format, wherever they are."""

    def read(self, matte: Matte) -> Plane8:
        """A matte on the host: (gh, gw), only to be read; overwritten by the next call."""
        ...

    def missing(self, mattes: Sequence[Matte], cells: NDArray[np.int32]) -> list[float]:
        """How much a matte lacks of what is expected of a face, 0–1, for each matte and face.

        Args:
            mattes: A matte for each face; the same one again for several.
            cells: (N, P) of :class:`ExpectedFaces`.
        """
        ...

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Cut a matte down to ``limit``, (gh, gw), then fill in the faces that are missing from it.

        Both of its planes are changed in place. ``on_coverage`` is called for what it had of each
        face in between.
        """
        ...

    def close(self) -> None:
        """Report what is outstanding; safe to call twice."""
        ...


class ExpectedFaces:
    """Where the outlines of faces are to be expected in frames of one format."""

    def __init__(self, format: FrameFormat) -> None:
        self._cell = 1.0 / analysis_factor(format.width, format.height)
        self._shape = analysis_shape(format.width, format.height)
        across, along = EXPECTED_HALF
        self._x = _DISC[0] * (_EXPECTED_SCALE * across)
        self._y = _DISC[1] * (_EXPECTED_SCALE * along) - EXPECTED_RISE

    def cells(self, squares: Sequence[Roi]) -> NDArray[np.int32]:
        """The cells to look at, of faces that landmarks would be made of in these squares.

        Returns:
            (N, P) int32: indices into the flat (gh, gw) matte, -1 outside it.
        """
        rows, columns = self._shape
        numbers = np.array([(s.x, s.y, s.side, s.angle) for s in squares]).T[..., None]
        x, y, side = self._cell * numbers[:3]
        cos, sin = side * np.cos(numbers[3]), side * np.sin(numbers[3])
        column = np.floor(x + cos * self._x - sin * self._y)
        row = np.floor(y + sin * self._x + cos * self._y)
        inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
        return np.where(inside, row * columns + column, -1).astype(np.int32)


class CoverDrawer:
    """Draws the outlines of faces on the grid, as polygons; editors fill them."""

    def __init__(self, format: FrameFormat) -> None:
        self._cell = 1.0 / analysis_factor(format.width, format.height)
        self._shape = analysis_shape(format.width, format.height)

    def draw(self, faces: Sequence[tuple[Face, float]]) -> Cover | None:
        """Draw some faces, each as opaque as given (0–1); None where none lies in the frame."""
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
        scale = _GROWTH * cell
        half_x, half_y = scale * (high_x - low_x) / 2, scale * (high_y - low_y) / 2
        radius = round(_FEATHER * 2 * half_x)
        # Half a square beyond the outline, and a cell or two that stay free.
        reach = radius + 3
        rows, columns = self._shape
        left = max(0, math.floor(x * cell - half_x) - reach)
        top = max(0, math.floor(y * cell - half_y) - reach)
        right = min(columns, math.ceil(x * cell + half_x) + reach)
        bottom = min(rows, math.ceil(y * cell + half_y) + reach)
        if left >= right or top >= bottom:
            return None
        return Outline(
            points=points,
            scale=scale,
            shift=(x * (cell - scale), y * (cell - scale)),
            middle=(x * cell, y * cell),
            half=(max(half_x, _MIN_CELLS), max(half_y, _MIN_CELLS)),
            side=2 * radius + 1,
            opacity=opacity,
            box=(left, top, right, bottom),
        )


def missing_shares(lacks: NDArray[np.integer], cells: NDArray[np.int32]) -> list[float]:
    """What mattes lack, (N,), summed over these cells, (N, P), as shares of all of it."""
    counts = np.count_nonzero(cells >= 0, axis=1)
    shares: list[float] = (lacks / (255.0 * np.maximum(counts, 1))).tolist()
    return shares


def paint(outline: Outline) -> Plane8:
    """The enclosed share around each cell of a box: (bottom - top, right - left), 0–255."""
    left, top, right, bottom = outline.box
    radius = outline.side // 2
    rows, columns = bottom - top, right - left
    # A margin beyond the box is painted too: where the box ends at the grid's edge, the squares
    # of the cells there have to find the face going on.
    size = (rows + 2 * radius, columns + 2 * radius)
    # The fewer cells an edge is wide, the more it matters where in a cell it runs.
    halvings = 3 - min(radius, 2) if radius < 5 else 0
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
        scales.append((outline.scale * parts,))
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
    return patch[radius : radius + rows, radius : radius + columns]


def _fill_table(strength: float) -> Plane8:
    """From the enclosed share, 0–255, to the opacity of the fill, at most ``strength``: (256,)."""
    opacity = (2 * np.arange(256, dtype=np.float32) - 255) * np.float32(strength)
    table: Plane8 = np.rint(np.clip(opacity, 0, 255)).astype(np.uint8)
    return table


_WHOLE_FILL = _fill_table(1.0)


class Guard:
    """Decides how opaque each face's cover is, over time."""

    def __init__(self) -> None:
        self._shown: dict[int, tuple[Face, float]] = {}
        """Each face where it was last seen, and its opacity."""
        self._fresh = True

    def reset(self) -> None:
        """A new scene begins: its first faces are guarded fully at once."""
        self._shown.clear()
        self._fresh = True

    def faces(self, faces: Sequence[Face]) -> list[tuple[Face, float]]:
        """The faces to cover in the next frame, with the opacity of each in (0, 1]."""
        start = 1.0 if self._fresh else 0.0
        self._fresh = False
        seen = {face.id for face in faces}
        for face in faces:
            _, before = self._shown.get(face.id, (face, start))
            self._shown[face.id] = face, min(1.0, before + _FADE_STEP)
        for gone in self._shown.keys() - seen:
            face, before = self._shown[gone]
            self._shown[gone] = face, before - _FADE_STEP
        self._shown = {id: shown for id, shown in self._shown.items() if shown[1] > 0}
        return list(self._shown.values())


class CpuMatteEditor:
    """Changes mattes on the host; the reference."""

    def __init__(self, format: FrameFormat) -> None:
        self._factor = analysis_factor(format.width, format.height)
        self._limit: Plane8 | None = None

    def read(self, matte: Matte) -> Plane8:
        """The matte itself; see :meth:`MatteEditor.read`."""
        reduced: Plane8 = matte.reduced
        return reduced

    def missing(self, mattes: Sequence[Matte], cells: NDArray[np.int32]) -> list[float]:
        """See :meth:`MatteEditor.missing`."""
        lacks = np.empty(len(cells), np.int64)
        for index, (matte, own) in enumerate(zip(mattes, cells, strict=True)):
            lacks[index] = np.add.reduce(255 - matte.reduced.take(own[own >= 0]), dtype=np.int64)
        return missing_shares(lacks, cells)

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Change a matte; see :meth:`MatteEditor.apply`."""
        if limit is not None:
            self._cut(matte, limit)
        if cover is None:
            return
        patches = [paint(outline) for outline in cover.outlines]
        # All is looked at before anything is filled in: faces may overlap.
        shares = [
            _coverage(matte.reduced, outline, patch)
            for outline, patch in zip(cover.outlines, patches, strict=True)
        ]
        if on_coverage is not None:
            on_coverage(shares[: len(cover.faces)])
        for outline, patch, share in zip(cover.outlines, patches, shares, strict=True):
            missing = (1 - share - MISSED_SHARE) / (FILLED_SHARE - MISSED_SHARE)
            if missing > 0 and outline.opacity > 0:
                self._fill(matte, outline.box, patch, outline.opacity * min(1.0, missing))

    def _cut(self, matte: Matte, limit: Plane8) -> None:
        np.minimum(matte.reduced, limit, out=matte.reduced)
        self._limit = self._enlarge(limit, self._limit)
        height, width = matte.alpha.shape
        cv2.min(matte.alpha, self._limit[:height, :width], dst=matte.alpha)

    def _fill(
        self, matte: Matte, box: tuple[int, int, int, int], patch: Plane8, strength: float
    ) -> None:
        """Fill in a face, in this box of the grid, by what it encloses there."""
        table = _fill_table(strength)
        left, top, right, bottom = box
        cells = matte.reduced[top:bottom, left:right]
        cv2.max(cells, cv2.LUT(patch, table), dst=cells)
        # The box's outermost cells are free, or the grid's; nothing beyond them has a part in it.
        factor = self._factor
        shown = matte.alpha[top * factor : bottom * factor, left * factor : right * factor]
        large = cv2.LUT(self._enlarge(patch, None), table)
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


def _coverage(reduced: Plane8, outline: Outline, patch: Plane8) -> float:
    """The share of a face that a matte covers, 0–1; 1 where the face has no inside on the grid."""
    left, top, right, bottom = outline.box
    inside = cv2.LUT(patch, _WHOLE_FILL).astype(np.int64)
    total = int(inside.sum())
    covered = int((inside * reduced[top:bottom, left:right]).sum())
    return covered / (255.0 * total) if total else 1.0
