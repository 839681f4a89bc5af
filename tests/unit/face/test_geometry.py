"""Every transform between frame, model input and display, and back."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgsoft.face.geometry import (
    Affine,
    Roi,
    Tile,
    box_iou,
    frame_from_roi,
    frame_from_tile,
    letterbox,
    overlap,
    tiles,
)

MAX_ERROR_PX = 1e-3


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    """Without subnormal numbers: ONNX Runtime turns them off for its caller's thread."""
    return st.floats(low, high, allow_subnormal=False)


sides = st.integers(1, 8192)
sizes = st.sampled_from([128, 192, 256])
angles = floats(-math.pi, math.pi)
parts = floats(-0.5, 1.5)


def there_and_back(transform: Affine, points: np.ndarray) -> float:
    return float(np.abs(transform.inverse()(transform(points)) - points).max())


@given(sides, sides, sizes, parts, parts)
def test_letterbox_returns_every_point(
    width: int, height: int, size: int, x: float, y: float
) -> None:
    point = np.array([[x * width, y * height]])
    assert there_and_back(letterbox(width, height, size), point) <= MAX_ERROR_PX


@given(sides, sides, sizes)
def test_letterbox_centres_the_whole_frame(width: int, height: int, size: int) -> None:
    transform = letterbox(width, height, size)
    corners = transform(np.array([[0.0, 0.0], [width, height]]))
    assert corners.min() >= -1e-6
    assert corners.max() <= size + 1e-6
    np.testing.assert_allclose(corners.sum(axis=0), size, atol=1e-6)  # equal margins
    assert max(corners[1] - corners[0]) == pytest.approx(size)
    assert transform.xx == transform.yy


@given(floats(-9000, 9000), floats(-9000, 9000), floats(1, 9000), angles, sizes)
def test_roi_returns_every_point(x: float, y: float, side: float, angle: float, size: int) -> None:
    transform = frame_from_roi(Roi(x, y, side, angle), size)
    points = np.array([[0, 0], [size, 0], [size / 3, size], [-size, 2 * size]], np.float64)
    assert there_and_back(transform, points) <= MAX_ERROR_PX
    assert there_and_back(transform.inverse(), points) <= MAX_ERROR_PX
    np.testing.assert_allclose(transform(np.array([size / 2] * 2)), (x, y), atol=1e-6)
    assert transform.scale == pytest.approx(side / size)


@given(floats(10, 4000), angles, sizes)
def test_a_turned_face_is_upright_in_its_roi(side: float, angle: float, size: int) -> None:
    """Eyes that lie on a line at some angle are level in the input, the right one on the left."""
    across = np.array([math.cos(angle), math.sin(angle)]) * side / 4
    centre = np.array([123.0, 45.0])
    eyes = np.stack([centre - across, centre + across])
    seen = frame_from_roi(Roi(*centre, side, angle), size).inverse()(eyes)
    np.testing.assert_allclose(seen[:, 1], size / 2, atol=1e-6)
    np.testing.assert_allclose(seen[:, 0], [size / 4, size * 3 / 4], atol=1e-6)


@given(sides, sides, floats(1, 3000), floats(0, 0.9))
def test_tiles_cover_the_frame(width: int, height: int, side: float, shared: float) -> None:
    short, long = sorted((width, height))
    side = max(side, long / 20)  # a strip may take very many small ones
    found = tiles(width, height, side, shared)
    side = min(side, short)
    assert all(tile.side == side for tile in found)
    for length, starts in (
        (width, sorted({tile.x for tile in found})),
        (height, sorted({tile.y for tile in found})),
    ):
        assert starts[0] == 0
        assert starts[-1] + side == pytest.approx(length)
        steps = np.diff(starts)
        assert np.all(steps <= side * (1 - shared) + 1e-6)


def test_a_tile_is_where_it_says() -> None:
    corners = frame_from_tile(Tile(10, 20, 64), 128)(np.array([[0.0, 0.0], [128.0, 128.0]]))
    np.testing.assert_allclose(corners, [[10, 20], [74, 84]])


def test_overlap_is_intersection_over_union() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 6, 6], [2, 2, 1, 1]], np.float64)
    np.testing.assert_allclose(overlap(boxes, boxes[0]), [1, 1 / 7, 0, 0])
    assert overlap(boxes[3:], boxes[3])[0] == 0
    for one, other in product(boxes, repeat=2):
        assert box_iou(one.tolist(), other.tolist()) == overlap(one[None], other)[0]
