"""What the output keeps of the input's other tracks, and how timestamps move."""

from __future__ import annotations

import base64
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.container import OutputContainer
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from bgsoft.encode.base import PictureKind
from bgsoft.errors import EncodeError, OutputError, UnsupportedFormatError
from bgsoft.frame import FrameFormat
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.media.pyav import TAG_OPTIONS
from bgsoft.media.timeline import Timeline
from bgsoft.media.track import CopiedTrack
from bgsoft.media.transcode import TranscodedTrack
from bgsoft.media.writer import COPY_ALL, COPY_NOTHING, CopyOptions
from bgsoft.report import Event
from tests.marks import crossed, slow
from tests.outside import ffmpeg, lines_by_ffmpeg, shown_by_ffmpeg
from tests.rendering import encode_frames, read_back, video_info
from tests.synthetic import (
    Plane,
    SoundSpec,
    VideoSpec,
    made_once,
    regular_times,
    truncate,
    write_movie,
    write_video,
)

FAST = {"preset": "ultrafast", "crf": "20", "threads": "1"}
RATE = 48_000
CHAPTERS = [
    (Fraction(0), Fraction(1, 2), "opening"),
    (Fraction(1, 2), Fraction(3, 2), "middle"),
    (Fraction(3, 2), Fraction(2), "end"),
]


VP9 = VideoSpec(
    codec="libvpx-vp9",
    times=regular_times(5),
    options={"cpu-used": "8", "deadline": "realtime"},
)


def film(seconds: int = 2, start: Fraction | int = 0) -> VideoSpec:
    return VideoSpec(times=regular_times(25 * seconds, start=start), options=FAST)


def shown_pts(path: Path) -> list[int]:
    with av.open(str(path), mode="r", **TAG_OPTIONS) as container:
        return [frame.pts for frame in container.decode(video=0) if frame.pts is not None]


def rerender(
    source: Path,
    target: Path,
    *,
    start: float = 0.0,
    duration: float | None = None,
    **options: Any,
) -> tuple[Muxer, list[Event]]:
    """Encode drawn frames with the source's timestamps and copy its other tracks."""
    info = probe(source)
    events: list[Event] = []
    pts = shown_pts(source)
    first = (info.start_pts or 0) * info.time_base + Fraction(str(start))
    kept = [
        value
        for value in pts
        if value * info.time_base >= first
        and (duration is None or value * info.time_base < first + Fraction(str(duration)))
    ]
    muxer = encode_frames(
        target,
        info,
        kept,
        copied=CopyOptions(start_seconds=start, duration_seconds=duration, **options),
        on_event=events.append,
    )
    assert sorted(muxer.video_pts) == kept
    return muxer, events


def sound(path: Path) -> tuple[float, Plane]:
    """(time of the first sample in seconds, (samples,) mono) of the first audio track."""
    with av.open(str(path), mode="r") as container:
        frames = list(container.decode(audio=0))
        first = frames[0]
        assert first.pts is not None
        assert first.time_base is not None
        samples = [frame.to_ndarray() for frame in frames]
        if not first.format.is_planar:
            samples = [block.reshape(-1, first.layout.nb_channels).T for block in samples]
        joined = np.concatenate(samples, axis=1)[0].astype(np.float64)
        if first.format.name.startswith("s16"):
            joined /= 32768
        return float(first.pts * first.time_base), joined


