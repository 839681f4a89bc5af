"""Times of regions, against those of the frames of real files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from bgsoft.media.probe import probe
from bgsoft.regions.places import PlacedRegion
from bgsoft.settings.regions import Outline, Region, RegionAction, RegionShape, parse_lengths
from tests.outside import shown_by_ffmpeg
from tests.synthetic import VideoSpec, regular_times, write_video

TENTHS = [Fraction(number, 10) for number in (0, 1, 2, 3, 23, 24, 25, 60, 61)]
"""Two frames are shown for long."""


def held(path: Path, begin: str, end: str, *, is_live: bool = False) -> list[int]:
    """The frames that a region covers between two times in seconds."""
    region = Region(
        name="region 1",
        action=RegionAction.HIDE,
        keys=(Outline(parse_lengths(RegionShape.BOX, "1,1,8,8")),),
        begin=Fraction(begin),
        end=Fraction(end),
    )
    info = replace(probe(path), is_live=is_live)
    placed, times = PlacedRegion(region, info), shown_by_ffmpeg(path)
    counted = [info.pts_at(seconds - times[0]) for seconds in times]
    return [at for at, pts in enumerate(counted) if placed.holds_at(pts)]


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.ts"])
@pytest.mark.parametrize(
    ("begin", "end", "frames"),
    [
        ("1", "2", [3]),
        ("0.3", "2", [3]),
        ("0.35", "2.35", [3, 4]),
        ("0.25", "0.3", [2]),
        ("5.9", "7", [6, 7, 8]),
        ("6.05", "9", [7, 8]),
    ],
)
def test_a_region_begins_in_the_frame_that_is_shown_then(
    tmp_path: Path, name: str, begin: str, end: str, frames: list[int]
) -> None:
    """Also where that frame is shown for long, and frames are stored in another order."""
    options = {"bf": "2", "b_strategy": "0", "g": "4"}
    path = write_video(tmp_path / name, VideoSpec(times=TENTHS, options=options))
    assert held(path, begin, end) == frames


def test_a_time_in_whole_milliseconds_means_the_frame_that_it_was_rounded_from(
    tmp_path: Path,
) -> None:
    path = write_video(tmp_path / "a.mp4", VideoSpec(times=regular_times(9, 30)))
    assert held(path, "0.133", "0.2") == [4, 5]


def test_the_times_of_a_stream_are_not_those_of_its_file(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", VideoSpec(times=TENTHS))
    assert held(path, "1", "2.35") == [3, 4]
    assert held(path, "1", "2.35", is_live=True) == [4]
