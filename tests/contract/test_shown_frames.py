"""Frames of a file and their times, compared with ffmpeg's own program.

Our own reader cannot prove this: frames that it omits are missing from all later counts.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame

from bgsoft.compare.pictures import compare_pictures
from bgsoft.decode.base import DecodeSettings, DecodeStats
from bgsoft.decode.cpu import CpuDecoder
from tests.assets import VFR_TIMES
from tests.carried import set_edits
from tests.fakes import host_frames
from tests.marks import crossed, slow
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie, write_video

X264 = {"preset": "veryfast", "crf": "8", "threads": "1"}
GROUPS = {
    "short": {"g": "12", "bf": "0"},
    "long": {"g": "250", "bf": "0"},
    "reordered": {"g": "250", "bf": "3"},
    "open": {"g": "12", "bf": "3", "x264-params": "open-gop=1:b-adapt=0"},
}


def shown_by_us(path: Path) -> tuple[list[Fraction], DecodeStats]:
    with CpuDecoder(path, DecodeSettings(threads=2)) as decoder:
        times = [frame.pts * frame.time_base for frame in host_frames(decoder)]
        return times, decoder.stats


@pytest.fixture(scope="module", params=GROUPS)
def film(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seconds with sound, with one structure of groups of pictures."""
    path = tmp_path_factory.mktemp("films") / f"{request.param}.mp4"
    video = VideoSpec(times=regular_times(75), options=X264 | GROUPS[request.param])
    return write_movie(path, video, [SoundSpec(seconds=3)])


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", *map(slow, ("mov", "avi"))])
@pytest.mark.parametrize("seconds", [slow("0.3"), "1.7"])
def test_a_film_cut_without_encoding(film: Path, suffix: str, seconds: str, tmp_path: Path) -> None:
    if suffix == "ts" and film.stem == "open":
        pytest.skip("such a cut has no parameter sets: nobody can decode it")
    path = tmp_path / f"cut.{suffix}"
    ffmpeg("-ss", seconds, "-i", film, "-c", "copy", path)
    expected = shown_by_ffmpeg(path)
    assert len(expected) >= 30
    times, stats = shown_by_us(path)
    if suffix == "avi":
        # ffmpeg shows AVI's pictures as late as its decoder holds them back.
        expected = [time - expected[0] for time in expected]
        times = [time - times[0] for time in times]
    assert times == expected
    assert stats.repaired_pts == 0


@pytest.mark.parametrize("suffix", ["mp4", "mov"])
def test_frames_before_zero_are_hidden(suffix: str, tmp_path: Path) -> None:
    start = Fraction(-3, 5)
    spec = VideoSpec(times=regular_times(50, start=start), options=X264 | {"bf": "2", "g": "20"})
    path = write_video(tmp_path / f"negative.{suffix}", spec)
    expected = shown_by_ffmpeg(path)
    assert len(expected) == 35
    assert shown_by_us(path)[0] == expected


@pytest.mark.parametrize(
    "flags", ["frag_keyframe+empty_moov", "frag_keyframe+delay_moov", "frag_every_frame+empty_moov"]
)
def test_fragmented_mp4(flags: str, tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(40), options=X264 | {"bf": "2", "g": "12"})
    path = write_video(tmp_path / "fragments.mp4", spec, options={"movflags": flags})
    assert shown_by_us(path)[0] == shown_by_ffmpeg(path)


def test_variable_rate_cut(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "vfr.mp4", VideoSpec(times=VFR_TIMES, options=X264))
    path = tmp_path / "cut.mp4"
    ffmpeg("-ss", "0.14", "-i", whole, "-c", "copy", path)
    expected = shown_by_ffmpeg(path)
    assert 2 <= len(expected) < len(VFR_TIMES)
    assert shown_by_us(path)[0] == expected


@pytest.mark.parametrize(
    "edits",
    [
        [(700, None), (1000, 0)],
        [(700, None), (1000, 400)],
        [(600, 400), (600, 1600)],
        [(600, 1000), (600, 1000)],
        [(510, 511)],
    ],
    ids=["late", "late and trimmed", "two parts", "twice the same", "between frames"],
)
def test_edit_lists(edits: list[tuple[int, int | None]], tmp_path: Path) -> None:
    # Without reordering, the first frame is at media time 0.
    spec = VideoSpec(times=regular_times(75), options=X264 | {"bf": "0", "g": "20"})
    path = write_video(tmp_path / "edits.mp4", spec, options={"movie_timescale": "1000"})
    set_edits(path, edits)
    expected = shown_by_ffmpeg(path)
    assert 10 <= len(expected) <= 40
    assert shown_by_us(path)[0] == expected


@crossed(suffix=["ts", "mkv"], kind=["h264", "open", "hevc", "mpeg2"])
def test_a_recording_that_begins_inside_a_group(kind: str, suffix: str, tmp_path: Path) -> None:
    codec, options = {
        "h264": ("libx264", X264 | {"bf": "2", "g": "12"}),
        "open": ("libx264", X264 | GROUPS["open"]),
        "hevc": ("libx265", {"preset": "ultrafast", "x265-params": "log-level=none:keyint=12"}),
        "mpeg2": ("mpeg2video", {"bf": "2", "g": "12"}),
    }[kind]
    whole = write_video(
        tmp_path / "whole.ts",
        VideoSpec(codec=codec, times=regular_times(40), time_base=Fraction(1, 25), options=options),
    )
    path = tmp_path / f"tail.{suffix}"
    with av.open(str(whole)) as source, av.open(str(path), "w") as output:
        stream = source.streams.video[0]
        copy = output.add_stream_from_template(stream, opaque=True)
        for packet in [packet for packet in source.demux(stream) if packet.size][5:]:
            packet.stream = copy
            output.mux(packet)
    expected = shown_by_ffmpeg(path)
    assert 15 <= len(expected) <= 30
    assert shown_by_us(path)[0] == expected


def _flip(path: Path, offset: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"mdat") + 4 + offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("offset", [900, 1400, 2000])
def test_a_damaged_first_key_frame_takes_nothing_with_it(offset: int, tmp_path: Path) -> None:
    def noise(frame: VideoFrame, index: int) -> None:
        plane = frame.planes[0]
        pixels = np.random.default_rng(index).integers(0, 256, plane.buffer_size, np.uint8)
        plane.update(pixels.tobytes())

    spec = VideoSpec(times=regular_times(40), options=X264 | {"bf": "3", "g": "12"}, touch=noise)
    path = write_video(tmp_path / "flipped.mp4", spec)
    _flip(path, offset, 4)
    times, stats = shown_by_us(path)
    assert times == shown_by_ffmpeg(path) == regular_times(40)
    assert stats.concealed_frames >= 1


def test_compare_counts_the_frames_of_a_trimmed_film(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(50), options=X264 | {"g": "20"})
    whole, cut = write_video(tmp_path / "whole.mp4", spec), tmp_path / "cut.mp4"
    ffmpeg("-ss", "0.5", "-i", whole, "-c", "copy", cut)
    measured = compare_pictures(whole, cut)
    assert measured.times_a == shown_by_ffmpeg(whole)
    assert measured.times_b == shown_by_ffmpeg(cut)
