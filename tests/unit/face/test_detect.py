"""The detector's output is read, and the faces of several views are joined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.face.detect import MAX_OVERLAP, Detection, DetectionReader, grid_cells, merge
from bgsoft.face.geometry import Affine, box_iou

HEIGHT, WIDTH = 64, 96
WHOLE = Affine(1, 0, 0, 0, 1, 0)
CELLS = grid_cells(HEIGHT, WIDTH)


def rows() -> NDArray[np.float32]:
    """An output without faces."""
    return np.zeros((len(CELLS), 16), np.float32)


def put(
    output: NDArray[np.float32],
    cell: int,
    box: tuple[float, float, float, float],
    score: float,
    points: NDArray[np.float64] | None = None,
) -> None:
    """Have a cell predict a face: left, top, right, bottom; five points x, y."""
    column, row, stride = CELLS[cell]
    left, top, right, bottom = box
    corner = np.array([column, row])
    middle = np.array([(left + right) / 2, (top + bottom) / 2])
    points = np.tile(middle, (5, 1)) if points is None else points
    output[cell, :2] = score, score
    output[cell, 2:4] = middle / stride - corner
    output[cell, 4:6] = np.log(np.array([right - left, bottom - top]) / stride)
    output[cell, 6:] = (points / stride - corner).ravel()


def read(
    output: NDArray[np.float32], view: Affine = WHOLE, min_score: float = 0.1
) -> list[Detection]:
    (found,) = DetectionReader(HEIGHT, WIDTH, 1).read([view], output[None], min_score)
    return found


def upright(x: float, y: float, size: float) -> NDArray[np.float64]:
    """Right eye, left eye, nose, and corners of the mouth."""
    places = np.array([(-1, -1), (1, -1), (0, 0), (-0.7, 1), (0.7, 1)])
    return np.array([x, y]) + size / 4 * places


def test_cells_are_of_three_grids_row_by_row() -> None:
    assert len(CELLS) == 8 * 12 + 4 * 6 + 2 * 3
    assert CELLS[[0, 1, 12, 95]].tolist() == [[0, 0, 8], [1, 0, 8], [0, 1, 8], [11, 7, 8]]
    assert CELLS[[96, 102, 120, 125]].tolist() == [[0, 0, 16], [0, 1, 16], [0, 0, 32], [2, 1, 32]]


@pytest.mark.parametrize("cell", [0, 50, 110, 125])
def test_a_face_is_where_its_cell_predicts_it(cell: int) -> None:
    output, box = rows(), (20.0, 8.0, 52.0, 48.0)
    put(output, cell, box, 0.7, upright(36, 28, 32))
    (found,) = read(output)
    assert found.box == pytest.approx(box, abs=1e-4)
    assert found.score == pytest.approx(0.7)
    assert found.angle == pytest.approx(0, abs=1e-6)
    assert not found.is_sure


def test_a_score_is_the_root_of_class_and_object() -> None:
    output = rows()
    put(output, 40, (20, 20, 40, 40), 0.5)
    output[40, :2] = 0.9, 0.4
    assert read(output)[0].score == pytest.approx(0.6)
    assert len(read(output, min_score=0.59)) == 1
    assert read(output, min_score=0.61) == []
    output[40, :2] = 3.0, 1.0  # above 1
    assert read(output)[0].score == 1.0


@pytest.mark.parametrize("quarters", range(4))
def test_faces_of_a_turned_view_are_in_the_frame(quarters: int) -> None:
    """The face is upright in the view, so it is turned in the frame."""
    angle = quarters * math.pi / 2
    cos, sin = round(math.cos(angle)), round(math.sin(angle))
    view = Affine(2 * cos, -2 * sin, 300, 2 * sin, 2 * cos, 200)
    output = rows()
    put(output, 40, (20, 10, 44, 42), 0.9, upright(32, 26, 24))
    (found,) = read(output, view)
    x, y = 300 + 2 * (cos * 32 - sin * 26), 200 + 2 * (sin * 32 + cos * 26)
    half = (24, 32) if quarters % 2 == 0 else (32, 24)
    assert found.box == pytest.approx((x - half[0], y - half[1], x + half[0], y + half[1]))
    assert math.remainder(found.angle - angle, math.tau) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("angle", [0.4, -0.9, 2.8])
def test_a_face_has_the_angle_of_its_points(angle: float) -> None:
    cos, sin = math.cos(angle), math.sin(angle)
    points = (upright(0, 0, 24) @ np.array([[cos, sin], [-sin, cos]])) + [32, 26]
    output = rows()
    put(output, 40, (20, 10, 44, 42), 0.9, points)
    assert read(output)[0].angle == pytest.approx(angle, abs=1e-5)


def test_from_the_side_eyes_and_mouth_give_the_angle() -> None:
    points = upright(32, 26, 24)
    points[:, 0] = 32  # the eyes are behind each other, and so are the mouth's corners
    output = rows()
    put(output, 40, (20, 10, 44, 42), 0.9, points)
    assert abs(read(output)[0].angle) < 1e-5


def test_best_first() -> None:
    output = rows()
    for cell, (x, score) in enumerate([(10, 0.4), (40, 0.9), (70, 0.6)]):
        put(output, cell, (x, 10, x + 16, 26), score)
    assert [each.score for each in read(output)] == pytest.approx([0.9, 0.6, 0.4])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("value", range(16))
def test_rows_that_are_no_numbers_are_skipped(value: int, bad: float) -> None:
    output = rows()
    put(output, 3, (10, 10, 26, 26), 0.95)
    put(output, 4, (50, 10, 66, 26), 0.5)
    output[3, value] = bad
    (found,) = read(output)
    assert found.box == pytest.approx((50, 10, 66, 26))


def test_huge_numbers_do_not_overflow() -> None:
    output = rows()
    put(output, 3, (10, 10, 26, 26), 0.95)
    output[3, 4:6] = 3e38
    (found,) = read(output)
    assert np.isfinite(found.box).all()


def slow_faces(
    boxes: NDArray[np.float64], scores: NDArray[np.float64]
) -> list[tuple[NDArray[np.float64], float]]:
    """Faces by the definition, one at a time."""
    left, found = [*np.argsort(-scores)], []
    while left:
        best = left[0]
        shared = {k: box_iou(boxes[best].tolist(), boxes[k].tolist()) for k in left}
        group = [k for k in left if shared[k] >= 0.5]
        found.append((np.average(boxes[group], axis=0, weights=scores[group]), scores[best]))
        left = [k for k in left if shared[k] <= MAX_OVERLAP and k != best]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_predictions_that_overlap_are_one_face_and_those_much_alike_are_averaged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 40, (60, 2)), rng.uniform(5, 25, (60, 2))
    boxes, scores = np.hstack([corner, corner + size]), rng.uniform(0.2, 1, 60)
    output = rows()
    cells = rng.choice(len(CELLS), 60, replace=False)
    for cell, box, score in zip(cells, boxes.tolist(), scores.tolist(), strict=True):
        put(output, cell, tuple(box), score)
    found = read(output)
    for each, (box, score) in zip(found, slow_faces(boxes, scores), strict=True):
        np.testing.assert_allclose(each.box, box, atol=1e-4)
        assert each.score == pytest.approx(score, abs=1e-6)


def test_all_of_more_than_64_faces_of_a_view_are_returned() -> None:
    """The buffer grows once, and other views keep their faces."""
    reader = DetectionReader(320, 320, 3)
    cells = grid_cells(320, 320)
    output = np.zeros((3, len(cells), 16), np.float32)
    for view, count in enumerate((5, 300, 0)):
        for cell in range(count):
            output[view, 5 * cell, :2] = 0.5 + cell / 1000
            output[view, 5 * cell, 2:4] = 0.5
            output[view, 5 * cell, 4:6] = np.log(0.5)
    for _ in range(2):
        found = reader.read([WHOLE] * 3, output, 0.3)
        assert [len(faces) for faces in found] == [5, 300, 0]
        column, row, stride = cells[5 * 299]
        best = found[1][0]
        assert best.score == pytest.approx(0.799)
        assert best.box == pytest.approx(
            [stride * (at + part) for part in (0.25, 0.75) for at in (column, row)]
        )


def test_exactly_as_many_faces_as_there_is_room_for() -> None:
    for count in (63, 64, 65, 255, 256, 257):
        reader = DetectionReader(320, 320, 1)
        output = np.zeros((1, 2100, 16), np.float32)
        output[0, :count, :2] = 0.9
        output[0, :count, 4:6] = -3
        assert len(reader.read([WHOLE], output, 0.5)[0]) == count


def test_fewer_views_than_there_is_room_for() -> None:
    reader = DetectionReader(HEIGHT, WIDTH, 4)
    output = np.stack([rows()] * 4)
    put(output[1], 40, (20, 20, 40, 40), 0.9)
    put(output[3], 40, (20, 20, 40, 40), 0.9)
    assert [len(faces) for faces in reader.read([WHOLE] * 2, output, 0.5)] == [0, 1]
    assert reader.read([], output, 0.5) == []


def detection(
    left: float, top: float, right: float, bottom: float, score: float, *, sure: bool = False
) -> Detection:
    return Detection((left, top, right, bottom), 0.0, score, sure)


def test_a_face_that_several_views_show_is_one_and_the_best() -> None:
    best = detection(10, 10, 50, 50, 0.9)
    again, other = detection(15, 10, 55, 50, 0.8), detection(60, 10, 90, 40, 0.3)
    assert merge([other, again, best]) == [best, other]
    assert merge([]) == []


def test_a_face_is_sure_where_one_view_is() -> None:
    """The turned view has the better score, but only the upright one is sure."""
    turned = detection(10, 10, 50, 50, 0.8)
    straight = detection(12, 10, 52, 50, 0.7, sure=True)
    assert merge([turned, straight]) == [turned._replace(is_sure=True)]


def test_what_lies_in_a_sure_face_is_that_face() -> None:
    face, part = detection(0, 0, 100, 100, 0.9, sure=True), detection(10, 10, 40, 40, 0.5)
    assert box_iou(face.box, part.box) < MAX_OVERLAP
    assert merge([face, part]) == [face]
    # What lies around it is not: a head with a face in a picture beside its chin.
    around = detection(0, 0, 300, 300, 0.8)
    assert merge([face, around]) == [face, around]
    # Not in something else: a face before a poster is none the less one.
    doubt = face._replace(is_sure=False)
    assert merge([doubt, part]) == [doubt, part]


@pytest.mark.parametrize(
    ("better", "other", "needed"),
    [
        ({"is_sure": True}, {"is_sure": True, "needed": 2}, 1),
        ({"is_sure": True, "needed": 2}, {"is_sure": True}, 1),
        ({"is_sure": True, "needed": 3}, {"is_sure": True, "needed": 2}, 2),
        ({}, {"is_sure": True, "needed": 2}, 2),  # the better one is no proof
        ({"needed": 2}, {"is_sure": True}, 1),
    ],
    ids=str,
)
def test_what_is_seen_twice_in_a_frame_needs_the_fewer_sightings(
    better: dict[str, Any], other: dict[str, Any], needed: int
) -> None:
    box = (0.0, 0.0, 40.0, 50.0)
    (found,) = merge([Detection(box, 0.0, 0.8, **other), Detection(box, 0.0, 0.9, **better)])
    assert (found.is_sure, found.needed, found.score) == (True, needed, 0.9)
