"""Mattes as faces change them: cut down to a limit, then filled in where a face is missing.

Samples of the matte in the face's expected outline show whether it may lack a part of the face.
Only then landmarks are made, which give the outline itself. A face that the mask has stays as it
is, bit for bit. The more of a face is missing, the stronger it is filled in, so nothing flickers.

Everything lies on the analysis frame, and is enlarged as the matte is. A cover is the share of a
square around a cell that the outline encloses. The fill begins at one half, the outline itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.cuda.readback import Readback
from bgsoft.face.base import EXPECTED_HALF, EXPECTED_RISE, FACE_OVAL, Face, oval_points
from bgsoft.face.geometry import Roi
from bgsoft.frame import FrameFormat, Matte
from bgsoft.ops.placement import HOST, Placement

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

Plane8 = NDArray[np.uint8]

MAX_MEASURED = 32
"""Faces of a frame that are measured; more are guarded all the same. A device keeps room for them.
"""

MISSED_SHARE = 0.05
"""A mask that lacks more of a face than this has missed it."""
FILLED_SHARE = 0.15
"""Lacking share from which a face is filled in fully; below, the filling fades evenly."""

MAY_MISS_SHARE = 0.01
"""Landmarks are made where the matte lacks more of an expected face than this."""
_EXPECTED_SCALE = 0.95
"""Scale of the expected outline in which that is measured."""
_AXIS = (np.arange(20) + 0.5) / 10 - 1
_SQUARE = np.stack(np.meshgrid(_AXIS, _AXIS))
_DISC = _SQUARE[:, np.hypot(*_SQUARE) < 1].T
EXPECTED_SAMPLES = (_DISC * (_EXPECTED_SCALE * np.array(EXPECTED_HALF)) - (0.0, EXPECTED_RISE)).T
"""(2, P) float64: where that is in a face's square, x along the line between its eyes and y down
from its middle, in parts of the square's side."""

_GROWTH = 0.95
"""Scale of an outline, so that enlarged cells do not reach beyond the face."""
_FEATHER = 0.05
"""Width of the soft edge, as a fraction of the face's width on the grid."""
_FADE_STEP = 0.25
"""Change of a guard's strength in each frame."""

OUTLINE = np.dtype(
    [
        ("points", np.float32, (2, len(FACE_OVAL))),
        ("scale", np.float32),
        ("shift", np.float32, 2),
        ("opacity", np.float32),
        ("side", np.int32),
        ("box", np.int32, 4),
    ]
)
"""One face's outline on the grid, in cells; a cell's centre is at half a cell. ``Outline`` of
``bgsoft/ops/face.cu``.

- points: all x and all y, in frame pixels.
- scale, shift: points times scale plus shift is the outline in cells, where the soft edge begins.
- opacity: of the fill where the face is missing, 0–1.
- side: of the square around a cell, in cells; odd. The soft edge is half as wide.
- box: left, top, right, bottom of the cells whose squares the outline touches, half-open, not
  empty, inside the grid. The outermost ones are not touched, except at the grid's edge.
"""

_ROI = np.dtype([(name, np.float64) for name in ("x", "y", "across", "down")])
"""``Square`` of ``bgsoft/ops/face.cu``."""

_COVER_BLOCK, _MISSING_BLOCK = (256, 1, 1), (128, 1, 1)
"""Threads of a device that measure one face, how it is covered and what its matte missing."""
_MAX_MEASURED_TOGETHER = 64
"""Faces of which what their mattes lack is waited for together, at most."""
_COVERAGE_BATCH = 16
"""Frames of a device with covers whose coverage is waited for together."""

OnCoverage = Callable[[Sequence[int], Sequence[float]], None]
"""Called with ids of measured faces, and of each the share, 0–1, that the matte covered before it
was filled in. The soft edge counts as much as it is opaque. The call may come some frames later."""


def lay_outlines(
    faces: Sequence[tuple[Face, float]], cell: float, grid: tuple[int, int]
) -> tuple[NDArray[np.void], list[int]]:
    """Lay the outlines of faces, each to be filled in as opaque as given (0–1), on the grid.

    Args:
        faces: Those out of sight, or without an outline, are left out.
        cell: Cells of a frame pixel.
        grid: Their rows and columns.

    Returns:
        (N,) :data:`OUTLINE`, those of measured faces first; and their ids, at most
        :data:`MAX_MEASURED`.
    """
    laid = [
        (opacity < 1, face.id, outline)
        for face, opacity in faces
        if (outline := _outline(face, opacity, cell, grid)) is not None
    ]
    laid.sort(key=itemgetter(0))
    ids = [id for is_fading, id, _ in laid if not is_fading][:MAX_MEASURED]
    return np.array([outline for *_, outline in laid], OUTLINE), ids


def _outline(
    face: Face, opacity: float, cell: float, grid: tuple[int, int]
) -> tuple[Any, ...] | None:
    """A face's :data:`OUTLINE`; None where it is out of sight or no outline."""
    points = oval_points(face)
    # Plain numbers from here on: for so few, an array operation takes as long as ten of theirs.
    (low_x, low_y), (high_x, high_y) = points.min(axis=1).tolist(), points.max(axis=1).tolist()
    if not math.isfinite(low_x + low_y + high_x + high_y):
        return None
    x, y = (low_x + high_x) / 2, (low_y + high_y) / 2
    scale = _GROWTH * cell
    half_x, half_y = scale * (high_x - low_x) / 2, scale * (high_y - low_y) / 2
    radius = round(_FEATHER * 2 * half_x)
    # Half a square beyond the outline, and a cell or two that stay free.
    reach = radius + 3
    rows, columns = grid
    left = max(0, math.floor(x * cell - half_x) - reach)
    top = max(0, math.floor(y * cell - half_y) - reach)
    right = min(columns, math.ceil(x * cell + half_x) + reach)
    bottom = min(rows, math.ceil(y * cell + half_y) + reach)
    if left >= right or top >= bottom:
        return None
    shift = x * (cell - scale), y * (cell - scale)
    return points, scale, shift, opacity, 2 * radius + 1, (left, top, right, bottom)


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
        start, self._fresh = float(self._fresh), False
        now = {face.id: face for face in faces}
        new = {id: (face, start) for id, face in now.items() if id not in self._shown}
        self._shown = {
            id: (now.get(id, face), min(1.0, last + (_FADE_STEP if id in now else -_FADE_STEP)))
            for id, (face, last) in (self._shown | new).items()
            if id in now or last > _FADE_STEP
        }
        return [*self._shown.values()]


