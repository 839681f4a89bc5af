"""Boxes of close passes: round people, faces and tiles."""

from __future__ import annotations

import numpy as np
import pytest

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import FrameFormat
from bgsoft.segment.boxes import (
    Box,
    Cells,
    Places,
    cell_shape,
    find_places,
    tiles,
)

GRID = (160, 240)
CELLS = cell_shape(GRID)


def cells(value: float = 0.0) -> Cells:
    return np.full(CELLS, value, np.float32)


def person(rows: slice = slice(10, 30), columns: slice = slice(20, 40)) -> Cells:
    mask = cells()
    mask[rows, columns] = 1
    return mask


def box_of(mask: Cells, either: Cells | None = None) -> Box | None:
    return find_places(mask, mask if either is None else either, (), GRID).around


def test_the_box() -> None:
    whole, alone = Box(0, 0, 240, 160), Box(70, 30, 170, 130)
    assert box_of(cells()) is None
    assert box_of(cells(0.3)) is None
    speck = person(slice(0, 2), slice(0, 2))  # a sixth of a percent
    assert box_of(speck) is None
    assert box_of(person() + speck) == box_of(person()) == alone
    near, far = person(slice(32, 35), slice(42, 48)), person(slice(30, 40), slice(55, 60))
    assert box_of(person() + near) == Box(66, 28, 206, 152)
    assert box_of(person() + far) == whole
    assert box_of(person(slice(8, 40), slice(20, 60))) == Box(60, 16, 240, 160), "one person"
    assert box_of(cells(0.6)) == whole
    assert box_of(person(slice(1, 40), slice(0, 60))) == whole
    # What one model alone sees counts where it belongs to a person.
    faint = 0.45 * person()
    assert box_of(cells(), faint) is None
    other = person(slice(30, 35), slice(50, 55))
    assert box_of(other, other + faint) == box_of(other)
    head = person(slice(5, 10), slice(28, 32))
    assert box_of(person(), person() + 0.35 * head) == box_of(person() + head)
    assert box_of(person(), person() + 0.25 * head) == alone


@pytest.mark.parametrize("grid", [(160, 240), (240, 160), (135, 240), (1, 1)])
def test_tiles_cover_the_frame(grid: tuple[int, int]) -> None:
    seen = np.zeros(grid, bool)
    for tile in tiles(grid):
        seen[tile.top : tile.bottom, tile.left : tile.right] = True
        assert 0 <= tile.top < tile.bottom <= grid[0]
        assert 0 <= tile.left < tile.right <= grid[1]
    assert seen.all()


@pytest.mark.parametrize("size", [(2, 64), (64, 2), (2, 2), (3, 3), (1, 5), (4, 7)])
def test_no_part_of_a_small_frame_is_empty(size: tuple[int, int]) -> None:
    format = FrameFormat(width=size[0], height=size[1])
    for box in tiles(analysis_shape(*size)):
        left, top, right, bottom = box.in_pixels(format)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]
        assert left % 2 == top % 2 == 0


@pytest.mark.parametrize("size", [(1920, 1080), (1366, 767), (641, 359), (33, 21), (1, 1)])
def test_a_box_in_pixels(size: tuple[int, int]) -> None:
    format = FrameFormat(width=size[0], height=size[1])
    rows, columns = analysis_shape(*size)
    assert Box(0, 0, columns, rows).in_pixels(format) == (0, 0, *size)
    box = Box(columns // 3, rows // 4, columns // 2 + 1, rows // 2 + 1)
    left, top, right, bottom = box.in_pixels(format)
    assert left % 2 == top % 2 == 0
    assert left < right <= size[0]
    assert top < bottom <= size[1]
    for at, edge, count, side in (
        (left, box.left, columns, size[0]),
        (bottom, box.bottom, rows, size[1]),
    ):
        assert abs(at - edge * side / count) <= 1


def test_people_who_stand_apart_have_boxes_of_their_own() -> None:
    left, right, speck = slice(4, 14), slice(40, 50), slice(30, 31)
    mask = person(slice(10, 30), left)
    mask[10:30, right] = 1
    mask[2:3, speck] = 1
    # A margin of an eighth: 10 of 80 rows, 5 of 40 columns.
    people = find_places(mask, mask, (), GRID).people
    assert people == (Box(11, 30, 61, 130), Box(155, 30, 205, 130))
    close = person(slice(10, 30), slice(4, 14))
    close[10:30, slice(16, 26)] = 1
    # Their boxes overlap, so they share one, which is about the box round all.
    assert find_places(close, close, (), GRID).people == (Box(5, 30, 115, 130),)
    close[10:30, slice(44, 54)] = 1
    assert find_places(close, close, (), GRID).people == (
        Box(11, 30, 109, 130),
        Box(171, 30, 221, 130),
    )


def test_where_faces_are_people_are() -> None:
    mask, face = person(), Box(114, 40, 126, 52)
    known = find_places(mask, mask, [face], GRID)
    # Five faces wide, from 2.2 above the face's centre to 2.8 below.
    assert known.closer == (Box(90, 20, 150, 80),)
    assert known[:2] == find_places(mask, mask, (), GRID)[:2], "the mask shows this person"
    missed = Box(20, 56, 24, 60)
    places = find_places(mask, mask, [missed, face], GRID)
    # Seven wide and ten high: cells from 2 to 9 and from 12 to 23, and a margin of an eighth.
    assert places.people == (*known.people, Box(4, 42, 40, 98))
    assert places.around == Box(0, 30, 179, 130)
    assert places.closer == (Box(12, 49, 32, 69), *known.closer, *places.people)
    alone = find_places(cells(), cells(), [missed], GRID)
    assert alone.people == (Box(4, 42, 40, 98),)
    assert find_places(cells(), cells(), (), GRID) == Places()


def test_what_is_seen_is_not_seen_again() -> None:
    mask = person()
    alone = find_places(mask, mask, (), GRID)
    assert alone.people == (alone.around,)
    assert alone.closer == ()
    # A large face, whose head and shoulders are most of the person.
    assert find_places(mask, mask, [Box(110, 40, 130, 60)], GRID).closer == ()
    # One model takes what is next to the person for a part of it: little, and much.
    for columns, own in ((slice(40, 44), False), (slice(40, 60), True)):
        either = mask + 0.4 * person(columns=columns)
        places = find_places(mask, either, (), GRID)
        assert places.around == box_of(mask, either)
        assert places.people == (alone.people if own else (places.around,))
        assert places.closer == (places.people if own else ())


def test_a_face_at_the_edge_of_the_frame() -> None:
    corner = Box(235, -5, 245, 5)
    (bust,) = find_places(cells(), cells(), [corner], GRID).closer
    assert bust == Box(215, 0, 240, 28)
    speck = Box(240, 160, 240, 160)
    assert find_places(cells(), cells(), [speck], GRID).closer == (Box(239, 159, 240, 160),)


@pytest.mark.parametrize(
    ("other", "iou"),
    [
        (Box(2, 1, 6, 5), 1.0),
        (Box(4, 3, 8, 7), 4 / 28),
        (Box(6, 1, 10, 5), 0.0),
        (Box(8, 9, 9, 10), 0.0),
    ],
)
def test_intersection_over_union(other: Box, iou: float) -> None:
    assert Box(2, 1, 6, 5).iou(other) == pytest.approx(iou)
