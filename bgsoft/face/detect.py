"""The face detector's inputs that hold a whole frame, and the faces in its raw output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.geometry import Affine, Box, box_area, box_iou, shared_area
from bgsoft.frame import FrameFormat
from bgsoft.ops.placement import HOST
from bgsoft.records import NamedTuple

STRIDES = (8, 16, 32)
"""Input pixels per cell of each grid that predicts."""
MAX_OVERLAP = 0.3
"""Boxes that share more than this (intersection over union) are one face; OpenCV's value for this
model."""
PREDICTION_VALUES = 16
"""Numbers of a prediction in the detector's output."""
_VALUES = 15
"""Numbers of a face in what ``detections.cu`` finds."""
BORDER_PX, COARSE_BORDER_PX = 32, 6
"""Smallest width of the mirrored border, input pixels, and that of inputs of 320 pixels. There, a
wider one shows no more faces that an edge cuts (768 face-frames: 592 with 6, 564 with 32)."""


class Canvas(NamedTuple):
    """An input of the detector for frames of one format at one scale."""

    frame_width: int
    frame_height: int
    width: int
    height: int
    """Height of the input, pixels."""
    scale: float
    """Input pixels a frame pixel."""

    @classmethod
    def of(
        cls, format: FrameFormat, scale: float, border: int = BORDER_PX, *, on_side: bool = False
    ) -> Canvas:
        """Return the canvas for frames of a format, upright or turned by a quarter."""
        sides = (format.width, format.height)[:: -1 if on_side else 1]
        width, height = (
            math.ceil((side * scale + 2 * border) / STRIDES[-1]) * STRIDES[-1] for side in sides
        )
        return cls(format.width, format.height, width, height, scale)

    def view(self, quarters: int = 0) -> Affine:
        """Return the transform from input to frame, which is shown turned by quarters."""
        turn, centre = 1j ** (quarters % 4), (self.width / 2, self.height / 2)
        middle = self.frame_width / 2, self.frame_height / 2
        return Affine.about(1 / self.scale, turn, centre, middle)


class Canvases(NamedTuple):
    """The canvases that a finder uses; None: not used."""

    whole: Canvas
    half: Canvas | None
    """Canvas at half the scale."""
    on_side: Canvas | None
    """Turned by a quarter."""
    fine: Canvas | None
    """At a larger scale than the whole frame."""


class Detection(NamedTuple):
    """A face that the detector sees, in frame pixels."""

    box: Box
    """Left, top, right, bottom; from forehead to chin. May reach over the frame's edge."""
    angle: float
    """Radians by which the face is turned clockwise on the screen; 0: upright."""
    score: float
    """In [0, 1]."""
    is_sure: bool = False
    """A face, whatever else is seen of it."""
    needed: int = 1
    """Sightings of its track, this one included, from which it counts where faces are hidden."""

    def turned(self, angle: float) -> Detection:
        """Return it turned by so many radians, clockwise."""
        return self._replace(angle=self.angle + angle)


def merge(found: Iterable[Detection]) -> list[Detection]:
    """Join what several views of one picture found; best first, sure where one of them was.

    A box that lies mostly inside a better one is the same face, too, if that counts by itself. A
    larger box around it is not: a head in front of a face in a picture was open.
    """
    kept: list[Detection] = []
    for each in sorted(found, key=attrgetter("score"), reverse=True):
        at = next((at for at, other in enumerate(kept) if _are_one(other, each)), None)
        if at is None:
            kept.append(each)
        elif each.is_sure:
            needed = min(each.needed, kept[at].needed) if kept[at].is_sure else each.needed
            kept[at] = kept[at]._replace(is_sure=True, needed=needed)
    return kept


def _are_one(better: Detection, other: Detection) -> bool:
    counts = better.is_sure and better.needed == 1
    if counts and shared_area(better.box, other.box) > 0.5 * box_area(other.box):
        return True
    return box_iou(better.box, other.box) > MAX_OVERLAP


def grid_cells(height: int, width: int) -> NDArray[np.float32]:
    """The cells that the rows of the detector's output belong to.

    Returns:
        (N, 3) float32, column, row and stride in input pixels: grid after grid, row by row.
    """
    grids = []
    for stride in STRIDES:
        row, column = np.indices((height // stride, width // stride), np.float32)
        grids.append(np.stack([column, row, np.full_like(row, stride)], axis=-1).reshape(-1, 3))
    return np.concatenate(grids)


class DetectionReader:
    """From the detector's raw output to faces, on the host.

    Args:
        height, width: Of the detector's input, pixels.
        max_views: Views that are read at a time.
    """

    def __init__(self, height: int, width: int, max_views: int) -> None:
        self._cells = grid_cells(height, width)
        self._left = np.empty((max_views, len(self._cells)), np.int32)
        self._scores = np.empty((max_views, len(self._cells)), np.float32)
        self._find = HOST.operation("detections", "find_faces")
        # Room for a face in each cell; the system provides only memory that is written.
        self._found = np.empty((max_views, 1 + len(self._cells) * _VALUES))

    def read(
        self, views: Sequence[Affine], faces: NDArray[np.float32], min_score: float
    ) -> list[list[Detection]]:
        """The faces of each view, best first, in frame pixels.

        Args:
            views: The views.
            faces: (views or more, N, 16) float32, the output of ``scripts/convert_yunet.py``.
            min_score: Of a prediction that counts, in (0, 1].
        """
        count, cells, found = len(views), self._cells, self._found
        self._find(
            *((1, count), np.array(views, float), faces, cells, self._left, self._scores, found),
            *(count, len(cells), len(cells), min_score, MAX_OVERLAP),
        )
        return [*map(_detections, found[:count])]


def _detections(found: NDArray[np.float64]) -> list[Detection]:
    rows = found[1 : 1 + int(found[0]) * _VALUES].reshape(-1, _VALUES).tolist()
    return [
        Detection(
            (x - width / 2, y - height / 2, x + width / 2, y + height / 2), _angle(points), score
        )
        for x, y, width, height, *points, score in rows
    ]


def _angle(points: Sequence[float]) -> float:
    """Return the angle by right and left eye, nose, and right and left corner of the mouth.

    The line between the eyes and the one from eyes to mouth count alike: the first is short from
    the placement.
    """
    right_x, right_y, left_x, left_y, _, _, one_x, one_y, other_x, other_y = points
    across, down = left_x - right_x, left_y - right_y
    fall_x = (one_x + other_x - right_x - left_x) / 2
    fall_y = (one_y + other_y - right_y - left_y) / 2
    one, other = math.hypot(across, down) or 1.0, math.hypot(fall_x, fall_y) or 1.0
    return math.atan2(down / one - fall_x / other, across / one + fall_y / other)