def assert_in_step(
    source: Path, target: Path, *, skip: float = 0.05, within: int = RATE // 1000
) -> None:
    """The target's sound lies where the source's does, relative to the first picture.

    Matroska's clock of 1 ms puts sound and picture off by as much, unless ``within`` (in samples)
    is more.
    """
    pieces = []
    for path in (source, target):
        start, samples = sound(path)
        with av.open(str(path), mode="r") as container:
            picture = next(container.decode(video=0))
            assert picture.pts is not None
            assert picture.time_base is not None
            begin = float(picture.pts * picture.time_base) - start
        pieces.append(samples[round((begin + skip) * RATE) :][: RATE // 2])
    assert np.std(pieces[0]) > 0.05, "silence compares equal to anything"
    assert abs(lag(*pieces)) <= within


def lag(a: Plane, b: Plane) -> int:
    """The shift, up to 480 samples each way, at which two pieces of sound agree best."""
    size = min(len(a), len(b))
    spectrum = np.fft.rfft(a[:size], 2 * size) * np.conj(np.fft.rfft(b[:size], 2 * size))
    return int(np.argmax(np.fft.irfft(spectrum)[np.r_[-480:480]])) - 480


def payloads(path: Path, kind: str, track: int = 0) -> list[bytes]:
    with av.open(str(path), mode="r") as container:
        stream = getattr(container.streams, kind)[track]
        return [bytes(packet) for packet in container.demux(stream) if packet.size]


@made_once
def chirp(path: Path, *, video: VideoSpec | None, codec: str = "pcm_s16le", **options: Any) -> Path:
    """A film whose sound is a noise that fits itself at one place only."""
    noise = np.random.default_rng(5).uniform(-0.5, 0.5, 2 * RATE)
    # Smoothed, so that lossy codecs keep it.
    noise = np.convolve(noise, np.ones(24) / 24, "same").astype(np.float32) * 4
    clip = path.with_name("clip.mkv")
    spec = video or film()
    write_video(clip, spec)
    with (
        av.open(str(clip), mode="r") as source,
        av.open(str(path), "w", container_options=options) as output,
    ):
        stream = output.add_stream_from_template(source.streams.video[0], opaque=True)
        packets: list[Any] = [p for p in source.demux(source.streams.video[0]) if p.size]
        for packet in packets:
            packet.stream = stream
        audio = output.add_stream(codec, rate=RATE, layout="mono")
        audio.codec_context.open()
        step = audio.codec_context.frame_size or 1024
        for begin in range(0, 2 * RATE, step):
            block = noise[begin : begin + step]
            name = audio.codec_context.format.name
            values = (block * 32767).astype(np.int16) if name.startswith("s16") else block
            frame = av.AudioFrame.from_ndarray(values[None], format=name, layout="mono")
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = begin + round(spec.times[0] * RATE)
            packets += audio.encode(frame)
        packets += audio.encode(None)
        for packet in sorted(packets, key=lambda p: float(p.dts * p.time_base)):
            output.mux(packet)
    return path


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


@pytest.mark.parametrize("extension", [".mp4", ".mkv", *map(slow, (".mov", ".ts", ".webm"))])
@pytest.mark.parametrize(
    ("codec", "origin"), [("aac", ".mp4"), ("aac", ".mkv"), ("aac", ".ts"), ("pcm_s16le", ".mkv")]
)
def test_sound_stays_in_step(tmp_path: Path, codec: str, origin: str, extension: str) -> None:
    source = chirp(tmp_path / f"in{origin}", video=film(), codec=codec)
    target = tmp_path / f"out{extension}"
    rerender(source, target)
    assert_in_step(source, target)


@crossed(extension=[".mp4", ".mov", ".mkv", ".ts"], origin=[".mp4", ".mov"])
def test_a_trimmed_film_stays_in_step(tmp_path: Path, origin: str, extension: str) -> None:
    whole = chirp(tmp_path / "whole.mp4", video=film(), codec="aac")
    source, target = tmp_path / f"in{origin}", tmp_path / f"out{extension}"
    ffmpeg("-ss", "0.7", "-i", whole, "-c", "copy", source)
    muxer, _ = rerender(source, target)
    assert len(muxer.video_pts) == len(shown_by_ffmpeg(target)) == len(shown_by_ffmpeg(source))
    assert_in_step(source, target)


def test_copied_sound_decodes_to_the_same_samples(tmp_path: Path) -> None:
    source = chirp(tmp_path / "in.mp4", video=film(), codec="aac")
    target = tmp_path / "out.mp4"
    rerender(source, target)
    (before, wanted), (after, got) = sound(source), sound(target)
    assert before == after == 0
    assert np.array_equal(wanted, got)


@pytest.mark.parametrize("extension", [".mkv", ".ts"])
def test_sound_that_is_played_is_not_cut_with_the_priming(tmp_path: Path, extension: str) -> None:
    # AC-3 begins 256 samples before zero: the rest of its first packet, 1280 samples, is played.
    source = chirp(tmp_path / "in.mov", video=film(), codec="ac3")
    target = tmp_path / f"out{extension}"
    rerender(source, target)
    assert payloads(target, "audio") == payloads(source, "audio")
    assert_in_step(source, target, skip=0.001)


@pytest.mark.parametrize(
    ("extension", "codec", "action", "result"),
    [
        (".mp4", "pcm_s16le", "transcoded", "aac"),
        (".mov", "pcm_s16le", "copied", "pcm_s16le"),
        (".mkv", "pcm_s16le", "copied", "pcm_s16le"),
        (".ts", "pcm_s16le", "transcoded", "aac"),
        (".webm", "pcm_s16le", "transcoded", "opus"),
        (".webm", "aac", "transcoded", "opus"),
        (".webm", "libopus", "copied", "opus"),
        (".mp4", "libopus", "copied", "opus"),
        (".mp4", "flac", "copied", "flac"),
    ],
)
def test_sound_is_copied_where_it_fits(
    tmp_path: Path, extension: str, codec: str, action: str, result: str
) -> None:
    source = chirp(tmp_path / "in.mkv", video=film(), codec=codec)
    target = tmp_path / f"out{extension}"
    muxer, events = rerender(source, target)
    (report,) = muxer.audio
    assert (report.action, report.codec) == (action, result)
    assert bool(report.reason) == (action != "copied")
    assert any("audio track 0" in event.message for event in events) == (action != "copied")
    with av.open(str(target), mode="r") as container:
        assert container.streams.audio[0].codec.canonical_name == result
    assert_in_step(source, target)


def remux(
    source: Path,
    target: Path,
    change: Callable[[list[Stream], OutputContainer], object] = lambda _streams, _output: None,
    keep: Callable[[av.Packet[Any]], bool] = lambda _packet: True,
) -> Path:
    """Copy a file's packets, but for those that are not kept.

    Args:
        source: The file.
        target: The copy.
        change: Called with the copy's streams before any packet.
        keep: Whether a packet is kept.
    """
    with av.open(str(source), mode="r") as before, av.open(str(target), "w") as after:
        streams = [after.add_stream_from_template(s, opaque=True) for s in before.streams]
        change(list(streams), after)
        for packet in before.demux():
            if packet.size and keep(packet):
                packet.stream = streams[packet.stream_index]
                after.mux(packet)
    return target


def film_with_a_gap(folder: Path, codec: str = "pcm_s16le") -> tuple[Path, Path]:
    """A film, and the same without the sound between 0.4 and 0.8 seconds."""
    whole, source = folder / "whole.mkv", folder / "in.mkv"
    chirp(whole, video=film(), codec=codec)

    def keep(packet: av.Packet[Any]) -> bool:
        heard = packet.stream.type == "audio" and packet.pts is not None
        return not (heard and 0.4 < packet.pts * packet.time_base < 0.8)

    return whole, remux(whole, source, keep=keep)


def test_a_gap_in_the_sound_stays_a_gap(tmp_path: Path) -> None:
    whole, source = film_with_a_gap(tmp_path)
    target = tmp_path / "out.mp4"
    rerender(source, target)
    _, samples = sound(target)
    assert np.std(samples[round(0.45 * RATE) : round(0.75 * RATE)]) < 0.02
    assert np.std(samples[round(0.9 * RATE) : round(1.5 * RATE)]) > 0.05
    assert_in_step(whole, target, skip=0.9)


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


@crossed(extension=[".mp4", ".mkv", ".webm", ".ts"], codec=["aac", "pcm_s16le"])
def test_a_part_is_in_step(tmp_path: Path, extension: str, codec: str) -> None:
    source = chirp(tmp_path / "in.mkv", video=film(), codec=codec)
    start = 0.5
    target = tmp_path / f"out{extension}"
    muxer, _ = rerender(source, target, start=start)
    before, wanted = sound(source)
    begin = float(min(muxer.video_pts) * muxer.info.time_base) - before
    after, got = sound(target)
    first = float(read_back(target)[0].seconds) - after
    skip = 0.06
    a = wanted[round((begin + skip) * RATE) :]
    b = got[round((first + skip) * RATE) :]
    assert abs(lag(a[: RATE // 2], b[: RATE // 2])) <= RATE // 1000


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


@pytest.mark.parametrize("extension", [".ts", ".mkv", ".mp4"])
def test_sound_before_a_clock_that_wraps_is_kept(tmp_path: Path, extension: str) -> None:
    """FFmpeg has what lies before the wrap begin before zero."""
    film_with_sound, source = tmp_path / "in.mkv", tmp_path / "in.ts"
    video = film(start=Fraction(3, 4))
    write_movie(film_with_sound, video, [SoundSpec(codec="ac3", seconds=2)])
    wraps = ("-output_ts_offset", "95442", "-f", "mpegts")
    ffmpeg("-i", film_with_sound, "-map", "0", "-c", "copy", *wraps, source)
    before = packet_times(source)
    assert before[0] < 0 < shown_pts(source)[0]
    target = tmp_path / f"out{extension}"
    rerender(source, target)
    after = packet_times(target)
    lead = read_back(target)[0].seconds - after[0]
    assert len(after) == len(before)
    assert abs(lead - (shown_by_ffmpeg(source)[0] - before[0])) < 0.002


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


@pytest.mark.parametrize("extension", [".mp4", ".mov", ".mkv", ".ts"])
def test_mp4_chapters(tmp_path: Path, extension: str) -> None:
    """MP4 keeps their titles in a track, which must neither be copied nor be missed."""
    source = tmp_path / "in.mp4"
    write_movie(source, film(), chapters=CHAPTERS)
    target = tmp_path / f"out{extension}"
    _, events = rerender(source, target)
    assert len(events) == (1 if extension == ".ts" else 0)
    with av.open(str(target), mode="r") as container:
        titles = [chapter["metadata"]["title"] for chapter in container.chapters()]
        kinds = [stream.type for stream in container.streams]
    assert titles == ([] if extension == ".ts" else ["opening", "middle", "end"])
    assert kinds.count("data") == (1 if extension in (".mp4", ".mov") else 0)


@pytest.mark.parametrize(
    ("timecode", "start", "kept"),
    [("01:02:03:04", 0.0, True), ("01:02:03:04", 0.4, False), ("01:02:03;04", 0.0, False)],
)
def test_timecode(tmp_path: Path, timecode: str, start: float, kept: bool) -> None:
    source = tmp_path / "in.mkv"

    def tag(stream: VideoStream) -> None:
        stream.metadata["timecode"] = timecode

    write_video(source, replace(film(1), setup=tag))
    target = tmp_path / "out.mov"
    _, events = rerender(source, target, start=start)
    assert any("timecode" in event.message for event in events) != kept
    with av.open(str(target), mode="r") as container:
        tags = container.streams.video[0].metadata
        assert tags.get("timecode") == (timecode if kept else None)


@pytest.mark.parametrize(
    ("extension", "lacking"), [(".mp4", ""), (".mkv", ""), (".webm", "WebM"), (".mov", "QuickTime")]
)
def test_cover_art(tmp_path: Path, extension: str, lacking: str) -> None:
    source = tmp_path / "in.mp4"
    write_movie(source, film(1), [SoundSpec()], cover=True)
    (picture,) = payloads(source, "video", 1)
    target = tmp_path / f"out{extension}"
    _, events = rerender(source, target)
    with av.open(str(target), mode="r") as container:
        covers = [s for s in container.streams.video if s.disposition & Disposition.attached_pic]
        if lacking:
            assert covers == []
            assert f"cover picture left out: {lacking} cannot hold it" in told(events)
            return
        (cover,) = covers
        (data,) = [bytes(p) for p in container.demux(cover) if p.size]
    assert data == picture


def test_attachments_are_kept_in_matroska(tmp_path: Path) -> None:
    font = ("serif.ttf", "font/ttf", b"not really a font")
    source = remux(
        write_video(tmp_path / "clip.mkv", film(1)),
        tmp_path / "in.mkv",
        lambda _, output: output.add_attachment(*font),
    )
    target = tmp_path / "out.mkv"
    _, events = rerender(source, target)
    assert events == []
    with av.open(str(target), mode="r") as container:
        (kept,) = [s for s in container.streams if s.type == "attachment"]
        assert (kept.name, kept.mimetype, kept.data) == font
    _, events = rerender(source, tmp_path / "out.mp4")
    assert [event.message for event in events if "serif.ttf" in event.message]


def test_attachments_but_fonts_may_be_left_out(tmp_path: Path) -> None:
    """Where something is hidden they would show it, whatever they are called."""
    attached = {
        "serif.ttf": ("font/ttf", b"\0\1\0\0..."),
        "sans.otf": ("application/vnd.ms-opentype", b"OTTO..."),
        "still.webp": ("image/webp", b"not really a picture"),
        "still.jpg": ("application/octet-stream", b"\xff\xd8\xff..."),
        "STILL.JPG": ("IMAGE/JPEG", b"\xff\xd8\xff..."),
        "source.mp4": ("video/mp4", b"....ftypisom"),
        "picture.ttf": ("font/ttf", b"\xff\xd8\xff..."),
        "unnamed": ("application/octet-stream", b"OTTO..."),
    }

    def attach(_: object, output: OutputContainer) -> None:
        for name, (declared, data) in attached.items():
            output.add_attachment(name, declared, data)

    source = remux(write_video(tmp_path / "clip.mkv", film(1)), tmp_path / "in.mkv", attach)
    for pictures, names in ((True, [*attached]), (False, ["serif.ttf", "sans.otf"])):
        target = tmp_path / "out.mkv"
        _, events = rerender(source, target, pictures=pictures)
        with av.open(str(target), mode="r") as container:
            assert [s.metadata["filename"] for s in container.streams if s.index > 0] == names
        left_out = [name for name in attached if name not in names]
        reason = "left out: nothing is hidden or replaced in it"
        assert [event.message for event in events] == [
            f"attachment {name} {reason}" for name in left_out
        ]


@crossed(
    everywhere=[True, False],
    picture=[
        ("METADATA_BLOCK_PICTURE", "AAAA"),
        ("COVERARTMIME", "image/jpeg"),
        ("NOTE", base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(100)).decode()),
        ("NOTE", "data:image/gif;base64," + base64.b64encode(b"GIF89a" + bytes(100)).decode()),
        ("NOTE", base64.b64encode(b"\0\0\0\3\0\0\0\x0aimage/jpeg" + bytes(100)).decode()),
    ],
)
def test_tags_that_are_pictures_may_be_left_out(
    tmp_path: Path, picture: tuple[str, str], everywhere: bool
) -> None:
    key, value = picture
    others = {"ARTIST": "somebody", "URL": "https://example.org/" + 60 * "a"}

    def tag(_: object, output: OutputContainer) -> None:
        for labelled in (output, *output.streams):
            labelled.metadata.update({**others, key: value} if everywhere else others)
        tags = {"title": "a part", key: value}
        chapter = {"id": 1, "start": 0, "end": 500, "time_base": Fraction(1, 1000)}
        output.set_chapters([{**chapter, "metadata": tags}])  # type: ignore[typeddict-item]

    clip = write_movie(tmp_path / "clip.mkv", film(1), [SoundSpec()])
    source, target = remux(clip, tmp_path / "in.mkv", tag), tmp_path / "out.mkv"
    for pictures in (True, False):
        _, events = rerender(source, target, pictures=pictures)
        with av.open(str(target), mode="r") as container:
            chapters = [chapter["metadata"] for chapter in container.chapters()]
            labelled = [container.metadata, *(stream.metadata for stream in container.streams)]
        assert all(others.items() <= tags.items() for tags in labelled)
        found = {tags.get(key) for tags in (chapters[0], *(labelled if everywhere else ()))}
        assert found == {value if pictures else None}
        left_out = [] if pictures else [f"tag {key} left out: nothing is hidden or replaced in it"]
        assert [event.message for event in events] == left_out


def test_tags_of_the_old_file_are_not_copied(tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    tags = {"title": "t", "creation_time": "2024-05-06T07:08:09.000000Z"}
    write_movie(source, film(1), metadata=tags)
    target = tmp_path / "out.mkv"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        metadata = {key.lower(): value for key, value in container.metadata.items()}
    assert metadata["title"] == "t"
    assert metadata["creation_time"].startswith("2024-05-06T07:08:09")
    assert not {"major_brand", "compatible_brands", "minor_version"} & metadata.keys()


def test_a_phone_s_tags_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "in.mov"
    tags = {"com.apple.quicktime.make": "Maker", "com.apple.quicktime.model": "Model 7"}
    write_movie(source, film(1), metadata=tags, options={"movflags": "use_metadata_tags"})
    target = tmp_path / "out.mov"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        assert tags.items() <= container.metadata.items()


@pytest.mark.parametrize(
    ("suffix", "lost"),
    [
        (".mp4", ""),
        (".mov", ""),
        (".ts", "the default flag of audio track 1"),
        (".avi", "the default flag of audio track 1"),
    ],
)
@pytest.mark.parametrize("shown", [True, False])
def test_default_is_kept_or_told(tmp_path: Path, suffix: str, lost: str, shown: bool) -> None:
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mkv"
    write_movie(plain, film(1), [SoundSpec(), SoundSpec()], subtitles=True)
    wanted = [True, shown, not shown, shown]

    def change(streams: list[Stream], _output: OutputContainer) -> None:
        for stream, is_default in zip(streams, wanted, strict=True):
            stream.disposition = Disposition.default if is_default else Disposition(0)

    remux(plain, source, change)
    target = tmp_path / f"out{suffix}"
    _, events = rerender(source, target)
    assert (lost in told(events)) is (not shown or not lost)
    if not lost:
        with av.open(str(target), mode="r") as container:
            found = [bool(stream.disposition & Disposition.default) for stream in container.streams]
        assert found == wanted
        text = ffmpeg("-i", target, "-map", "0:s:0", "-f", "srt", "-")
        assert len(text.split("-->")) == 3


def test_default_and_forced_are_kept(tmp_path: Path) -> None:
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mkv"
    write_movie(plain, film(1), [SoundSpec(), SoundSpec()], subtitles=True)
    wanted = [Disposition.default, Disposition(0), Disposition.default, Disposition.forced]

    def change(streams: list[Stream], _output: OutputContainer) -> None:
        for stream, disposition in zip(streams, wanted, strict=True):
            stream.disposition = disposition
            stream.metadata["title"] = f"track {stream.index}"

    remux(plain, source, change)
    target = tmp_path / "out.mkv"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        assert [stream.disposition for stream in container.streams] == wanted
        assert [stream.metadata["title"] for stream in container.streams] == [
            f"track {index}" for index in range(4)
        ]


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


def test_sound_that_fails_does_not_stop_the_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = chirp(tmp_path / "in.mkv", video=film())
    feed = TranscodedTrack.feed
    fed = 0

    def fail_at_the_third(track: TranscodedTrack, packet: Any) -> Iterator[Any]:
        nonlocal fed
        fed += 1
        if fed == 3:
            raise av.error.ExternalError(1, "Generic error in an external library")
        yield from feed(track, packet)

    monkeypatch.setattr(TranscodedTrack, "feed", fail_at_the_third)
    target = tmp_path / "out.mp4"
    _, events = rerender(source, target)
    assert any("ends early" in event.message for event in events)
    assert fed == 3
    assert len(read_back(target)) == 50


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
        pytest.raises(UnsupportedFormatError, match="WebM cannot hold"),
    ):
        muxer.add_encoder("libx264", width=96, height=72)


@pytest.mark.parametrize("extension", [".mp4", ".mkv", ".ts"])
def test_packets_made_elsewhere(tmp_path: Path, extension: str) -> None:
    """As a hardware encoder would hand them over: Annex B, without global headers."""
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
    with pytest.raises(OutputError, match="folder is gone"):
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
    """A limit on the file's size stands in for the disk."""
    result = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path / f"out{extension}")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert "cannot write" in result.stdout
    assert "larger than" in result.stdout
    assert list(tmp_path.iterdir()) == []


_MARKED = "1 < 2 & <b>so</b>\non <i>ü♫</i>"


@pytest.mark.parametrize("extension", [".mp4", ".mkv", ".webm"])
@pytest.mark.parametrize(
    ("suffix", "codec"),
    [(".mp4", "mov_text"), (".mkv", "copy"), (".webm", "copy"), (".mkv", "ass")],
)
def test_subtitle_text_is_kept(tmp_path: Path, suffix: str, codec: str, extension: str) -> None:
    if suffix == ".webm":
        written, webvtt = tmp_path / "in.vtt", _MARKED.replace("&", "&amp;").replace("< ", "&lt; ")
        written.write_text(f"WEBVTT\n\n00:00:00.100 --> 00:00:00.400\n{webvtt}\n")
    else:
        written = tmp_path / "in.srt"
        written.write_text(f"1\n00:00:00,100 --> 00:00:00,400\n{_MARKED}\n")
    picture = write_video(tmp_path / f"picture{suffix}", film(1) if suffix != ".webm" else VP9)
    source, target = tmp_path / f"source{suffix}", tmp_path / f"out{extension}"
    ffmpeg("-i", picture, "-i", written, "-c", "copy", "-c:s", codec, source)
    rerender(source, target)
    assert lines_by_ffmpeg(target) == [(Fraction(1, 10), Fraction(4, 10), _MARKED)]


@pytest.mark.parametrize("extension", [".mp4", ".webm"])
def test_a_subtitle_that_is_too_long_for_its_codec_is_cut(tmp_path: Path, extension: str) -> None:
    written = tmp_path / "in.srt"
    text = "\n".join(["ü" * 1000] * 40)
    written.write_text(f"1\n00:00:00,100 --> 00:00:00,400\n{text}\n")
    picture = write_video(tmp_path / "picture.mkv", film(1))
    source, target = tmp_path / "source.mkv", tmp_path / f"out{extension}"
    ffmpeg("-i", picture, "-i", written, "-c", "copy", source)
    rerender(source, target)
    (line,) = lines_by_ffmpeg(target)
    assert len(line[2]) > 32_000
    assert text.startswith(line[2])


def test_subtitles_without_a_place_are_told(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    write_movie(source, film(1), subtitles=True)
    _, events = rerender(source, tmp_path / "out.ts")
    assert any("subtitle track" in event.message for event in events)
    _, events = rerender(source, tmp_path / "out.webm")
    assert any("webvtt" in event.message for event in events)


@pytest.mark.parametrize("durations", [[400, 400], [400, None], [400, 2**32 - 1]])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_bitmap_subtitles_without_an_end(
    tmp_path: Path, suffix: str, durations: list[int | None]
) -> None:
    clip, source = write_video(tmp_path / "clip.mkv", film()), tmp_path / "in.mkv"
    with av.open(str(clip), mode="r") as before, av.open(str(source), "w") as after:
        video = after.add_stream_from_template(before.streams.video[0], opaque=True)
        bitmaps = after.add_stream("dvdsub")
        bitmaps.codec_context.time_base = Fraction(1, 1000)
        packets: list[Any] = [packet for packet in before.demux(video=0) if packet.size]
        for packet in packets:
            packet.stream = video
        for number, duration in enumerate(durations):
            # Its size, where its commands begin, and the last of these.
            bitmap = av.Packet(bytes([0, 10, 0, 4, 0, 0, 0, 4, 1, 255]))
            bitmap.time_base, bitmap.stream = Fraction(1, 1000), bitmaps
            bitmap.pts = bitmap.dts = 300 + 600 * number
            bitmap.duration = duration or 0
            packets.append(bitmap)
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            after.mux(packet)
    target = tmp_path / f"out{suffix}"
    _, events = rerender(source, target)
    kept = suffix == ".mkv" or durations == [400, 400]
    with av.open(str(target), mode="r") as container:
        assert len(container.streams.subtitles) == kept
    if kept:
        assert payloads(target, "subtitles") == payloads(source, "subtitles")
        assert events == []
    else:
        said = "MP4 cannot hold subtitles without an end time"
        assert told(events) == f"subtitle track 1 (dvd_subtitle) left out: {said}"


def test_joined_broadcasts_stay_in_step(tmp_path: Path) -> None:
    part = tmp_path / "part.ts"
    chirp(part, video=film(start=600), codec="mp2")
    joined = tmp_path / "joined.ts"
    joined.write_bytes(part.read_bytes() * 2)
    info = probe(joined)
    pts = shown_pts(part)
    step = round(Fraction(1, 25) / info.time_base)
    follows = [value + pts[-1] + step - pts[0] for value in pts]
    target = tmp_path / "out.mkv"
    encode_frames(target, info, [*pts, *follows], copied=COPY_ALL)
    single = tmp_path / "single.mkv"
    encode_frames(single, probe(part), pts, copied=COPY_ALL)
    alone, both = packet_times(single), packet_times(target)
    length = float((follows[0] - pts[0]) * info.time_base)
    wanted = [*alone, *(time + length for time in alone)]
    assert both == pytest.approx(wanted, abs=0.0011)  # Matroska's clock is 1 ms


def packet_times(path: Path) -> list[float]:
    """When the packets of the first audio track are heard, seconds."""
    with av.open(str(path), mode="r") as container:
        return [
            float(packet.pts * packet.time_base)
            for packet in container.demux(audio=0)
            if packet.pts is not None and packet.time_base is not None
        ]


def test_sound_that_steps_back_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    write_movie(source, film(), [SoundSpec(codec="ac3", seconds=2)])
    with av.open(str(source), mode="r") as input_, av.open(str(tmp_path / "out.mkv"), "w") as out:
        stream = input_.streams.audio[0]
        track = CopiedTrack(stream, out.add_stream_from_template(stream, opaque=True), Timeline())
        kept = []
        for number, packet in enumerate(input_.demux(stream)):
            if packet.size:
                if number == 9:
                    packet.pts = packet.dts = 0
                kept += [p.pts for p in track.feed(packet)]
    assert kept == sorted(set(kept))
    assert track.damaged_packets == 1


def test_damaged_sound_does_not_stop_the_render(tmp_path: Path) -> None:
    # AAC of a broadcast is repacked for MP4; a packet whose header is noise cannot be.
    source = tmp_path / "in.ts"
    write_movie(source, film(), [SoundSpec(seconds=2)])
    data = bytearray(source.read_bytes())
    count = len(payloads(source, "audio"))
    headers = [i for i in range(len(data) - 1) if data[i] == 0xFF and data[i + 1] in (0xF1, 0xF9)]
    damaged = headers[len(headers) // 2]
    data[damaged : damaged + 2] = b"\x55\x55"
    source.write_bytes(bytes(data))
    _, events = rerender(source, tmp_path / "out.mp4")
    assert any("damaged packets left out" in event.message for event in events)
    kept = payloads(tmp_path / "out.mp4", "audio")
    assert len(kept) >= count // 2


def test_pcm_of_quicktime_is_converted_for_mp4(tmp_path: Path) -> None:
    source = write_movie(tmp_path / "in.mov", film(), [SoundSpec(codec="pcm_s16le", seconds=1)])
    muxer, _ = rerender(source, tmp_path / "out.mp4")
    assert [(r.codec, r.action) for r in muxer.audio] == [("aac", "transcoded")]


def test_tags_that_are_no_utf8_pass_through(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    title = b"caf\xe9".decode("utf-8", "surrogateescape")  # as written in the days of Latin-1
    with av.open(str(source), "w", **TAG_OPTIONS) as output:
        output.metadata["title"] = title
        stream = output.add_stream("libx264", rate=25)
        stream.width = stream.height = 64
        for frame in (av.VideoFrame(64, 64, "yuv420p"), None):
            output.mux(stream.encode(frame))
    rerender(source, target)
    assert b"caf\xe9" in target.read_bytes()


@pytest.mark.parametrize("suffix", [".mov", ".mp4", ".mkv"])
def test_languages_are_kept(tmp_path: Path, suffix: str) -> None:
    source, target = tmp_path / "in.mp4", tmp_path / f"out{suffix}"
    languages = ["deu", "fra", "fre", "swe", "eng"]
    write_movie(source, film(1), [SoundSpec(seconds=0.2, language=name) for name in languages])
    _, events = rerender(source, target)
    assert events == []
    with av.open(str(target), mode="r") as container:
        assert [stream.language for stream in container.streams.audio] == languages


def told(events: list[Event]) -> str:
    return "; ".join(event.message for event in events)


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
def test_an_mp4_s_own_keys_are_kept(tmp_path: Path, suffix: str) -> None:
    tags = {"title": "a film", "com.android.version": "15", "mood": "blue"}
    options = {"movflags": "use_metadata_tags"}
    source = write_movie(tmp_path / "in.mp4", film(1), metadata=tags, options=options)
    target = tmp_path / f"out{suffix}"
    _, events = rerender(source, target)
    assert events == []
    with av.open(str(target), mode="r") as container:
        found = {key.lower(): value for key, value in container.metadata.items()}
    assert tags.items() <= found.items()


def test_keys_make_no_room_for_themselves_where_a_cover_is(tmp_path: Path) -> None:
    # MP4's box for any key replaces the one that has the cover.
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mp4"
    write_movie(source, film(1), metadata={"title": "a film"}, cover=True)
    write_movie(plain, film(1), metadata={"title": "a film", "mood": "blue"})
    for path, words in ((source, ""), (plain, "MP4 cannot hold the tag mood: left out")):
        _, events = rerender(path, tmp_path / "out.mp4")
        assert told(events) == words
        with av.open(str(tmp_path / "out.mp4"), mode="r") as container:
            assert container.metadata["title"] == "a film"


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        (".mov", ["the tag mood", "the forced flag of subtitle track 0"]),
        (".ts", ["the tags title, mood", "the title of audio track 0"]),
        (".avi", ["the tag mood", "the language 'deu' of audio track 0"]),
    ],
)
def test_what_a_container_passes_over_in_silence_is_told(
    tmp_path: Path, suffix: str, words: list[str]
) -> None:
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mkv"
    tags = {"title": "a film", "mood": "blue"}
    sounds = [SoundSpec(codec="ac3", language="deu")]
    write_movie(plain, film(1), sounds, subtitles=True, metadata=tags)

    def change(streams: list[Stream], output: OutputContainer) -> None:
        output.metadata.update(tags)
        streams[1].metadata.update(title="a voice", language="deu")
        streams[2].disposition = Disposition.forced

    remux(plain, source, change)
    _, events = rerender(source, tmp_path / f"out{suffix}")
    (message,) = [event.message for event in events if " cannot hold the " in event.message]
    for word in words:
        assert word in message
