"""Drawings of polygons, against the sides of the same polygons."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.frame import FrameFormat
from bgsoft.regions.places import PlacedRegion, bounds, coverage, touched
from bgsoft.settings.regions import Outline, Region, RegionAction, RegionShape, parse_lengths
from tests.rendering import video_info

SIZE = (160, 90)


def star(x: float, y: float) -> NDArray[np.float64]:
    """A pentagram, whose sides cross, around a centre."""
    angles = [math.pi + number * 4 * math.pi / 5 for number in range(5)]
    return np.array([(x + 40 * math.cos(a), y + 40 * math.sin(a)) for a in angles])


def drawn(corners: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Samples of the frame that are in a polygon, and those that it touches."""
    left, top, right, bottom = box = bounds(corners, *SIZE)
    frames = []
    for inside in (coverage(corners, box) > 127, touched(corners, box) > 0):
        frame = np.zeros(SIZE[::-1], np.bool_)
        frame[top:bottom, left:right] = inside
        frames.append(frame)
    return frames


@pytest.mark.parametrize("centre", [(80, 45), (160, 45), (0, 45), (80, 0), (80, 90), (160, 90)])
def test_crossing_sides_leave_no_hole(centre: tuple[int, int]) -> None:
    """Also where the middle is cut by the frame's edge."""
    xs, ys = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5)
    distance = np.hypot(xs - centre[0], ys - centre[1])
    for inside in drawn(star(*centre)):
        assert inside[distance < 15].all()
        assert not inside[distance > 43].any()


@pytest.mark.parametrize("far", [1e3, 1e5, 999_999_999])
def test_far_corners_keep_the_direction_of_sides(far: float) -> None:
    inside, touches = drawn(np.array([(0, 0), (far, far / 2), (0, far)]))
    xs, ys = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5)
    below = ys - xs / 2
    assert inside[below > 1].all()
    assert not inside[below < -1].any()
    assert touches[below > -0.5].all()
    assert not touches[below < -4].any()


def test_corners_outside_may_enclose_a_part_of_the_frame() -> None:
    polygon = "0,100 200,0 200,100"
    region = Region(
        name="region 1",
        action=RegionAction.HIDE,
        shape=RegionShape.POLYGON,
        keys=(Outline(parse_lengths(RegionShape.POLYGON, polygon)),),
    )
    placed = PlacedRegion(region, video_info(FrameFormat(width=SIZE[0], height=SIZE[1])))
    inside, _ = drawn(placed.corners(0))
    assert inside[-1, 30:].all()
