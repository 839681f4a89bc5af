"""Followed regions, against the motion that generated the pictures."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Planes
from bgsoft.regions.follow import Follower
from bgsoft.regions.places import PlacedRegion
from bgsoft.report import Event
from bgsoft.settings.regions import Outline, Region, RegionAction, RegionShape, parse_lengths
from tests.rendering import video_info

SIZE = (320, 240)
FORMAT = FrameFormat(width=SIZE[0], height=SIZE[1])
BOX = "60,80,80,60"


def noise(rng: np.random.Generator, shape: tuple[int, int], cell: int) -> NDArray[np.uint8]:
    coarse = rng.integers(0, 256, (shape[0] // cell, shape[1] // cell), np.uint8)
    return np.asarray(cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC), np.uint8)


def motion(index: int, degrees: float = 0.6) -> NDArray[np.float64]:
    """Motion from the first frame to another: it goes right, turns and grows."""
    turned = cv2.getRotationMatrix2D((100, 110), -degrees * index, 1 + 0.004 * index)
    turned[:, 2] += (2.5 * index, 0.5 * index)
    return np.asarray(turned, np.float64)


def make_clip(count: int, degrees: float = 0.6) -> list[NDArray[np.uint8]]:
    """A poster of BOX's size that moves before a wall that does not."""
    rng = np.random.default_rng(3)
    wall, poster = noise(rng, SIZE[::-1], 8), noise(rng, SIZE[::-1], 5)
    own = np.zeros(SIZE[::-1], np.uint8)
    own[80:140, 60:140] = 255
    clip = []
    for index in range(count):
        moved = cv2.warpAffine(poster, motion(index, degrees), SIZE)
        inside = cv2.warpAffine(own, motion(index, degrees), SIZE) > 127
        clip.append(np.where(inside, moved, wall).astype(np.uint8))
    return clip


def follower(events: list[Event], **times: Any) -> tuple[Follower, PlacedRegion]:
    region = Region(
        name="region 1",
        action=RegionAction.HIDE,
        keys=(Outline(parse_lengths(RegionShape.BOX, BOX)),),
        follow=True,
        **times,
    )
    placed = PlacedRegion(region, video_info(FORMAT, time_base=Fraction(1, 25), start_pts=0))
    return Follower([placed], FORMAT, events.append), placed


def show(following: Follower, luma: NDArray[np.uint8], pts: int) -> Frame:
    planes = Planes(slot=0, luma=luma, chroma=None, alpha=None)
    frame = Frame(planes, FORMAT, index=pts, pts=pts, time_base=Fraction(1, 25))
    following.update([frame], [AnalysisFrame(factor=1, luma=luma, chroma=None)])
    return frame


@pytest.mark.parametrize("degrees", [0.6, 6, -3])
def test_a_region_goes_where_its_picture_goes(degrees: float) -> None:
    events: list[Event] = []
    following, placed = follower(events)
    first = placed.corners(0)
    for index, luma in enumerate(make_clip(30, degrees)):
        frame = show(following, luma, index)
        moved = motion(index, degrees)
        truth = first @ moved[:, :2].T + moved[:, 2]
        assert np.abs(following.corners(placed, frame) - truth).max() < 1.0
    assert math.dist(truth[0], first[0]) > 50
    assert not events


@pytest.mark.parametrize("speed", [5, 7, 9])
def test_what_passes_in_front_takes_no_region_along(speed: int) -> None:
    """It is as wide as most of the region, and has more contrast."""
    events: list[Event] = []
    following, placed = follower(events)
    still = make_clip(1)[0]
    bar = noise(np.random.default_rng(9), (240, 60), 4)
    for index in range(360 // speed):
        luma = still.copy()
        left = speed * index - 60
        seen = slice(max(0, left), max(0, min(320, left + 60)))
        luma[:, seen] = bar[:, seen.start - left : seen.stop - left]
        frame = show(following, luma, index)
    assert not events
    assert np.abs(following.corners(placed, frame) - placed.corners(0)).max() < 1


def test_it_begins_where_its_time_begins() -> None:
    events: list[Event] = []
    following, placed = follower(events, begin=Fraction(8, 25))
    clip = make_clip(12)
    for index in range(8):
        show(following, clip[index], index)
    frame = show(following, clip[8], 8)
    np.testing.assert_allclose(following.corners(placed, frame), placed.corners(8))


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_lost_rests_and_is_reported_once(cut: bool) -> None:
    events: list[Event] = []
    following, placed = follower(events)
    clip = make_clip(5)
    for index, luma in enumerate(clip):
        last = following.corners(placed, show(following, luma, index))
    if cut:
        following.reset()
    other = noise(np.random.default_rng(9), SIZE[::-1], 6)
    for index in range(5, 8):
        frame = show(following, other, index)
        np.testing.assert_allclose(following.corners(placed, frame), last)
    (event,) = events
    assert event.message.startswith("region 1 was lost at ")
    assert ("at a cut" in event.message) == cut


def test_what_has_no_detail_is_lost_at_once() -> None:
    events: list[Event] = []
    following, placed = follower(events)
    gray = np.full(SIZE[::-1], 128, np.uint8)
    for index in range(3):
        frame = show(following, gray, index)
        np.testing.assert_allclose(following.corners(placed, frame), placed.corners(index))
    (event,) = events
    assert event.message == "region 1 was lost at 0.04 s; from then on it stays in place"
