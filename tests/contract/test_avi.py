"""AVI, which numbers its packets instead of timing them: written, and read."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import pytest

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import UnsupportedFormatError
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.media.writer import COPY_ALL, CopyOptions
from tests.fakes import host_frames
from tests.movies import (
    assert_in_step,
    chirp,
    film,
    film_with_a_gap,
    payloads,
    rerender,
    shown_pts,
    sound,
)
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.rendering import encode_frames, read_back
from tests.synthetic import SoundSpec, VideoSpec, read_index, regular_times, write_movie

FAST = {"preset": "ultrafast", "crf": "20", "threads": "1"}


def picture_times(path: Path) -> list[Fraction]:
    with av.open(str(path), mode="r") as container:
        tick = container.streams.video[0].time_base
        assert tick is not None
        return [packet.dts * tick for packet in container.demux(video=0) if packet.dts is not None]


@pytest.mark.parametrize("clock", [Fraction(1, 90_000), Fraction(1, 1000)])
def test_a_constant_rate_is_kept(tmp_path: Path, clock: Fraction) -> None:
    rate = Fraction(30_000, 1001)
    spec = VideoSpec(times=regular_times(30, rate), rate=rate, time_base=clock, options=FAST)
    source = write_movie(tmp_path / "in.mkv", spec, [])
    rerender(source, tmp_path / "out.avi")
    assert picture_times(tmp_path / "out.avi") == regular_times(30, rate)
    frames = read_back(tmp_path / "out.avi")
    assert [read_index(frame.planes[0]) for frame in frames] == list(range(30))


def test_left_out_frames_leave_their_places_empty(tmp_path: Path) -> None:
    times = [time for i, time in enumerate(regular_times(30)) if i not in (5, 6, 20)]
    source = write_movie(tmp_path / "in.mp4", VideoSpec(times=times, options=FAST), [])
    rerender(source, tmp_path / "out.avi")
    with av.open(str(tmp_path / "out.avi"), mode="r") as container:
        shown = [p.dts for p in container.demux(video=0) if p.dts is not None and p.size]
    assert shown == [i for i in range(30) if i not in (5, 6, 20)]


def test_a_varying_rate_is_refused(tmp_path: Path) -> None:
    times = [Fraction(i, 25) + Fraction(i * i % 7, 500) for i in range(25)]
    source = write_movie(tmp_path / "in.mp4", VideoSpec(times=times, options=FAST), [])
    with pytest.raises(
        UnsupportedFormatError, match=r"cannot write AVI: it cannot hold a varying .* \.mkv"
    ):
        rerender(source, tmp_path / "out.avi")
    assert not (tmp_path / "out.avi").exists()


def test_a_varying_rate_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    times = [*regular_times(40), Fraction(1613, 1000)]
    info = probe(write_movie(tmp_path / "in.mp4", VideoSpec(times=times, options=FAST), []))
    target = tmp_path / "out.avi"
    with (
        Muxer(target, container_for(target), info) as muxer,
        pytest.raises(UnsupportedFormatError, match=r"the frame at 1\.613 s does not fit"),
    ):
        muxer.add_encoder("libx264", width=96, height=72)
    with Muxer(target, container_for(target), info, CopyOptions(duration_seconds=1.6)) as muxer:
        muxer.add_encoder("libx264", width=96, height=72)


def test_gaps_in_the_sound_are_filled(tmp_path: Path) -> None:
    whole, source = film_with_a_gap(tmp_path, "ac3")
    muxer, _ = rerender(source, tmp_path / "out.avi")
    assert (muxer.audio[0].codec, muxer.audio[0].action) == ("ac3", "transcoded")
    assert "gaps" in (muxer.audio[0].reason or "")
    _, samples = sound(tmp_path / "out.avi")
    assert abs(samples[22_000:36_000]).max() < 0.02
    assert_in_step(whole, tmp_path / "out.avi", skip=0.9, within=256)  # the encoder's delay


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_avi_with_b_frames_to_avi(tmp_path: Path, codec: str) -> None:
    options = {"bf": "2", "g": "12"} | ({"preset": "veryfast"} if codec == "libx264" else {})
    video = VideoSpec(
        codec=codec, times=regular_times(50), time_base=Fraction(1, 25), options=options
    )
    sounds = [SoundSpec(codec="libmp3lame", seconds=2)]
    if codec == "mpeg4":
        source = write_movie(tmp_path / "in.avi", video, sounds)
    else:
        # In an AVI that ffmpeg copies from an MP4, a tick is a fraction of a frame.
        source = tmp_path / "in.avi"
        ffmpeg("-i", write_movie(tmp_path / "in.mp4", video, sounds), "-c", "copy", source)
    times = decoded(source)
    info = probe(source)
    muxer = encode_frames(tmp_path / "out.avi", info, [pts for _, pts in times], copied=COPY_ALL)
    assert muxer.audio[0].action == "copied"
    assert payloads(tmp_path / "out.avi", "audio") == payloads(source, "audio")
    shown = [pts * info.time_base for _, pts in times]
    assert [time - shown[0] for time in shown] == shown_by_ffmpeg(tmp_path / "out.avi")


def test_sound_is_copied_where_players_know_it(tmp_path: Path) -> None:
    source = write_movie(tmp_path / "in.mkv", film(), [SoundSpec(codec="ac3", seconds=2)])
    muxer, _ = rerender(source, tmp_path / "out.avi")
    assert [(r.codec, r.action) for r in muxer.audio] == [("ac3", "copied")]
    assert payloads(tmp_path / "out.avi", "audio") == payloads(source, "audio")


@pytest.mark.parametrize(("codec", "new"), [("aac", "mp3float"), ("flac", "pcm_s16le")])
def test_other_sound_is_converted(tmp_path: Path, codec: str, new: str) -> None:
    source = write_movie(tmp_path / "in.mkv", film(), [SoundSpec(codec=codec, seconds=2)])
    muxer, events = rerender(source, tmp_path / "out.avi")
    assert muxer.audio[0].action == "transcoded"
    assert any("converted" in event.message for event in events)
    with av.open(str(tmp_path / "out.avi"), mode="r") as container:
        assert container.streams.audio[0].codec_context.name == new


def test_late_sound_gets_silence_before_it(tmp_path: Path) -> None:
    # The film starts at 0, the sound half a second later: the file's clock begins with the film.
    source = tmp_path / "in.mkv"
    late = film(start=Fraction(1, 2))
    chirp(tmp_path / "sound.mkv", video=late)
    with (
        av.open(str(tmp_path / "sound.mkv"), mode="r") as input_,
        av.open(str(source), "w") as output,
    ):
        streams = {
            stream.index: output.add_stream_from_template(stream, opaque=True)
            for stream in input_.streams
        }
        for packet in input_.demux():
            if not packet.size:
                continue
            if packet.stream.type == "video":
                packet.pts = (packet.pts or 0) - 500
                packet.dts = (packet.dts or 0) - 500
            packet.stream = streams[packet.stream_index]
            output.mux(packet)
    muxer, _ = rerender(source, tmp_path / "out.avi")
    assert muxer.audio[0].action == "transcoded"
    assert "late" in (muxer.audio[0].reason or "")
    start, samples = sound(tmp_path / "out.avi")
    assert start == 0
    _, original = sound(source)
    assert abs(samples[:23_000]).max() == 0
    assert samples[24_000 : 24_000 + 40_000] == pytest.approx(original[:40_000], abs=1e-3)


def test_sound_long_before_the_picture_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    write_movie(source, film(start=3), [SoundSpec(codec="ac3", seconds=2)])
    with pytest.raises(UnsupportedFormatError, match=r"starts .* before the picture"):
        rerender(source, tmp_path / "out.avi")


def test_chapters_and_subtitles_are_left_out_with_a_notice(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    chapters = [(Fraction(0), Fraction(1), "one")]
    write_movie(source, film(), [], subtitles=True, chapters=chapters)
    _, events = rerender(source, tmp_path / "out.avi")
    text = " ".join(event.message for event in events)
    assert "chapters left out: AVI" in text
    assert "subtitle track" in text


def decoded(path: Path) -> list[tuple[int, int]]:
    """(number shown, pts) of each frame, as our decoder hands them out."""
    with CpuDecoder(path, DecodeSettings()) as decoder:
        seen = [(read_index(frame.luma), frame.pts) for frame in host_frames(decoder)]
    assert decoder.stats.repaired_pts == 0
    return seen


@pytest.mark.parametrize("options", [{"bf": "2"}, {"bf": "3", "g": "10"}, {"bf": "0"}])
def test_reordered_h264_is_shown_with_its_sound(tmp_path: Path, options: dict[str, str]) -> None:
    options = {"preset": "veryfast", "threads": "1"} | options
    spec = VideoSpec(times=regular_times(40), options=options, time_base=Fraction(1, 25))
    path = write_movie(tmp_path / "in.avi", spec, [])
    # The n-th picture belongs to the n-th packet, however many the decoder holds back.
    assert decoded(path) == [(number, number) for number in range(40)]
    assert probe(path).start_pts == 0
    assert len(shown_pts(path)) == 40
