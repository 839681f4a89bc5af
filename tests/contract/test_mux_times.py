"""How timestamps move: parts, late starts, broadcast clocks, timecodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from av.video.stream import VideoStream

from bgsoft.errors import UnsupportedFormatError
from bgsoft.frame import FrameFormat
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.media.source import read_packets
from tests.movies import (
    CHAPTERS,
    FAST,
    assert_in_step,
    chirp,
    film,
    rerender,
    shown_pts,
    told,
    write_vp8_with_hidden_frames,
)
from tests.outside import described_by_ffmpeg, ffmpeg, shown_by_ffmpeg
from tests.rendering import encode_frames, read_back, video_info
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie


@pytest.mark.parametrize("extension", [".mp4", ".mkv"])
@pytest.mark.parametrize("start", [0.0, 0.52])
def test_a_part_starts_at_zero(tmp_path: Path, extension: str, start: float) -> None:
    source = tmp_path / "in.mkv"
    write_movie(
        source, film(), [SoundSpec(codec="pcm_s16le", seconds=2)], subtitles=True, chapters=CHAPTERS
    )
    target = tmp_path / f"out{extension}"
    rerender(source, target, start=start, duration=0.6)
    frames = read_back(target)
    assert len(frames) == 15
    assert abs(frames[0].seconds) <= Fraction(1, 1000)
    with av.open(str(target), mode="r") as container:
        ends = [
            (packet.pts + (packet.duration or 0)) * packet.time_base
            for packet in container.demux(audio=0)
            if packet.size and packet.pts is not None
        ]
        assert Fraction(58, 100) < max(ends) < Fraction(65, 100)
        chapters = [
            (c["start"] * c["time_base"], c["end"] * c["time_base"]) for c in container.chapters()
        ]
    with av.open(str(target), mode="r") as container:
        lines = [
            (packet.pts * packet.time_base, (packet.duration or 0) * packet.time_base)
            for packet in container.demux(subtitles=0)
            if packet.size > 2 and packet.pts is not None
        ]
    tenth = Fraction(1, 10)
    if start:
        assert chapters == [(0, 6 * tenth)]
        assert lines == [(0, Fraction(18, 100))]
    else:
        assert chapters == [(0, 5 * tenth), (5 * tenth, 6 * tenth)]
        assert lines == [(tenth, 3 * tenth), (5 * tenth, tenth)]


@pytest.mark.parametrize("extension", [".mp4", ".mkv"])
def test_a_broadcast_clock_is_set_to_zero(tmp_path: Path, extension: str) -> None:
    source = chirp(tmp_path / "in.ts", video=film(start=5000), codec="aac")
    assert shown_pts(source)[0] > 5000 * 90_000 - 1
    target = tmp_path / f"out{extension}"
    rerender(source, target)
    assert 0 <= read_back(target)[0].seconds < 1
    assert_in_step(source, target)


def test_a_broadcast_clock_is_kept_in_a_broadcast_file(tmp_path: Path) -> None:
    source = tmp_path / "in.ts"
    write_movie(source, film(start=100), [SoundSpec(seconds=1)])
    target = tmp_path / "out.ts"
    rerender(source, target)
    assert shown_pts(target) == shown_pts(source)


@pytest.mark.parametrize("extension", [".mp4", ".mkv", ".mov"])
def test_a_late_start_is_kept(tmp_path: Path, extension: str) -> None:
    source = tmp_path / f"in{extension}"
    write_movie(source, film(start=Fraction(1, 2)), [SoundSpec(codec="pcm_s16le", seconds=2)])
    target = tmp_path / f"out{extension}"
    rerender(source, target)
    assert read_back(target)[0].seconds == Fraction(1, 2)
    with av.open(str(target), mode="r") as container:
        sound_start = container.streams.audio[0].start_time
        assert sound_start == 0


def test_frames_before_zero_are_all_shown(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    info = video_info(FrameFormat(width=96, height=72), start_pts=None)
    pts = [-7200, -3600, 0, 3600]
    muxer = encode_frames(target, info, pts)
    assert sorted(muxer.video_pts) == pts
    assert [frame.seconds * 25 for frame in read_back(target)] == [0, 1, 2, 3]


def test_a_pause_of_hours(tmp_path: Path) -> None:
    info = video_info(FrameFormat(width=96, height=72))
    pts = [0, 3600, 7200 + 7 * 3600 * 90_000]
    with pytest.raises(UnsupportedFormatError, match=r"pause of 7\.0 h"):
        encode_frames(tmp_path / "out.mp4", info, pts)
    encode_frames(tmp_path / "out.mkv", info, pts)
    assert [round(frame.seconds * 25) for frame in read_back(tmp_path / "out.mkv")] == [
        0,
        1,
        2 + 7 * 3600 * 25,
    ]


@pytest.mark.parametrize(
    ("name", "times", "reason"),
    [
        ("out.y4m", [0, 1, 3], "a pause of 0.080 s between frames, as at 0.040 s; write .mp4"),
        ("out.avi", [0, 1, 60_003], "a pause of 2400.080 s between frames, as at 0.040 s"),
        ("out.gif", [0, 1, 16_385], "a pause of 655.360 s between frames, as at 0.040 s"),
        ("out.gif", [0, 1, "1.1"], "frames less than 10 ms apart, as at 0.044 s"),
        ("out.avi", [0, 1, "1.04"], "frames less than 40 ms apart, as at 0.042 s"),
    ],
)
def test_times_that_a_container_cannot_hold(
    tmp_path: Path, name: str, times: list[int | str], reason: str
) -> None:
    info = video_info(FrameFormat(width=96, height=72))
    pts = [int(3600 * Fraction(time)) for time in times]
    with pytest.raises(UnsupportedFormatError, match=f"it cannot hold {reason}"):
        encode_frames(tmp_path / name, info, pts)
    encode_frames(tmp_path / "out.mkv", info, pts)


@pytest.mark.parametrize(("name", "steps"), [("out.avi", 60_001), ("out.gif", 65_535)])
def test_the_longest_pause(tmp_path: Path, name: str, steps: int) -> None:
    info = video_info(FrameFormat(width=96, height=72))
    tick = 3600 if name == "out.avi" else 900
    encode_frames(tmp_path / name, info, [0, 3600, 3600 + steps * tick])
    times = shown_by_ffmpeg(tmp_path / name)  # AVI's are all places
    assert times[-1] - times[1] == Fraction(steps * tick, 90_000)


@pytest.mark.parametrize(("name", "encoder"), [("out.y4m", "rawvideo"), ("out.gif", "gif")])
def test_a_pause_is_refused_before_anything_is_encoded(
    tmp_path: Path, name: str, encoder: str
) -> None:
    times = [Fraction(0), Fraction(1, 25), Fraction(700)]
    info = probe(write_movie(tmp_path / "in.mkv", VideoSpec(times=times, options=FAST)))
    with (
        Muxer(tmp_path / name, container_for(tmp_path / name), info) as muxer,
        pytest.raises(UnsupportedFormatError, match="a pause of"),
    ):
        muxer.add_encoder(encoder, width=96, height=72)


@pytest.mark.parametrize("start", [0.0, 1.0])
@pytest.mark.parametrize("name", ["out.y4m", "out.avi", "out.gif"])
def test_pictures_of_vp8_that_are_not_shown_need_no_place(
    tmp_path: Path, name: str, start: float
) -> None:
    source = write_vp8_with_hidden_frames(tmp_path / "in.webm")
    muxer, _ = rerender(source, tmp_path / name, start=start)
    assert len(muxer.video_pts) == 75 - 25 * start


def test_a_short_gif_reads_little_of_a_long_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = VideoSpec(times=regular_times(120, 1), options=FAST | {"g": "1"})
    source = write_movie(tmp_path / "in.mkv", video)
    read = []

    def count(*arguments: Any, **options: Any) -> Iterator[Any]:
        for packet in read_packets(*arguments, **options):
            read.append(packet.pts)
            yield packet

    monkeypatch.setattr("bgsoft.media.timeline.read_packets", count)
    rerender(source, tmp_path / "out.gif", start=60.0, duration=4.0)
    assert 4 <= len(read) <= 30


@pytest.mark.parametrize(
    ("timecode", "start", "kept"),
    [("01:02:03:04", 0.0, True), ("01:02:03:04", 0.4, False), ("01:02:03;04", 0.0, False)],
)
@pytest.mark.parametrize("place", ["file", "track"])
def test_timecode(tmp_path: Path, timecode: str, start: float, kept: bool, place: str) -> None:
    source = tmp_path / "in.mkv"

    def tag(stream: VideoStream) -> None:
        if place == "track":
            stream.metadata["timecode"] = timecode

    metadata = {"timecode": timecode} if place == "file" else {}
    write_movie(source, replace(film(1), setup=tag), metadata=metadata)
    target = tmp_path / "out.mov"
    _, events = rerender(source, target, start=start)
    assert [event.message for event in events] == ([] if kept else ["timecode left out"])
    with av.open(str(target), mode="r") as container:
        tags = container.streams.video[0].metadata
        assert tags.get("timecode") == (timecode if kept else None)


@pytest.mark.parametrize("other", ["01:02:03:04", "05:06:07:08"])
def test_the_timecode_of_the_video_comes_before_the_file_s(tmp_path: Path, other: str) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mov"
    plain = write_movie(tmp_path / "plain.mkv", film(1))
    tags = ("-metadata", f"timecode={other}", "-metadata:s:v", "timecode=01:02:03:04")
    ffmpeg("-i", plain, "-c", "copy", *tags, source)
    _, events = rerender(source, target)
    left_out = "timecode of the file left out: QuickTime has the video's only"
    assert told(events) == (left_out if other == "05:06:07:08" else "")
    assert "01:02:03:04" in described_by_ffmpeg(target)
    assert "05:06:07:08" not in described_by_ffmpeg(target)
    lost = "the timecode of video track 0: left out"
    if other == "05:06:07:08":
        lost = f"the tag timecode, {lost}"
    _, events = rerender(source, tmp_path / "out.ts")
    assert told(events) == f"MPEG-TS cannot hold {lost}"


@pytest.mark.parametrize("start", [0.0, 0.4])
def test_a_part_has_no_timecode_of_sound(tmp_path: Path, start: float) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    plain = write_movie(tmp_path / "plain.mkv", film(1), [SoundSpec()])
    ffmpeg("-i", plain, "-c", "copy", "-metadata:s:a", "timecode=01:02:03:04", source)
    _, events = rerender(source, target, start=start)
    assert [event.message for event in events] == (["timecode left out"] if start else [])
    assert ("01:02:03:04" in described_by_ffmpeg(target)) == (not start)
