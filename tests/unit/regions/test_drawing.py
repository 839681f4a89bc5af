"""Drawings of polygons, against the sides of the same polygons."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.errors import ConfigError
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


def test_a_ring_and_an_open_shape_keep_their_inside_open() -> None:
    """A ring is drawn as one polygon with a slit."""
    ring = [(20, 20), (100, 20), (100, 80), (20, 80), (20, 20)]
    hole = [(40, 35), (40, 65), (80, 65), (80, 35), (40, 35)]
    open_shape = [(20, 20), (100, 20), (100, 48), (80, 48), (80, 35), (40, 35)]
    open_shape += [(40, 65), (80, 65), (80, 50), (100, 50), (100, 80), (20, 80)]
    for corners in (ring + hole, open_shape):
        inside, _ = drawn(np.array(corners, float))
        assert inside[30, 50]
        assert not inside[50, 60]


def test_what_lies_beyond_the_frame_stays_there() -> None:
    """Also if another corner is very far."""
    corners = np.array([(20, -4), (1e6, -4), (1e6, -2), (60, -2), (60, 50), (20, 50)])
    inside, _ = drawn(corners)
    assert inside[:48, 22:58].all()
    assert not inside[:, 62:].any()


@pytest.mark.parametrize("far", [1e3, 1e5, 999_999_999])
def test_far_corners_keep_the_direction_of_sides(far: float) -> None:
    inside, touches = drawn(np.array([(0, 0), (far, far / 2), (0, far)]))
    xs, ys = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5)
    below = ys - xs / 2
    assert inside[below > 1].all()
    assert not inside[below < -1].any()
    assert touches[below > -0.5].all()
    assert not touches[below < -4].any()


def placed(*polygons: str) -> PlacedRegion:
    """A region at each of these places, one second apart."""
    region = Region(
        name="region 1",
        action=RegionAction.HIDE,
        shape=RegionShape.POLYGON,
        keys=tuple(
            Outline(parse_lengths(RegionShape.POLYGON, polygon), Fraction(second))
            for second, polygon in enumerate(polygons)
        ),
    )
    format = FrameFormat(width=SIZE[0], height=SIZE[1])
    return PlacedRegion(region, video_info(format, time_base=Fraction(1, 10), start_pts=0))


def test_corners_outside_may_enclose_a_part_of_the_frame() -> None:
    inside, _ = drawn(placed("0,100 200,0 200,100").corners(0))
    assert inside[-1, 30:].all()


def test_a_region_may_cross_the_frame_between_places_outside() -> None:
    moving = placed("170,0 210,0 210,40 170,40", "0,100 40,100 40,140 0,140")
    inside, _ = drawn(moving.corners(5))
    assert inside[60:80, 90:120].all()
    with pytest.raises(ConfigError, match="it lies outside the frame of 160x90"):
        placed("170,0 210,0 210,40", "170,50 210,50 210,90")
