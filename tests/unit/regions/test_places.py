"""Times of regions, against those of the frames of real files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.regions.places import PlacedRegion
from bgsoft.settings.regions import Outline, Region, RegionAction, RegionShape, parse_lengths
from tests.fakes import FORMAT, host_frames, host_planes
from tests.outside import shown_by_ffmpeg
from tests.rendering import video_info
from tests.synthetic import VideoSpec, damage, regular_times, write_video

TENTHS = [Fraction(number, 10) for number in (0, 1, 2, 3, 23, 24, 25, 60, 61)]
"""Two frames are shown for long."""


def region(
    begin: str, end: str, action: RegionAction = RegionAction.HIDE, box: str = "1,1,8,8"
) -> Region:
    return Region(
        name="region 1",
        action=action,
        keys=(Outline(parse_lengths(RegionShape.BOX, box)),),
        begin=Fraction(begin),
        end=Fraction(end),
    )


def held(
    info: VideoInfo,
    begin: str,
    end: str,
    *,
    part: tuple[float, float] | None = None,
    action: RegionAction = RegionAction.HIDE,
) -> list[int]:
    """The frames that a region covers between two times in seconds; ``part``: start, duration."""
    settings = DecodeSettings(threads=1)
    if part is not None:
        settings = DecodeSettings(start_seconds=part[0], duration_seconds=part[1])
    placed = PlacedRegion(region(begin, end, action), info)
    with CpuDecoder(info.path, settings, info=info) as decoder:
        return [n for n, each in enumerate(host_frames(decoder)) if placed.holds_in(each)]


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
    shown = shown_by_ffmpeg(path)
    assert [seconds - shown[0] for seconds in shown] == TENTHS
    for action in RegionAction:
        assert held(probe(path), begin, end, action=action) == frames


def test_a_damaged_frame_leaves_the_one_before_on_screen(tmp_path: Path) -> None:
    spec = VideoSpec(codec="mjpeg", pixel_format="yuvj420p", times=TENTHS)
    path = damage(write_video(tmp_path / "a.mkv", spec), [4], whole=True)
    assert len(shown_by_ffmpeg(path)) == len(TENTHS) - 1
    assert held(probe(path), "2.35", "2.4") == [3]


def test_a_time_in_whole_milliseconds_means_the_frame_that_it_was_rounded_from(
    tmp_path: Path,
) -> None:
    path = write_video(tmp_path / "a.mp4", VideoSpec(times=regular_times(9, 30)))
    assert held(probe(path), "0.133", "0.2") == [4, 5]


def test_without_a_known_end_a_frame_has_the_nominal_length() -> None:
    info = video_info(FORMAT, time_base=Fraction(1, 1000), start_pts=0)
    assert info.nominal_ticks == 40
    frames = [Frame(host_planes(FORMAT), FORMAT, n, 40 * n, info.time_base) for n in range(6)]
    placed = PlacedRegion(region("0.1", "0.16", box="1,1,4,4"), info)
    assert [frame.index for frame in frames if placed.holds_in(frame)] == [2, 3]


@pytest.mark.parametrize("action", RegionAction)
def test_after_a_jump_of_the_clock_times_go_on(tmp_path: Path, action: RegionAction) -> None:
    path = tmp_path / "a.ts"
    parts = [
        write_video(tmp_path / f"{start}.ts", VideoSpec(times=regular_times(25, start=start)))
        for start in (2000, 0)
    ]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert held(probe(path), "1.8", "1.9", action=action) == [45, 46, 47]
    # The header's length is that of a clock that ran on.
    assert held(probe(path), "500", "501", action=action) == []


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4"])
def test_the_last_frame_is_shown_to_the_end_of_the_file(tmp_path: Path, name: str) -> None:
    spec = VideoSpec(times=regular_times(5), rate=Fraction(1, 2))
    info = probe(write_video(tmp_path / name, spec))
    assert held(info, "2.1", "9") == [4]
    assert held(info, "2.16", "9") == []


def test_the_last_frame_of_a_part_is_shown_until_the_next_one(tmp_path: Path) -> None:
    info = probe(write_video(tmp_path / "a.mp4", VideoSpec(times=TENTHS)))
    assert held(info, "2", "9", part=(0.1, 0.3)) == [2]
    assert held(info, "2.31", "9", part=(0.1, 0.3)) == []


def test_a_time_after_all_times(tmp_path: Path) -> None:
    info = probe(write_video(tmp_path / "a.mp4", VideoSpec(times=TENTHS)))
    assert held(info, "7", "9") == []
    assert held(info, "99999999999999999", "999999999999999999") == []
