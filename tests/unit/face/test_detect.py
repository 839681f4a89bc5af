"""Anchors, decoding and merging of detections."""

from __future__ import annotations

import tomllib
from importlib import resources

import numpy as np
import pytest

from bgsoft.face.detect import (
    PER_CELL,
    STRIDES,
    Detections,
    anchor_centres,
    decode,
    merge,
    weighted_nms,
)
from bgsoft.face.geometry import Affine


def detections(*rows: tuple[float, float, float, float, float]) -> Detections:
    """Of (left, top, right, bottom, score), with key points at the box's corner."""
    table = np.array(rows, np.float64).reshape(-1, 5)
    points = np.repeat(table[:, None, :2], 6, axis=1)
    return Detections(table[:, :4], points, table[:, 4])


def raw(size: int = 896) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((size, 16), np.float32), np.full((size, 1), -100.0, np.float32)


def test_anchors_are_those_of_the_catalogue() -> None:
    text = resources.files("bgsoft.models").joinpath("catalog.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)["blazeface-short"]
    assert table["anchors"] == {"strides": list(STRIDES), "per_cell": list(PER_CELL)}
    assert len(anchor_centres(128)) == table["outputs"][0]["shape"][0]


def test_anchors_are_cell_centres_row_by_row() -> None:
    centres = anchor_centres(128)
    assert centres[[0, 1, 2, 32]].tolist() == [[4, 4], [4, 4], [12, 4], [4, 12]]
    assert centres[[512, 517, 518, 895]].tolist() == [[8, 8], [8, 8], [24, 8], [120, 120]]


def test_positions_are_relative_to_the_anchor() -> None:
    boxes, logits = raw()
    boxes[518] = [1, 2, 10, 20, *range(12)]
    logits[518] = 3.0
    found = decode(boxes, logits, 128, 0.5)
    np.testing.assert_allclose(found.boxes, [[20, 0, 30, 20]])
    np.testing.assert_allclose(found.keypoints[0, :2], [[24, 9], [26, 11]])
    assert found.scores == pytest.approx([1 / (1 + np.exp(-3.0))])


def test_best_first_and_only_the_sure() -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 8
    logits[[3, 7, 9], 0] = [0.5, 4.0, -0.1]
    assert decode(boxes, logits, 128, 0.5).scores == pytest.approx([0.98201379, 0.62245933])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_no_faces(bad: float) -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 8
    logits[:3] = 5.0
    boxes[0, 5] = bad
    logits[4:6] = np.nan
    boxes[2, 2] = -1
    found = decode(boxes, logits, 128, 0.5)
    assert len(found) == 1
    assert np.isfinite(found.boxes).all()


def test_huge_logits_do_not_overflow() -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 8
    logits[:] = -3e38
    logits[0] = 3e38
    assert decode(boxes, logits, 128, 0.5).scores.tolist() == [1.0]


def slow_nms(rows: list[tuple[float, ...]], limit: float) -> list[tuple[float, ...]]:
    """The same by the definition, one box at a time."""
    left, merged = list(rows), []
    while left:
        best = left[0]
        group, others = [], []
        for row in left:
            width = max(0.0, min(row[2], best[2]) - max(row[0], best[0]))
            height = max(0.0, min(row[3], best[3]) - max(row[1], best[1]))
            areas = [(r[2] - r[0]) * (r[3] - r[1]) for r in (row, best)]
            shared = width * height
            same = row is best or shared / (sum(areas) - shared) > limit
            (group if same else others).append(row)
        total = sum(row[4] for row in group)
        mean = [sum(row[k] * row[4] for row in group) / total for k in range(4)]
        merged.append((*mean, best[4]))
        left = others
    return merged


@pytest.mark.parametrize("seed", range(5))
def test_weighted_nms_is_as_defined(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 40, (60, 2)), rng.uniform(5, 25, (60, 2))
    scores = np.sort(rng.uniform(0.3, 1, 60))[::-1]
    table = np.column_stack([corner, corner + size, scores])
    found = weighted_nms(detections(*map(tuple, table)))
    expected = np.array(slow_nms([tuple(row) for row in table], 0.3))
    np.testing.assert_allclose(np.column_stack([found.boxes, found.scores]), expected)
    # The key points were the top left corners, and are averaged alike.
    np.testing.assert_allclose(found.keypoints[:, 3], found.boxes[:, :2])


def test_nothing_stays_nothing() -> None:
    none = Detections.none()
    assert len(weighted_nms(none)) == len(merge([none, none])) == 0
    assert len(none.moved(Affine.scaling(2, 2))) == len(none.nearest((0, 0, 9, 9))) == 0


def test_a_face_cut_off_by_a_tile_is_the_whole_one() -> None:
    whole = detections((10, 10, 50, 50, 0.9), (100, 100, 120, 120, 0.6))
    cut = detections((12, 10, 50, 28, 0.7))
    found = merge([cut, whole])
    assert found.scores.tolist() == [0.9, 0.6]
    np.testing.assert_allclose(found.boxes[0], [10, 10, 50, 50])


def test_moved_moves_boxes_and_points() -> None:
    found = detections((1, 2, 3, 4, 0.5)).moved(Affine.scaling(2, 3, 10, 20))
    np.testing.assert_allclose(found.boxes, [[12, 26, 16, 32]])
    np.testing.assert_allclose(found.keypoints[0, 0], [12, 26])


def test_the_nearest_is_there_or_nothing() -> None:
    found = detections((80, 0, 90, 10, 0.9), (1, 1, 11, 11, 0.8))
    assert found.nearest((0, 0, 10, 10)).boxes.tolist() == [[1, 1, 11, 11]]
    assert len(found.nearest((20, 20, 30, 30))) == 0
