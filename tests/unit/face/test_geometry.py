"""Every transform between frame, model input and display, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgsoft.face.geometry import Affine, Roi, box_iou, frame_from_roi
from tests.unit.face.shapes import in_frame


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers that are not subnormal, which ONNX Runtime turns off for its caller's thread."""
    return st.floats(low, high, allow_subnormal=False)


sizes = st.sampled_from([128, 192, 256])
angles = floats(-math.pi, math.pi)


@given(floats(-9000, 9000), floats(-9000, 9000), floats(1, 9000), angles, sizes)
def test_a_square_is_seen_whole(x: float, y: float, side: float, angle: float, size: int) -> None:
    transform = frame_from_roi(Roi(x, y, side, angle), size)
    np.testing.assert_allclose(in_frame(transform, np.array([size / 2] * 2)), (x, y), atol=1e-6)
    ends = in_frame(transform, np.array([[0.0, 0.0], [size, 0.0]]))
    along = (ends[1] - ends[0]) / side
    np.testing.assert_allclose(along, [math.cos(angle), math.sin(angle)], atol=1e-6)
    assert transform.scale == pytest.approx(side / size)


@given(floats(10, 4000), angles, sizes)
def test_a_turned_face_is_upright_in_its_roi(side: float, angle: float, size: int) -> None:
    """Eyes on a slanted line become level in the input, the right eye on the left."""
    across = np.array([math.cos(angle), math.sin(angle)]) * side / 4
    centre = np.array([123.0, 45.0])
    eyes = np.stack([centre - across, centre + across])
    seen = np.array([[size / 4, size / 2], [size * 3 / 4, size / 2]])
    found = in_frame(frame_from_roi(Roi(*centre, side, angle), size), seen)
    np.testing.assert_allclose(found, eyes, atol=1e-6)


def test_depth_is_only_scaled() -> None:
    points = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, -1.0]])
    found = Affine(0, -2, 10, 2, 0, 20).applied(points)
    np.testing.assert_allclose(found.T, [[6, 22, 6], [10, 20, -2]])


def test_overlap_is_intersection_over_union() -> None:
    box = (0, 0, 2, 2)
    others = box, (1, 1, 3, 3), (5, 5, 6, 6), (2, 2, 1, 1)
    assert [box_iou(box, other) for other in others] == pytest.approx([1, 1 / 7, 0, 0])
    assert [box_iou(other, box) for other in others] == pytest.approx([1, 1 / 7, 0, 0])
    assert box_iou(others[3], others[3]) == 0
