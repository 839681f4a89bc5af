"""Times of regions, against those of the frames of real files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.regions.places import PlacedRegion
from bgsoft.settings.regions import Outline, Region, RegionAction, RegionShape, parse_lengths
from tests.outside import shown_by_ffmpeg
from tests.synthetic import VideoSpec, regular_times, write_video

TENTHS = [Fraction(number, 10) for number in (0, 1, 2, 3, 23, 24, 25, 60, 61)]
"""Two frames are shown for long."""


def placed(info: VideoInfo, begin: str, end: str, action: RegionAction) -> PlacedRegion:
    region = Region(
        name="region 1",
        action=action,
        keys=(Outline(parse_lengths(RegionShape.BOX, "1,1,8,8")),),
        begin=Fraction(begin),
        end=Fraction(end),
    )
    return PlacedRegion(region, info)


def held(
    path: Path,
    begin: str,
    end: str,
    *,
    is_live: bool = False,
    action: RegionAction = RegionAction.HIDE,
) -> list[int]:
    """The frames that a region covers between two times in seconds."""
    info = replace(probe(path), is_live=is_live)
    region, times = placed(info, begin, end, action), shown_by_ffmpeg(path)
    counted = [info.pts_at(seconds - times[0]) for seconds in times]
    return [at for at, pts in enumerate(counted) if region.holds_at(pts)]


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


def test_a_clock_that_jumps_back_makes_only_what_hides_too_early(tmp_path: Path) -> None:
    """The packets after the jump have earlier times than the frames that are made of them."""
    path = tmp_path / "a.ts"
    parts = [
        write_video(tmp_path / f"{start}.ts", VideoSpec(times=regular_times(25, start=start)))
        for start in (2000, 0)
    ]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    info = probe(path)
    begin = info.pts_at(Fraction(9, 5))
    first = {action: placed(info, "1.8", "9", action).first for action in RegionAction}
    assert first[RegionAction.HIDE] <= first[RegionAction.KEEP]
    assert begin - first[RegionAction.KEEP] <= info.nominal_ticks
    assert first[RegionAction.KEEP] == first[RegionAction.DROP]


def test_a_time_after_all_times(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", VideoSpec(times=TENTHS))
    assert held(path, "7", "9") == []
    assert held(path, "99999999999999999", "999999999999999999") == []
