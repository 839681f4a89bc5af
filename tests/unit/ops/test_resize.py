"""Planes averaged to a smaller size, against OpenCV's."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from bgsoft.ops.resize import NO_TABLES, Resized
from bgsoft.ops.sides import HOST

SIZES = [
    ((256, 256), (184, 180)),
    ((144, 256), (100, 180)),
    ((37, 53), (1, 1)),
    ((37, 53), (37, 1)),
    ((300, 301), (299, 301)),
    ((64, 96), (32, 48)),
    ((1, 7), (1, 3)),
]


@pytest.mark.parametrize(("source", "target"), SIZES)
def test_averages_as_opencv_does(source: tuple[int, int], target: tuple[int, int]) -> None:
    plane = np.random.default_rng(5).random(source, np.float32)
    wanted = cv2.resize(plane, target[::-1], interpolation=cv2.INTER_AREA).reshape(target)
    made, pitch, *tables = Resized(HOST, (300, 400), np.float32).arguments(plane, target, area=True)
    np.testing.assert_allclose(made, wanted, atol=1e-6)
    assert (pitch, tuple(tables)) == (target[1], NO_TABLES)


def test_a_plane_after_another_and_one_whose_rows_are_padded() -> None:
    resized = Resized(HOST, (300, 400), np.float32)
    for source, target in SIZES:
        plane = np.random.default_rng(6).random((source[0], source[1] + 9), np.float32)[:, 4:-5]
        wanted = cv2.resize(plane, target[::-1], interpolation=cv2.INTER_AREA).reshape(target)
        for one in (plane, plane.copy()):
            made = resized.arguments(one, target, area=True)[0]
            np.testing.assert_allclose(made, wanted, atol=1e-6)
