"""Parts of the frame that passes see: round all people, round each person, round faces, tiles.

Found on the host, in means over cells of masks.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import FrameFormat
from bgsoft.records import NamedTuple

CELL = 4
"""Samples of the analysis frame, each way, in a cell: the unit in which the picture is watched.
Also in zoom.cu."""
Cells = NDArray[np.float32]
"""(⌈gh / 4⌉, ⌈gw / 4⌉): means of a plane of the analysis frame over its cells."""

_PERSON, _EXTENT = 0.5, 0.3
"""Mean of the whole passes from which a cell shows a person; value of either pass from which it
belongs to that person."""
_MIN_PERSON = 0.002
"""Share of the frame of the smallest region that has a close pass."""
TILES = 6
"""Number of tiles."""
_TILE = 0.4, 0.56
"""Parts of the frame's longer and shorter side of a tile; three by two of them cover it."""
_MARGIN = 0.125
"""Margin at each end, as a part of the box's side: people move until the next turn, and the model
needs their surroundings."""
_WHOLE = 0.95
"""Share of the frame from which the box is the frame: a closer one would show nothing more."""
_WHOLE_APART = 0.5
"""Share of the frame from which the box is the frame, if people stand apart. Of those who move,
only the close pass counts, and it would show them little larger. Over ten scenes of two people, the
second one walking in, the mean IoU was 0.74 with it (``best``: 0.77), and 0.65 (0.71) at 0.95."""
_FADE = 0.08
"""Part of the box's side over which the close pass fades in from a border inside the frame."""
_WEIGHT = 2.0
"""Weight of the close pass; each whole pass has 1. Where the box is the frame, it is 1, too."""
_SMALL, _MAX_WEIGHT = 0.1, 8.0
"""Share of the frame below which a smaller box gives its close pass more weight, and the largest
such weight. Whole passes do not see small figures, which is no evidence against them."""
_SAME_BUST, _SAME_PERSON = 0.6, 0.7
"""Intersection over union of nearly equal boxes: of a bust with its person, and of a single person
with the box around all. A second pass there shows nothing new, and it repeats the first's errors.
"""
_BUST, _BODY = (2.5, 2.2, 2.8), (3.5, 2.2, 7.8)
"""Extents around a face, in face sizes from its centre: to either side, up and down."""


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

        def span(first: int, last: int, count: int, size: int) -> tuple[int, int]:
            start = min(2 * round(first * size / (2 * count)), (size - 1) // 2 * 2)
            stop = size if last == count else 2 * round(last * size / (2 * count))
            return start, max(stop, min(start + 2, size))

        left, right = span(self.left, self.right, columns, format.width)
        top, bottom = span(self.top, self.bottom, rows, format.height)
        return left, top, right, bottom

    def iou(self, other: Box) -> float:
        """Intersection over union with another box, in [0, 1]."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        common = max(0, width) * max(0, height)
        areas = (box.shape[0] * box.shape[1] for box in (self, other))
        return common / (sum(areas) - common)

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
        return min(_MAX_WEIGHT, _WEIGHT * max(1.0, _SMALL / share))


class Places(NamedTuple):
    """Places of people in a frame."""

    around: Box | None = None
    """One box round all of them, with a margin; None: there is nobody."""
    people: tuple[Box, ...] = ()
    """A box round each person, with a margin. Those whose boxes would overlap share one. A single
    person has the box round all, unless that is much larger."""
    closer: tuple[Box, ...] = ()
    """Boxes that show somebody larger than :attr:`around` does: of head and shoulders where faces
    are known, and of people who are not alone."""


def cell_shape(grid: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of cells that cover a grid."""
    return -(-grid[0] // CELL), -(-grid[1] // CELL)


def find_places(mean: Cells, either: Cells, faces: Sequence[Box], grid: tuple[int, int]) -> Places:
    """Find the people who are no specks.

    Args:
        mean: Mean of the whole passes.
        either: Maximum of the whole passes.
        faces: Boxes of faces. A face outside all regions adds the region of a body.
        grid: (gh, gw).
    """
    sure = mean > _PERSON
    bodies = []
    for face in faces:
        row, column = (face.top + face.bottom) // (2 * CELL), (face.left + face.right) // (2 * CELL)
        if not sure[min(row, sure.shape[0] - 1), min(column, sure.shape[1] - 1)]:
            left, top, right, bottom = _surroundings(face, _BODY, grid)
            bodies.append(Box(left // CELL, top // CELL, -(-right // CELL), -(-bottom // CELL)))
    regions, apart = ([*_regions(where, sure), *bodies] for where in (either > _EXTENT, sure))
    if not regions:
        return Places()
    around = _with_margin(_union(regions), grid)
    share = _WHOLE if len(regions) == 1 else _WHOLE_APART
    if around.shape[0] * around.shape[1] >= share * grid[0] * grid[1]:
        around = Box(0, 0, grid[1], grid[0])
    people: list[Box] = []
    for region in apart:
        box = _with_margin(region, grid)
        while touching := [other for other in people if box.iou(other) > 0]:
            people = [other for other in people if other not in touching]
            box = _union([box, *touching])
        people.append(box)
    if len(people) == 1 and around.iou(people[0]) > _SAME_PERSON:
        people = [around]
    busts = (_surroundings(face, _BUST, grid) for face in faces)
    heads = [bust for bust in busts if all(bust.iou(each) <= _SAME_BUST for each in people)]
    return Places(around, tuple(people), (*heads, *(each for each in people if each != around)))


def _union(boxes: Sequence[Box]) -> Box:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return Box(min(lefts), min(tops), max(rights), max(bottoms))


def _surroundings(face: Box, reach: tuple[float, float, float], grid: tuple[int, int]) -> Box:
    """Return the part of the frame around a face, at least one sample."""
    rows, columns = face.shape
    size = (rows + columns) / 2
    x, y = (face.left + face.right) / 2, (face.top + face.bottom) / 2
    across, up, down = (size * each for each in reach)
    left = min(max(0, round(x - across)), grid[1] - 1)
    top = min(max(0, round(y - up)), grid[0] - 1)
    right, bottom = min(grid[1], round(x + across)), min(grid[0], round(y + down))
    return Box(left, top, max(left + 1, right), max(top + 1, bottom))


def _regions(where: NDArray[np.bool_], sure: NDArray[np.bool_]) -> list[Box]:
    """Return the regions of which more than a speck is sure, in cells."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(where.view(np.uint8))
    cells = np.bincount(labels[sure], minlength=count)
    found = stats[1:, :4][cells[1:] >= _MIN_PERSON * where.size].tolist()
    return [Box(left, top, left + width, top + height) for left, top, width, height in found]


def _with_margin(cells: Box, grid: tuple[int, int]) -> Box:
    """Return a box of cells in samples, with a margin."""
    down, across = (round(_MARGIN * CELL * side) for side in cells.shape)
    left, top, right, bottom = (CELL * at for at in cells)
    return Box(
        max(left - across, 0),
        max(top - down, 0),
        min(right + across, grid[1]),
        min(bottom + down, grid[0]),
    )


def tiles(grid: tuple[int, int]) -> list[Box]:
    """Return where to search for somebody whom no pass over the whole frame shows."""
    shares, counts = (_TILE[::-1], (2, 3)) if grid[1] >= grid[0] else (_TILE, (3, 2))
    spans = []
    for side, share, count in zip(grid, shares, counts, strict=True):
        length = max(1, round(share * side))
        starts = (round(at * (side - length) / (count - 1)) for at in range(count))
        spans.append([(start, start + length) for start in starts])
    return [Box(left, top, right, bottom) for top, bottom in spans[0] for left, right in spans[1]]