class MatteEditor:
    """Reads and changes mattes of frames of one format.

    One thread may read them, :meth:`read` and :meth:`missing`, while another one changes others; of
    a device each on its own stream.

    Args:
        format: Format of the frames.
        placement: Host or device of the mattes.
        device: Whose copies are counted; None: on the host.
    """

    def __init__(
        self, format: FrameFormat, placement: Placement = HOST, device: CudaDevice | None = None
    ) -> None:
        self._placement, self._device = placement, device
        self._grid = grid = analysis_shape(format.width, format.height)
        factor = analysis_factor(format.width, format.height)
        self._cell = 1.0 / factor
        self._measure_missing = placement.operation("face", "measure_missing", block=_MISSING_BLOCK)
        self._measure_covers = placement.operation("face", "measure_covers", block=_COVER_BLOCK)
        self._edit_matte = placement.operation("face", "edit_matte")
        self._staged = Readback(placement, grid, np.uint8)
        self._samples = placement.array(EXPECTED_SAMPLES)
        self._missing = Readback(placement, _MAX_MEASURED_TOGETHER, np.float64)
        self._sizes = *grid, *format.luma_shape, factor.bit_length() - 1
        self._lines = placement.scratch(2 * grid[1] * factor, np.uint16)
        shape = (_COVERAGE_BATCH if placement.on_device else 1, MAX_MEASURED)
        self._coverage = Readback(placement, shape, np.float32)
        self._listeners: list[tuple[OnCoverage, list[int]]] = []

    def read(self, matte: Matte) -> Plane8:
        """A matte on the host: (gh, gw), only to be read; overwritten by the next call."""
        self._placement.copy(matte.reduced, self._staged.array)
        self._receive(self._staged)
        plane: Plane8 = self._staged.host
        return plane

    def _receive(self, what: Readback) -> None:
        sent = what.send()
        if self._device is not None:
            self._device.copies.add_d2h(sent)
        what.wait()

    def missing(self, asked: Sequence[tuple[Matte, Roi]]) -> list[float]:
        """Return the share of each expected face that its matte lacks, 0–1.

        Of the faces that landmarks would be made of in these squares; what lies beyond the frame
        does not count.
        """
        cell, samples, missing = self._cell, self._samples, self._missing
        size, points = (1, _MISSING_BLOCK[0]), samples.shape[1]
        shares: list[float] = []
        for first in range(0, len(asked), _MAX_MEASURED_TOGETHER):
            part = asked[first : first + _MAX_MEASURED_TOGETHER]
            for index, (matte, (x, y, side, angle)) in enumerate(part):
                across, down = cell * side * math.cos(angle), cell * side * math.sin(angle)
                own = np.array([(cell * x, cell * y, across, down)], _ROI)
                arguments = matte.reduced, own, samples, missing.array, points, *self._grid
                self._measure_missing(size, *arguments, index)
            shares += missing.read(len(part)).tolist()
        return shares

    def apply(
        self,
        matte: Matte,
        faces: Sequence[tuple[Face, float]],
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Cut a matte down to ``limit``, (gh, gw), then fill in the faces that are missing from it.

        Both of its planes are changed in place. Faces are filled in as opaque as given (0–1); of
        those that are whole so, its coverage in between is reported to ``on_coverage``.
        """
        outlines, ids = lay_outlines(faces, self._cell, self._grid)
        if limit is None and not len(outlines):
            return
        ceiling = None if limit is None else self._placement.array(limit)
        if limit is not None and self._device is not None:
            self._device.copies.add_h2d(limit.nbytes)
        measured = 0 if on_coverage is None else len(ids)
        count, laid = len(outlines), self._placement.array(outlines.view(np.uint8))
        shares = self._placement.xp.empty((count, *self._grid), np.uint8)
        strengths = self._placement.xp.empty(count, np.int32)
        # All faces are measured before any is filled in: they may overlap.
        if count:
            coverage = self._coverage.array[len(self._listeners)]
            self._measure_covers(
                (1, count * _COVER_BLOCK[0]),
                *(matte.reduced, ceiling, laid, shares, strengths, coverage),
                *(*self._grid, count, measured, MISSED_SHARE, FILLED_SHARE),
            )
        planes = matte.reduced, matte.alpha, self._lines
        self._edit_matte(self._grid, ceiling, laid, shares, strengths, *planes, count, *self._sizes)
        if on_coverage is not None and measured:
            self._listeners.append((on_coverage, ids))
            if len(self._listeners) == len(self._coverage.array):
                self._report_coverage()

    def _report_coverage(self) -> None:
        """Report the measured coverage, in order; waits for the stream."""
        self._receive(self._coverage)
        listeners, self._listeners = self._listeners, []
        for (on_coverage, ids), row in zip(listeners, self._coverage.host, strict=False):
            on_coverage(ids, row[: len(ids)].tolist())

    def close(self) -> None:
        """Report the coverage that is outstanding; safe to call twice."""
        if self._listeners:
            self._report_coverage()
