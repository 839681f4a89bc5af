"""Which inference passes a frame has, where the close one is, and how they count.

For :mod:`bgsoft.segment.zoomed`. All of it is decided on the host, from means over cells, for
frames on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import Array, FrameFormat
from bgsoft.ops.sides import HOST
from bgsoft.records import NamedTuple, dataclass

GENERAL, LANDSCAPE = 0, 1
"""The two models' places in all sequences that have something of each."""
CELL = 4
"""Samples of the analysis frame, each way, in a cell: the unit in which the picture is watched.
Also in zoom.cu."""
Cells = NDArray[np.float32]
"""(⌈gh / 4⌉, ⌈gw / 4⌉): means of a plane of the analysis frame over its cells."""

_TURN = 4
"""Frames between whole passes, of either model in turn. Counted, as the next, by the frames' places
in the video: a chunk of it that is rendered alone keeps in step, and batches are not divided."""
_FEEDBACK = 8
"""Frames after each of which the mask has a say in where the box is: without, SAD of eight moving
people is 2.99, not 2.82."""
STILL, MOVED = 1.0, 3.5
"""Change of a cell's luma, in 8-bit codes, up to which a whole pass still counts in full, and from
which it does not count; like the temporal filter's."""
_NEWCOMER_CODES, _NEWCOMER_SHARE = 4.0, 0.001
"""Somebody may have come in where this part of the picture, outside the box, changed so much. While
a second person walks into ten scenes, the mean IoU is 0.891 with it, 0.880 without."""
_LEAST_WEIGHT = 0.01
"""Of the newest whole pass: it counts where nothing else does."""
_LIMITS = (((_LEAST_WEIGHT, 1.0), (0.0, 1.0)), ((0.0, 1.0), (_LEAST_WEIGHT, 1.0)))
"""The least and the most that each model's pass counts, by which of the models ran last."""
_UNUSED = (0.0, 0.0)
_PERSON, _EXTENT = 0.5, 0.3
"""From where on the mean of the whole passes shows a person; and from where on either shows what
else belongs to it."""
_SURE = 0.8
"""What counts as much as that in a pass over a part of the frame where nobody may be."""
_LEAST_PERSON = 0.002
"""Share of the frame of the smallest region that has a close pass."""
_TILE = 0.4, 0.56
"""Parts of the frame's longer and shorter side of a tile; three by two of them cover it."""
_MARGIN = 0.125
"""Of the box's side, added at each end: people move until the next whole pass, and the model wants
to see what is beside them."""
_STEADY = 0.08
"""Of the box's side: an edge that would move by less stays; another box is another picture to the
model (without, flicker is 0.056, not 0.052). A margin is a tenth of it, so nobody is cut."""
_WHOLE = 0.95
"""Share of the frame from which the box is the frame: a closer one would show nothing more."""
_WHOLE_APART = 0.5
"""The same where people stand apart: of those who move, the close pass alone counts, and it would
show them little larger. Over ten scenes of two people, the second one walking in, the mean IoU was
0.74 with it (``best``: 0.77), and 0.65 (0.71) at 0.95."""
_FADE = 0.08
"""Part of the box's side over which the close pass fades in from a border inside the frame."""
_WEIGHT = 2.0
"""Of the close pass, against 1 of each whole one; where the box is the frame, 1, too."""
_SMALL, _MOST_WEIGHT = 0.1, 8.0
"""Share of the frame below which a box's close pass counts the more, the smaller it is, up to this
much: of small figures the whole passes see nothing, and that is no evidence."""


class Box(NamedTuple):
    """A part of the frame, in samples of the analysis frame; half-open."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the analysis frame."""
        return self.bottom - self.top, self.right - self.left

    def in_pixels(self, format: FrameFormat) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) in the frame; even, but at its right and lower edges.

        It is never empty: in a frame of two or three pixels, a sample is less than a pair of them.
        """
        rows, columns = analysis_shape(format.width, format.height)

        def pixel(at: int, count: int, size: int) -> int:
            return size if at == count else 2 * round(at * size / (2 * count))

        left, top = (
            min(pixel(at, count, size), (size - 1) // 2 * 2)
            for at, count, size in (
                (self.left, columns, format.width),
                (self.top, rows, format.height),
            )
        )
        return (
            left,
            top,
            max(pixel(self.right, columns, format.width), min(left + 2, format.width)),
            max(pixel(self.bottom, rows, format.height), min(top + 2, format.height)),
        )

    def overlaps(self, other: Box) -> bool:
        """Whether both have samples in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def fade_widths(self, grid: tuple[int, int]) -> tuple[float, float, float, float]:
        """Samples that the close pass fades in over: left, top, right, bottom; 0 at the frame's."""
        rows, columns = (max(1.0, _FADE * side) for side in self.shape)
        return (
            columns if self.left > 0 else 0.0,
            rows if self.top > 0 else 0.0,
            columns if self.right < grid[1] else 0.0,
            rows if self.bottom < grid[0] else 0.0,
        )

    def weight(self, grid: tuple[int, int]) -> float:
        """Weight of the close pass, where it has faded in."""
        if self.shape == grid:
            return 1.0
        share = self.shape[0] * self.shape[1] / (grid[0] * grid[1])
        return min(_MOST_WEIGHT, _WEIGHT * max(1.0, _SMALL / share))


