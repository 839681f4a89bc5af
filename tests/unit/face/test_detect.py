"""Anchors, decoding and merging of detections."""

from __future__ import annotations

import tomllib
from importlib import resources

import numpy as np
import pytest

from bgsoft.face.detect import (
    MAX_VIEW_FACES,
    PER_CELL,
    STRIDES,
    Detection,
    DetectionReader,
    anchor_centres,
    merge,
    nearest,
)
from bgsoft.face.geometry import Affine

WHOLE = Affine(1, 0, 0, 0, 1, 0)


def detection(left: float, top: float, right: float, bottom: float, score: float) -> Detection:
    return Detection((left, top, right, bottom), [(left, top)] * 6, score)


def read(boxes: np.ndarray, logits: np.ndarray, view: Affine = WHOLE) -> list[Detection]:
    """The faces of one view, of which the detector is sure by half."""
    (found,) = DetectionReader(128).read([view], boxes[None], logits[None], 0.5)
    return found


def raw() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((896, 16), np.float32), np.full((896, 1), -100.0, np.float32)


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
    (found,) = read(boxes, logits)
    assert found.box == pytest.approx((20, 0, 30, 20))
    np.testing.assert_allclose(found.keypoints, 24 + np.arange(12).reshape(6, 2) - [0, 16])
    assert found.score == pytest.approx(1 / (1 + np.exp(-3.0)))


def test_faces_are_where_the_view_is() -> None:
    boxes, logits = raw()
    boxes[518] = [1, 2, 10, 20, *range(12)]
    logits[518] = 3.0
    (found,) = read(boxes, logits, Affine(2, 0, 100, 0, 3, 200))
    assert found.box == pytest.approx((140, 200, 160, 260))
    assert found.keypoints[0] == pytest.approx((148, 227))


def test_best_first_and_only_the_sure() -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 8
    logits[[3, 7, 9], 0] = [0.5, 4.0, -0.1]
    assert [each.score for each in read(boxes, logits)] == pytest.approx([0.98201379, 0.62245933])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_no_faces(bad: float) -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 8
    logits[:3] = 5.0
    boxes[0, 5] = bad
    logits[4:6] = np.nan
    boxes[2, 2] = -1
    (found,) = read(boxes, logits)
    assert found.box == pytest.approx((0, 0, 8, 8))  # anchor 1 has the same centre
    assert np.isfinite(found.keypoints).all()


def test_huge_logits_do_not_overflow() -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 8
    logits[:] = -3e38
    logits[0] = 3e38
    assert [each.score for each in read(boxes, logits)] == [1.0]


def test_of_more_faces_than_there_is_room_for_the_surest_are_kept() -> None:
    boxes, logits = raw()
    boxes[:, 2:4] = 4
    rng = np.random.default_rng(0)
    cells = 2 * np.arange(256)  # the first prediction of each cell of the fine grid
    logits[cells, 0] = rng.permutation(256) / 256
    scores = [each.score for each in read(boxes, logits)]
    best = 1 / (1 + np.exp(-np.arange(255, 255 - MAX_VIEW_FACES, -1) / 256))
    assert scores == pytest.approx(best.tolist())


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
    scores = np.sort(rng.uniform(0.5, 1, 60))[::-1]
    boxes, logits = raw()
    anchors = rng.choice(896, 60, replace=False)
    centres = anchor_centres(128)[anchors]
    boxes[anchors, :2] = corner + size / 2 - centres
    boxes[anchors, 2:4] = size
    boxes[anchors, 4:] = np.tile(corner - centres, 6)
    logits[anchors, 0] = np.log(scores / (1 - scores))
    found = read(boxes, logits)
    table = np.column_stack([corner, corner + size, scores])
    expected = np.array(slow_nms([tuple(row) for row in table], 0.3))
    np.testing.assert_allclose([(*each.box, each.score) for each in found], expected, atol=1e-4)
    # The key points were the top left corners, and are averaged alike.
    np.testing.assert_allclose(
        [each.keypoints[3] for each in found], [each.box[:2] for each in found], atol=1e-4
    )


def test_nothing_stays_nothing() -> None:
    assert read(*raw()) == merge([]) == []
    assert nearest([], (0, 0, 9, 9)) is None


def test_a_face_cut_off_by_a_tile_is_the_whole_one() -> None:
    whole = detection(10, 10, 50, 50, 0.9), detection(100, 100, 120, 120, 0.6)
    cut = detection(12, 10, 50, 28, 0.7)
    assert merge([cut, *whole]) == [*whole]


def test_the_nearest_is_there_or_nothing() -> None:
    found = [detection(80, 0, 90, 10, 0.9), detection(1, 1, 11, 11, 0.8)]
    assert nearest(found, (0, 0, 10, 10)) == found[1]
    assert nearest(found, (20, 20, 30, 30)) is None
