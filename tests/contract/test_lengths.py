"""Lengths of videos and of their last frames, by ffmpeg; and files that were cut off.

MP4 stores decoding times, so with B-frames a packet may have another frame's length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

import bgsoft
from bgsoft.report import RenderReport
from tests.carried import set_edits
from tests.outside import described_by_ffmpeg, ffmpeg, shown_by_ffmpeg
from tests.synthetic import (
    SoundSpec,
    VideoSpec,
    regular_times,
    truncate,
    write_movie,
    write_video,
)
from tests.unit.chunks.short_chunks import _short_chunks, render_in_chunks, settings

UNCHANGED = {"effect": "dim", "strength": 0.0, "face": "off", "matte": "fast", "mask_every": 25}
B_FRAMES = {"bf": "3", "b_strategy": "0", "g": "50"}
FIRST = regular_times(12)
THIRD = Fraction(1, 3)
"""Frame rate of a clip whose last frame is shown for three seconds."""


def length(path: Path) -> float:
    """Seconds that ffmpeg says a file has."""
    found = re.search(r"Duration: (\d+):(\d+):([\d.]+)", described_by_ffmpeg(path))
    assert found is not None
    hours, minutes, seconds = found.groups()
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def warned(report: RenderReport) -> list[str]:
    nobody = "nobody was found"
    kinds = ("warning", "repair", "fault")
    told = [event.message for event in report.events if event.kind in kinds]
    return [text for text in told if not text.startswith(nobody)]


def paused(path: Path, at: int) -> Path:
    """12 frames with a pause of two seconds before one of them."""
    times = [each + (2 if i >= at else 0) for i, each in enumerate(FIRST)]
    return write_video(path, VideoSpec(times=times, options=B_FRAMES))


def long_last(path: Path, **options: str) -> Path:
    return write_video(path, VideoSpec(times=FIRST, rate=THIRD, options=B_FRAMES | options))


def rendered_length(source: Path, target: Path, **flags: float | str) -> float:
    """Render without a warning, and without losing a frame."""
    report = bgsoft.render(source, target, preset=None, **UNCHANGED, **flags)
    assert warned(report) == []
    seconds = length(target)
    assert seconds == pytest.approx(report.duration_s, abs=0.011)
    return seconds


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("at", [8, 10])
def test_a_pause_keeps_its_length(suffix: str, at: int, tmp_path: Path) -> None:
    for kind in ("mp4", "mkv"):
        source, target = paused(tmp_path / f"in.{kind}", at), tmp_path / f"{kind}.{suffix}"
        assert rendered_length(source, target) == pytest.approx(2.48, abs=0.01)
        wanted = [each - shown_by_ffmpeg(source)[0] for each in shown_by_ffmpeg(source)]
        got = [each - shown_by_ffmpeg(target)[0] for each in shown_by_ffmpeg(target)]
        assert got == pytest.approx(wanted, abs=0.001)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_long_last_frame_keeps_its_length(suffix: str, tmp_path: Path) -> None:
    for kind in ("mp4", "mkv"):
        source = long_last(tmp_path / f"in.{kind}")
        assert rendered_length(source, tmp_path / f"{kind}.{suffix}") == pytest.approx(3.44)
    part = rendered_length(source, tmp_path / f"part.{suffix}", start=0.2)
    assert part == pytest.approx(3.24)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_no_frame_is_shown_beyond_the_end(codec: str, after: int, tmp_path: Path) -> None:
    """ffmpeg takes lengths of MP4 as the time that each frame is shown."""
    times = [each + (6 if i >= 40 else 0) for i, each in enumerate(regular_times(40 + after))]
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=times, options=B_FRAMES))
    target, copy = tmp_path / "out.mp4", tmp_path / "copy.mkv"
    seconds = rendered_length(source, target, codec=codec)
    assert seconds == pytest.approx(float(times[-1]) + 1 / 25, abs=0.011)
    ffmpeg("-i", target, "-c", "copy", copy)
    assert length(copy) == pytest.approx(seconds, abs=0.09)


def test_a_duration_of_an_earlier_container_is_not_taken(tmp_path: Path) -> None:
    """ffmpeg copies Matroska's tag into Ogg and NUT."""
    long = write_video(tmp_path / "in.mkv", VideoSpec(times=regular_times(75)))
    for suffix, codec in (("ogv", "libtheora"), ("nut", "libx264")):
        part = tmp_path / f"part.{suffix}"
        ffmpeg("-i", long, "-t", "1", "-c:v", codec, "-an", part)
        assert rendered_length(part, tmp_path / f"{suffix}.mp4") == pytest.approx(1, abs=0.05)


def test_a_remux_by_ffmpeg_is_complete(tmp_path: Path) -> None:
    """The edit list ends with the packet that is decoded last."""
    source, copy = long_last(tmp_path / "in.mp4"), tmp_path / "copy.mp4"
    ffmpeg("-i", source, "-c", "copy", copy)
    assert length(copy) == pytest.approx(3.40)
    assert rendered_length(copy, tmp_path / "out.mp4") == pytest.approx(3.40)