def cell_shape(grid: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of cells that cover a grid."""
    return -(-grid[0] // CELL), -(-grid[1] // CELL)


def find_box(person: Cells, either: Cells, grid: tuple[int, int]) -> Box | None:
    """One box round all people that are no specks, with a margin; None where there is nobody.

    ``person`` is the mean of the whole passes, ``either`` their maximum, ``grid`` (gh, gw).
    """
    return _box_of(_regions(either > _EXTENT, person > _PERSON), grid)


def _box_of(regions: Array, grid: tuple[int, int]) -> Box | None:
    if not regions.size:
        return None
    # Left and top, width and height.
    starts = regions[:, :2]
    first = np.minimum.reduce(starts)
    box = _with_margin(first, np.maximum.reduce(starts + regions[:, 2:4]), grid)
    share = _WHOLE if regions.shape[0] == 1 else _WHOLE_APART
    if box.shape[0] * box.shape[1] >= share * grid[0] * grid[1]:
        return Box(0, 0, grid[1], grid[0])
    return box


def _with_margin(first: Array, last: Array, grid: tuple[int, int]) -> Box:
    """The box from one cell to another, (column, row), with a margin."""
    margin = np.rint(_MARGIN * CELL * (last - first)).astype(np.int32)
    left, top = np.maximum(CELL * first - margin, 0).tolist()
    right, bottom = np.minimum(CELL * last + margin, grid[::-1]).tolist()
    return Box(left, top, right, bottom)


def _people_of(regions: Array, grid: tuple[int, int]) -> tuple[Box, ...]:
    """A box for each region, with a margin; one for those whose boxes overlap."""
    apart: list[Box] = []
    for left, top, width, height in regions[:, :4]:
        first = np.array([left, top])
        box = _with_margin(first, np.array([left + width, top + height]), grid)
        while touching := [other for other in apart if box.overlaps(other)]:
            apart = [other for other in apart if other not in touching]
            box = Box(
                *map(min, *(each[:2] for each in (box, *touching))),
                *map(max, *(each[2:] for each in (box, *touching))),
            )
        apart.append(box)
    return tuple(apart)


def tiles(grid: tuple[int, int]) -> list[Box]:
    """Where to search for somebody whom no pass over the whole frame shows."""
    shares, counts = (_TILE[::-1], (2, 3)) if grid[1] >= grid[0] else (_TILE, (3, 2))
    spans = []
    for side, share, count in zip(grid, shares, counts, strict=True):
        length = max(1, round(share * side))
        starts = (round(at * (side - length) / (count - 1)) for at in range(count))
        spans.append([(start, start + length) for start in starts])
    return [Box(left, top, right, bottom) for top, bottom in spans[0] for left, right in spans[1]]


def _steadied(box: Box | None, before: Box | None) -> Box | None:
    """The box before, where all edges lie near its own."""
    if box is None or before is None:
        return box
    left, top, right, bottom = before
    columns, rows = _STEADY * (right - left), _STEADY * (bottom - top)
    is_near = (
        -columns <= box.left - left <= columns
        and -columns <= box.right - right <= columns
        and -rows <= box.top - top <= rows
        and -rows <= box.bottom - bottom <= rows
    )
    return before if is_near else box


def _regions(where: NDArray[np.bool_], sure: NDArray[np.bool_]) -> Array:
    """OpenCV's statistics of the regions of which more than a speck is sure: (n, 5) int32."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(where.view(np.uint8))
    cells = np.bincount(labels[sure], minlength=count)
    return stats[1:][cells[1:] >= _LEAST_PERSON * where.size]


@dataclass(slots=True, eq=False)
class WholePass:
    """The result of one model's pass over the whole frame."""

    slot: int
    """Where its mask and its picture's cells are kept."""
    luma: Cells
    """The picture that it was of."""
    person: Cells


@dataclass(slots=True, eq=False)
class BlendWeights:
    """How the mask of one frame is blended from its passes."""

    luma: Cells
    """The picture."""
    passes: tuple[WholePass, WholePass]
    limits: tuple[tuple[float, float], tuple[float, float]]
    """The least and the most that each of them counts."""
    box: Box | None
    """Of the close pass; None: there is none."""
    people: tuple[Box, ...] = ()
    """Round those who stand apart; no two boxes overlap."""


class PassScheduler:
    """Decides which passes a frame has and how they count. Remembers earlier frames of the scene.

    Args:
        grid: (gh, gw) of the analysis frame.
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        self.grid = grid
        self._frame = Box(0, 0, grid[1], grid[0])
        self._find_people = HOST.operation("zoom", "find_people")
        self._found = [*np.zeros((2, *cell_shape(grid)), np.float32)]
        self.reset()

    def reset(self) -> None:
        """Forget the scene."""
        self._last: int | None = None
        self._since = 0
        # The first frame of a scene has both.
        self._passes: tuple[Any, Any] = (None, None)
        self._newest = GENERAL
        self._box: Box | None = None
        self._apart: tuple[Box, ...] = ()
        self._mask: Cells | None = None
        self._scan: Cells | None = None

    def due(self, indices: Sequence[int]) -> list[tuple[int, ...]]:
        """Whose whole passes the next frames, of these places in the video, have in any case."""
        before = None if self._last is None else self._last // _TURN
        due: list[tuple[int, ...]] = []
        for index in indices:
            turn = index // _TURN
            if before is None:
                due.append((GENERAL, LANDSCAPE))
            elif turn == before:
                due.append(())
            else:
                due.append((LANDSCAPE,) if turn % 2 == 0 else (GENERAL,))
            before = turn
        return due

    def wants_mask(self, index: int) -> bool:
        """Whether the last frame's mask is to be taken in before the frame of this place."""
        return self._last is not None and self._last // _FEEDBACK != index // _FEEDBACK

    @staticmethod
    def groups(indices: Sequence[int]) -> list[tuple[int, int]]:
        """Where groups of some frames start and stop that :meth:`wants_mask` divides."""
        if indices[0] // _FEEDBACK == indices[-1] // _FEEDBACK:
            return [(0, len(indices))]
        pairs = enumerate(pairwise(indices), 1)
        inner = [at for at, (a, b) in pairs if a // _FEEDBACK != b // _FEEDBACK]
        return list(pairwise([0, *inner, len(indices)]))

    def add_mask(self, mask: Cells) -> None:
        """Take in the cells of the last frame's mask."""
        self._mask = mask.copy()

    def add_pass(self, network: int, slot: int, luma: Cells, person: Cells) -> None:
        """Take in a model's whole pass over the next frame; see :class:`WholePass`."""
        made, (general, landscape) = WholePass(slot, luma.copy(), person.copy()), self._passes
        self._passes = (made, landscape) if network == GENERAL else (general, made)
        self._newest = network
        self._since = 0

    def wants_pass(self, luma: Cells) -> bool:
        """Whether somebody may have come in since the last whole pass, outside the box.

        Never on two frames one after the other, whatever the camera does.
        """
        if self._since < 2:
            return False
        changed = np.abs(luma - self._passes[self._newest].luma) > _NEWCOMER_CODES
        left, top, right, bottom = self._box or (0, 0, 0, 0)
        # Cells that the box cuts are inside.
        changed[top // CELL : -(-bottom // CELL), left // CELL : -(-right // CELL)] = False
        return bool(np.add.reduce(changed, None) > _NEWCOMER_SHARE * luma.size)

    def wants_scan(self, index: int, luma: Cells) -> bool:
        """Whether to search parts of the next frame for people; its passes have been taken in.

        Where no pass shows anybody for sure, on the first frame of a scene, and once in a while.
        """
        if self._last is not None and self._last // _FEEDBACK == index // _FEEDBACK:
            return False
        self._scan = None
        person, either = self._people(luma)
        return not _regions(either > _EXTENT, person > _PERSON).size

    def add_scan(self, people: Cells) -> None:
        """Take in the cells of what was found in the parts of the next frame."""
        self._scan = people * np.float32(_PERSON / _SURE)

    def close_only(self, box: Box, luma: Cells) -> BlendWeights:
        """Weights of hardly anything but the close pass."""
        return BlendWeights(luma, self._passes, (_UNUSED, (_LEAST_WEIGHT, _LEAST_WEIGHT)), box)

    def next(self, index: int, luma: Cells) -> BlendWeights:
        """How the next frame's mask is made; all its whole passes have been taken in."""
        if self._since == 0:
            person, either = self._people(luma)
            regions = _regions(either > _EXTENT, person > _PERSON)
            self._box = _steadied(_box_of(regions, self.grid), self._box)
            sure = person > _PERSON
            apart = _people_of(_regions(sure, sure), self.grid)
            if len(apart) == len(self._apart):
                pairs = zip(apart, self._apart, strict=True)
                apart = tuple(_steadied(*pair) or pair[0] for pair in pairs)
            self._apart = apart
        limits = _LIMITS[self._newest]
        self._last = index
        self._since += 1
        if self._box == self._frame:
            # The close pass is a fresh whole one of the same model.
            limits = _UNUSED, limits[LANDSCAPE]
        return BlendWeights(luma, self._passes, limits, self._box, self._apart)

    def _people(self, luma: Cells) -> tuple[Cells, Cells]:
        """The mean and the maximum of what is known; overwritten by the next call."""
        general, landscape = self._passes
        first, second = _LIMITS[self._newest]
        mean, either = self._found
        self._find_people(
            mean.shape,
            *(luma, general.luma, landscape.luma, *first, *second, MOVED, MOVED - STILL),
            *(general.person, landscape.person, self._mask, self._scan, luma.size, mean, either),
        )
        return mean, either
