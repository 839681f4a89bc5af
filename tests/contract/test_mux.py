"""The output as a file: tracks and their order, errors, a disk that fills up."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import av
import pytest

from bgsoft.encode.base import PictureKind
from bgsoft.errors import EncodeError, OutputError, UnsupportedFormatError
from bgsoft.frame import FrameFormat
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.media.writer import COPY_NOTHING
from tests.marks import slow
from tests.movies import (
    CHAPTERS,
    RATE,
    assert_in_step,
    chirp,
    film,
    payloads,
    rerender,
    shown_pts,
    sound,
)
from tests.outside import lines_by_ffmpeg
from tests.processes import run_python
from tests.rendering import encode_frames, read_back, video_info
from tests.synthetic import SoundSpec, truncate, write_movie


@pytest.mark.parametrize("names", [("in.mkv", "out.mkv"), ("in.mkv", "out.mp4")])
def test_every_track_is_kept(tmp_path: Path, names: tuple[str, str]) -> None:
    source, target = (tmp_path / name for name in names)
    write_movie(
        source,
        film(),
        [
            SoundSpec(seconds=2, language="ger"),
            SoundSpec(seconds=2, language="fre", codec="ac3", pitch=880),
        ],
        subtitles=True,
        chapters=CHAPTERS,
        metadata={"title": "A title", "artist": "Somebody"},
    )
    muxer, _ = rerender(source, target)
    assert [(report.codec, report.action) for report in muxer.audio] == [
        ("aac", "copied"),
        ("ac3", "copied"),
    ]
    with av.open(str(target), mode="r") as container:
        assert [stream.language for stream in container.streams.audio] == ["ger", "fre"]
        assert container.metadata["title"] == "A title"
        assert "artist" in {key.lower() for key in container.metadata}
        got = [
            (
                chapter["start"] * chapter["time_base"],
                chapter["end"] * chapter["time_base"],
                chapter["metadata"]["title"],
            )
            for chapter in container.chapters()
        ]
        assert got == CHAPTERS
    assert lines_by_ffmpeg(target) == [
        (Fraction(1, 10), Fraction(4, 10), "first"),
        (Fraction(1, 2), Fraction(7, 10), "second"),
    ]
    for track in (0, 1):
        wanted = payloads(source, "audio", track)
        got_packets = payloads(target, "audio", track)
        assert got_packets == wanted[len(wanted) - len(got_packets) :]
        assert len(wanted) - len(got_packets) <= 1, "at most the priming packet is left out"


def test_what_can_be_read_of_a_cut_file_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    chirp(source, video=film(), codec="pcm_s16le")
    truncate(source, 0.6)
    target = tmp_path / "out.mkv"
    rerender(source, target)
    assert_in_step(source, target)
    start, samples = sound(target)
    assert 0.6 * RATE < len(samples) < 1.9 * RATE
    assert start == 0


def test_packets_are_interleaved(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    write_movie(source, film(), [SoundSpec(seconds=2)])
    target = tmp_path / "out.mkv"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        order = [p.stream.type for p in container.demux() if p.size]
    longest = max(len(list(run)) for _, run in itertools.groupby(order))
    assert longest < 10


def test_a_matte_file_has_no_other_tracks(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mp4"
    write_movie(source, film(1), [SoundSpec()])
    encode_frames(target, probe(source), shown_pts(source), kind=PictureKind.MATTE)
    with av.open(str(target), mode="r") as container:
        assert [stream.type for stream in container.streams] == ["video"]


def test_mp4_headers_come_first(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    encode_frames(target, video_info(FrameFormat(width=96, height=72)), [0, 3600])
    data = target.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_an_output_without_frames_is_an_error(tmp_path: Path) -> None:
    info = video_info(FrameFormat(width=96, height=72))
    with (
        Muxer(tmp_path / "a.mp4", container_for(Path("a.mp4")), info, COPY_NOTHING) as muxer,
        pytest.raises(EncodeError, match="no frame"),
    ):
        muxer.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_container_that_cannot_hold_the_codec_says_so(tmp_path: Path) -> None:
    info = video_info(FrameFormat(width=96, height=72))
    container = container_for(Path("a.webm"))
    with (
        Muxer(tmp_path / "a.webm", container, info, COPY_NOTHING) as muxer,
        pytest.raises(UnsupportedFormatError, match="cannot write WebM: it cannot hold"),
    ):
        muxer.add_encoder("libx264", width=96, height=72)


@pytest.mark.parametrize("extension", [".mp4", ".mkv", ".ts"])
def test_packets_made_elsewhere(tmp_path: Path, extension: str) -> None:
    """Packets as a hardware encoder gives them: Annex B, without global headers."""
    info = video_info(FrameFormat(width=96, height=72))
    made = tmp_path / "made.ts"
    pts = [3600 * index for index in range(10)]
    encode_frames(made, info, pts)
    target = tmp_path / f"out{extension}"
    with (
        av.open(str(made), mode="r") as source,
        Muxer(target, container_for(target), info, COPY_NOTHING) as muxer,
    ):
        stream = muxer.add_packets("h264")
        packets = [packet for packet in source.demux(video=0) if packet.size]
        start = min(packet.pts for packet in packets if packet.pts is not None)
        for packet in packets:
            assert packet.pts is not None
            assert packet.dts is not None
            packet.pts, packet.dts = packet.pts - start, packet.dts - start
            packet.stream = stream
            muxer.write_video([packet])
        muxer.finish()
    assert sorted(muxer.video_pts) == pts
    seconds = [frame.seconds for frame in read_back(target)]
    assert [time - seconds[0] for time in seconds] == [Fraction(value, 90_000) for value in pts]


def test_a_file_that_cannot_be_opened_is_an_output_error(tmp_path: Path) -> None:
    info = video_info(FrameFormat(width=96, height=72))
    target = tmp_path / "gone" / "a.mp4"
    with pytest.raises(OutputError, match=f"the folder {target.parent} is gone"):
        encode_frames(target, info, [0, 3600])


_LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from bgsoft.errors import OutputError
from bgsoft.frame import FrameFormat
from bgsoft.outputs import AtomicOutput
from tests.rendering import draw, encode_frames, video_info

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
noise = np.random.default_rng(1)

def noisy(planes, format, index):
    draw(planes, format, index)
    planes.luma[:] = noise.integers(16, 236, planes.luma.shape)

target = Path(sys.argv[1])
try:
    with AtomicOutput(target) as output:
        info = video_info(FrameFormat(width=320, height=240))
        encode_frames(output.temporary, info, range(0, 3600 * 40, 3600), draw_frame=noisy)
        output.commit()
except OutputError as error:
    print(error)
"""


@pytest.mark.parametrize("extension", [".mp4", slow(".mkv"), slow(".ts")])
def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, extension: str) -> None:
    """A limit on the file's size simulates the full disk."""
    # Without -B Python would leave bytecode that is cut off in the package.
    result = run_python("-B", "-c", _LIMITED, tmp_path / f"out{extension}", check=True)
    assert "cannot write" in result.stdout
    assert "larger than" in result.stdout
    assert list(tmp_path.iterdir()) == []
