"""Subtitles: copied or converted, or reported as left out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from bgsoft.compare.checks import structure_checks
from bgsoft.compare.facts import read_facts
from tests.movies import VP9, film, payloads, rerender, told
from tests.outside import ffmpeg, lines_by_ffmpeg, shown_by_ffmpeg
from tests.synthetic import write_movie, write_video

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


@pytest.mark.parametrize("extension", [".mp4", ".mov", ".mkv"])
def test_lines_that_overlap_are_shown_together(tmp_path: Path, extension: str) -> None:
    lines = [(100, 900, "<i>sign</i>"), (200, 400, "a"), (500, 800, "b"), (500, 600, "c")]
    written = tmp_path / "in.srt"
    written.write_text(
        "".join(
            f"{number}\n00:00:00,{start} --> 00:00:00,{end}\n{text}\n\n"
            for number, (start, end, text) in enumerate(lines, 1)
        )
    )
    picture = write_video(tmp_path / "picture.mkv", film(1))
    source, target = tmp_path / "source.mkv", tmp_path / f"out{extension}"
    ffmpeg("-i", picture, "-i", written, "-c", "copy", source)
    rerender(source, target)
    shown = [line for line in lines_by_ffmpeg(target) if line[0] < line[1]]
    for time in range(50, 1000, 100):
        now = [text for start, end, text in shown if start * 1000 <= time < end * 1000]
        wanted = [text for start, end, text in lines if start <= time < end]
        assert "\n".join(now) == "\n".join(wanted)


def test_a_long_pause_between_lines(tmp_path: Path) -> None:
    written, hours = tmp_path / "in.srt", 7 * 3600
    written.write_text(
        "1\n00:00:00,500 --> 00:00:01,000\na\n\n2\n07:00:00,000 --> 07:00:01,000\nb\n"
    )
    times = [Fraction(second) for second in (0, 1, hours, hours + 1)]
    picture = write_video(tmp_path / "picture.mkv", replace(film(), times=times))
    source, target = tmp_path / "source.mkv", tmp_path / "out.mp4"
    ffmpeg("-i", picture, "-i", written, "-c", "copy", source)
    rerender(source, target)
    assert lines_by_ffmpeg(target) == [(Fraction(1, 2), 1, "a"), (hours, hours + 1, "b")]


def _with_lines(folder: Path, name: str, text: str) -> Path:
    """A second of film with a track of text subtitles."""
    written, source = folder / name, folder / "source.mkv"
    written.write_text(text)
    picture = write_video(folder / "picture.mkv", film(1))
    ffmpeg("-i", picture, "-i", written, "-c", "copy", source)
    return source


def test_a_line_of_hours_is_repeated(tmp_path: Path) -> None:
    text = "1\n00:00:00,500 --> 09:59:59,000\na\n\n2\n00:00:00,600 --> 00:00:00,700\nb\n"
    source, target = _with_lines(tmp_path, "in.srt", text), tmp_path / "out.mp4"
    rerender(source, target)
    ends = [7, *(7 + 4 * 36000 * count for count in (1, 2)), 359990]
    pairs = [(5, 6, "a"), (6, 7, "a\nb"), *((a, b, "a") for a, b in itertools.pairwise(ends))]
    wanted = [(Fraction(a, 10), Fraction(b, 10), line) for a, b, line in pairs]
    assert lines_by_ffmpeg(target) == wanted
    checks = structure_checks(read_facts(source), read_facts(target))
    assert next(check for check in checks if check.name == "subtitles").ok


def test_lines_that_overlap_keep_their_styles(tmp_path: Path) -> None:
    head = "[Script Info]\nScriptType: v4.00+\n[V4+ Styles]\nFormat: Name, PrimaryColour, Bold\n"
    head += "Style: Default,&H00FFFFFF,0\n"
    head += "Style: Red,&H000000FF,1\n[Events]\n"
    lines = "Dialogue: 0,0:00:00.10,0:00:00.90,Red,,0,0,0,,loud\n"
    lines += "Dialogue: 0,0:00:00.20,0:00:00.80,Default,,0,0,0,,calm\n"
    source = _with_lines(tmp_path, "in.ass", head + lines)
    rerender(source, tmp_path / "out.mp4")
    both = next(text for *_, text in lines_by_ffmpeg(tmp_path / "out.mp4") if "calm" in text)
    loud, _ = both.split("\n")
    assert '<b><font color="#ff0000">loud</font></b>' in loud


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


def test_subtitles_without_a_place_are_reported(tmp_path: Path) -> None:
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


def _pgs(state: int) -> bytes:
    """A display set of PGS: its composition, of no object, and its end."""
    return bytes([0x16, 0, 11, 0, 64, 0, 48, 16, 0, 0, state, 0, 0, 0, 0x80, 0, 0])


def _dvb(state: int) -> bytes:
    """A display set of DVB subtitles: its page, of no region, and its end."""
    return bytes([15, 16, 0, 1, 0, 2, 30, state << 2, 15, 128, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("codec", "suffix", "new", "update"),
    [
        ("hdmv_pgs_subtitle", ".mkv", _pgs(0x80), _pgs(0)),
        ("dvb_subtitle", ".ts", _dvb(2), _dvb(0)),
    ],
    ids=["pgs", "dvb"],
)
def test_a_bitmap_subtitle_on_screen_at_a_cut_is_kept(
    tmp_path: Path, codec: str, suffix: str, new: bytes, update: bytes
) -> None:
    clip, source = write_video(tmp_path / "clip.mkv", film()), tmp_path / f"in{suffix}"
    with av.open(str(clip)) as before, av.open(str(source), "w") as after:
        video = after.add_stream_from_template(before.streams.video[0], opaque=True)
        bitmaps = after.add_mux_stream(codec)
        packets: list[Any] = [packet for packet in before.demux(video=0) if packet.size]
        for packet in packets:
            packet.stream = video
        for start, data in ((100, new), (200, new), (300, update), (900, new)):
            packet = av.Packet(data)
            packet.time_base, packet.stream = Fraction(1, 1000), bitmaps
            packet.pts = packet.dts = start
            packets.append(packet)
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            after.mux(packet)
    target = tmp_path / f"out{suffix}"
    rerender(source, target, start=0.6)
    assert payloads(target, "subtitles") == [new, update, new]
    first = shown_by_ffmpeg(target)[0]
    with av.open(str(target)) as file:
        shown = [(p.pts, p.time_base) for p in file.demux(subtitles=0) if p.size]
    times = [float(pts * tick - first) for pts, tick in shown if pts is not None]
    assert times == pytest.approx([0, 0, 0.3], abs=0.001)