def test_packets_without_true_lengths(tmp_path: Path) -> None:
    """FFmpeg gives each VP9 packet of an MP4 the nominal length."""
    source, between = long_last(tmp_path / "in.mkv"), tmp_path / "vp9.mp4"
    for clip, target in ((source, between), (between, tmp_path / "out.mp4")):
        assert rendered_length(clip, target, codec="vp9") == pytest.approx(3.44)


def test_sound_longer_than_few_frames_a_second(tmp_path: Path) -> None:
    """FFmpeg gives such a track of Matroska the length of the file."""
    spec = VideoSpec(times=regular_times(10, 1), rate=Fraction(1))
    source = write_movie(tmp_path / "in.mkv", spec, [SoundSpec(seconds=30)])
    report = bgsoft.render(source, tmp_path / "out.mp4", preset=None, **UNCHANGED)
    assert (warned(report), report.duration_s) == ([], pytest.approx(10))


def test_a_clock_that_begins_late(tmp_path: Path) -> None:
    late = write_video(tmp_path / "in.nut", VideoSpec(times=regular_times(50, start=5)))
    assert rendered_length(late, tmp_path / "out.mp4") == pytest.approx(2)


def test_an_edit_list_that_begins_late(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(75), options={"bf": "0"})
    source = write_video(tmp_path / "in.mp4", spec, options={"movie_timescale": "1000"})
    set_edits(source, [(800, None), (1000, 1000)])
    assert warned(bgsoft.render(source, tmp_path / "out.mkv", preset=None, **UNCHANGED)) == []


def test_avi_counts_repeated_frames(tmp_path: Path) -> None:
    avi = tmp_path / "in.avi"
    times: Sequence[Fraction] = [each + (9 if i >= 8 else 0) for i, each in enumerate(FIRST)]
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=times))
    for clip, target in ((source, avi), (avi, tmp_path / "out.mp4")):
        assert rendered_length(clip, target) == pytest.approx(9.48, abs=0.05)


@pytest.mark.usefixtures(_short_chunks.__name__)
def test_a_file_that_was_cut_off_is_reported_once(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(200), options=B_FRAMES | {"g": "12"})
    options = {"movflags": "faststart"}
    movie = write_movie(tmp_path / "in.mp4", spec, [SoundSpec(seconds=8)], options=options)
    source = truncate(movie, 0.6)
    found = []
    for chunks in (1, 3):
        flags = UNCHANGED | {"mask_every": 1, "chunks": chunks}
        config = settings(source, tmp_path / f"{chunks}.mkv", **flags)
        report = render_in_chunks(config) if chunks > 1 else bgsoft.render_config(config)
        found.append([text for text in warned(report) if "header" in text])
    assert len(found[0]) == 1
    assert found[1] == found[0]


def test_sound_that_was_cut_off_is_reported(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(100), options=B_FRAMES | {"g": "25"})
    options = {"movflags": "faststart"}
    source = write_movie(tmp_path / "in.mp4", spec, [SoundSpec(seconds=9)], options=options)
    assert warned(bgsoft.render(source, tmp_path / "whole.mp4", **UNCHANGED)) == []
    report = bgsoft.render(truncate(source, 0.7), tmp_path / "out.mp4", **UNCHANGED)
    assert report.frames_encoded == 100
    (text,) = warned(report)
    wanted = f"track 1, sound, ends after {length(tmp_path / 'out.mp4'):.1f}"
    assert text.startswith(wanted)
    assert text.endswith("s, its header says 9.00 s; the file may have been cut off")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_frames_in_mpeg_ts(count: int, tmp_path: Path) -> None:
    """FFmpeg takes so short a file for MPEG-PS."""
    spec = VideoSpec(times=regular_times(count), options={"bf": "0"})
    source, target = write_video(tmp_path / "in.mp4", spec), tmp_path / "out.ts"
    report = bgsoft.render(source, target, preset=None, **UNCHANGED)
    assert report.frames_encoded == count
    again = bgsoft.render(target, tmp_path / "again.mkv", preset=None, **UNCHANGED)
    assert again.frames_encoded == count


def test_a_part_ends_within_a_long_frame(tmp_path: Path) -> None:
    source = long_last(tmp_path / "in.mp4")
    assert rendered_length(source, tmp_path / "out.mp4", duration=1.0) == pytest.approx(1)
    pause = paused(tmp_path / "pause.mkv", 6)
    assert rendered_length(pause, tmp_path / "out.mkv", duration=1.0) == pytest.approx(1)
    # A part of a frame is not shown for less than its nominal length.
    assert rendered_length(pause, tmp_path / "short.mkv", duration=0.21) == pytest.approx(0.24)
