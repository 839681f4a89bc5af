"""Planes averaged to a smaller size, against OpenCV's."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from bgsoft.ops.placement import HOST
from bgsoft.ops.resize import NO_TABLES, Resized

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


@pytest.mark.parametrize("channels", [(), (2,)])
def test_a_plane_of_that_size_is_taken_as_it_is_unless_its_rows_are_padded(
    channels: tuple[int, ...],
) -> None:
    resized = Resized(HOST, (6, 8, *channels), np.uint8)
    wide = np.random.default_rng(7).integers(0, 256, (6, 9, *channels), np.uint8)
    padded, plain = wide[:, :8], wide[:, :8].copy()
    for plane in (plain, padded):
        made, pitch, *tables = resized.arguments(plane, (6, 8))
        assert (made is plane) == (plane is plain)
        np.testing.assert_array_equal(made, plain)
        assert (pitch, tuple(tables)) == (plain[0].size, NO_TABLES)
