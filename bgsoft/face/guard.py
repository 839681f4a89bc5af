"""Faces to fill in in a matte, and how strongly; :mod:`bgsoft.face.editor` fills them in.

Samples of the matte in the face's expected outline show whether it may lack a part of the face.
Only then landmarks are made, which give the outline itself. A face that the mask has stays as it
is, bit for bit. The more of a face is missing, the stronger it is filled in, so nothing flickers.

Everything lies on the analysis frame, and is enlarged as the matte is. A cover is the share of a
square around a cell that the outline encloses. The fill begins at one half, the outline itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import EXPECTED_HALF, EXPECTED_RISE, OUTLINE_POINTS, Face, oval_points

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
        ("points", np.float32, (2, OUTLINE_POINTS)),
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
