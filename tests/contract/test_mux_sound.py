"""Sound beside the video: copied or converted, in step, and what becomes of damaged sound."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from bgsoft.media.pipe import PipeInput
from bgsoft.media.probe import probe
from bgsoft.media.timeline import Timeline
from bgsoft.media.track import CopiedTrack
from bgsoft.media.transcode import TranscodedTrack
from bgsoft.media.writer import COPY_ALL, CopyOptions
from bgsoft.report import Event
from tests.carried import set_edits
from tests.marks import crossed, slow
from tests.movies import (
    FAST,
    RATE,
    assert_in_step,
    chirp,
    film,
    film_with_a_gap,
    lag,
    packet_times,
    payloads,
    remux,
    rerender,
    shown_pts,
    sound,
    told,
)
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.rendering import encode_frames, read_back
from tests.synthetic import SoundSpec, write_movie

EARLY = ("-map", "0:v", "-map", "1:a", "-c", "copy", "-avoid_negative_ts", "disabled")


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


@pytest.mark.parametrize(
    "edits", [[(500, None), (1000, 800)], [(500, 400), (800, 1000)]], ids=["late", "two parts"]
)
@crossed(extension=[".mp4", ".mov", ".mkv", ".ts"])
def test_sound_that_an_edit_list_hides(
    tmp_path: Path, extension: str, edits: list[tuple[int, int | None]]
) -> None:
    video = replace(film(), options=FAST | {"bf": "0"})
    source = chirp(tmp_path / "in.mp4", video=video, codec="aac", movie_timescale="1000")
    for track in (0, 1):
        set_edits(source, edits, track)
    target = tmp_path / f"out{extension}"
    _, events = rerender(source, target)
    assert told(events) == ""
    starts = [sound(path)[0] - float(shown_by_ffmpeg(path)[0]) for path in (source, target)]
    assert starts[1] == pytest.approx(starts[0], abs=0.03)
    assert_in_step(source, target)


def test_copied_sound_decodes_to_the_same_samples(tmp_path: Path) -> None:
    source = chirp(tmp_path / "in.mp4", video=film(), codec="aac")
    target = tmp_path / "out.mp4"
    rerender(source, target)
    (before, wanted), (after, got) = sound(source), sound(target)
    assert before == after == 0
    assert np.array_equal(wanted, got)


@crossed(extension=[".mp4", ".mkv", ".ts", ".webm"], codec=["aac", "pcm_s16le"])
def test_sound_long_before_zero_is_kept(tmp_path: Path, extension: str, codec: str) -> None:
    video = replace(film(), options=FAST | {"bf": "0"})
    clip, source = chirp(tmp_path / "clip.mkv", video=video, codec=codec), tmp_path / "in.mkv"
    ffmpeg("-i", clip, "-itsoffset", "-0.5", "-i", clip, *EARLY, source)
    target = tmp_path / f"out{extension}"
    rerender(source, target)
    lead = [float(shown_by_ffmpeg(path)[0]) - sound(path)[0] for path in (source, target)]
    assert lead[0] == pytest.approx(0.5, abs=0.03)
    assert lead[1] == pytest.approx(lead[0], abs=0.03)
    assert_in_step(source, target)


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


def test_a_gap_in_the_sound_stays_a_gap(tmp_path: Path) -> None:
    whole, source = film_with_a_gap(tmp_path)
    target = tmp_path / "out.mp4"
    rerender(source, target)
    _, samples = sound(target)
    assert np.std(samples[round(0.45 * RATE) : round(0.75 * RATE)]) < 0.02
    assert np.std(samples[round(0.9 * RATE) : round(1.5 * RATE)]) > 0.05
    assert_in_step(whole, target, skip=0.9)


@pytest.mark.parametrize("codec", ["aac", "libopus"])
def test_a_part_that_begins_in_a_gap_has_the_sound_behind_it(tmp_path: Path, codec: str) -> None:
    whole, gap = film_with_a_gap(tmp_path, codec)
    source, target = remux(gap, tmp_path / "in.mp4"), tmp_path / "out.mp4"
    muxer, _ = rerender(source, target, start=0.6)
    begin = float(min(muxer.video_pts) * muxer.info.time_base)
    (_, wanted), (start, got) = sound(whole), sound(target)
    assert start == pytest.approx(0.8 - begin, abs=0.04)
    wanted = wanted[RATE:][: RATE // 2]
    assert abs(lag(wanted, got[round((1 - begin - start) * RATE) :])) <= RATE // 1000


@pytest.mark.parametrize(
    ("codec", "origin", "extension"),
    [
        ("flac", ".mkv", ".mkv"),
        ("wavpack", ".nut", ".nut"),
        ("flac", ".mkv", ".mov"),
        ("tta", ".mkv", ".mkv"),
    ],
)
def test_a_part_of_sound_in_long_packets_has_all_its_sound(
    tmp_path: Path, codec: str, origin: str, extension: str
) -> None:
    source, target = tmp_path / f"in{origin}", tmp_path / f"out{extension}"
    plain = chirp(tmp_path / "plain.mkv", video=film())
    ffmpeg("-i", plain, "-c:v", "copy", "-c:a", codec, "-frame_size", "30000", source)
    muxer, events = rerender(source, target, start=0.52, duration=1.3)
    report = muxer.audio[0]
    assert (report.action, told(events) == "") == ("transcoded", report.codec == codec)
    (_, wanted), (start, got) = sound(source), sound(target)
    assert start == 0
    begin = round(0.52 * RATE)
    assert np.array_equal(got, wanted[begin : begin + round(1.3 * RATE)])


def _join_sound_packets(source: Path, target: Path, count: int) -> None:
    """Copy a film so that each packet of its sound has several codec frames."""
    with av.open(str(source), mode="r") as before, av.open(str(target), "w") as after:
        streams = [after.add_stream_from_template(s, opaque=True) for s in before.streams]
        packets = [packet for packet in before.demux() if packet.size]
        frames = [packet for packet in packets if packet.stream.type == "audio"]
        joined = [packet for packet in packets if packet.stream.type == "video"]
        for begin in range(0, len(frames), count):
            group = frames[begin : begin + count]
            packet: av.Packet[Any] = av.Packet(b"".join(bytes(each) for each in group))
            packet.stream, packet.time_base = group[0].stream, group[0].time_base
            packet.pts = packet.dts = group[0].pts
            packet.duration = sum(each.duration or 0 for each in group)
            joined.append(packet)
        for packet in sorted(joined, key=lambda each: (each.dts or 0) * (each.time_base or 1)):
            packet.stream = streams[packet.stream_index]
            after.mux(packet)


@pytest.mark.parametrize("codec", ["mp2", "ac3"])
@pytest.mark.parametrize("extension", [".webm", ".mp4"])
def test_a_part_of_packets_with_several_frames_has_all_its_sound(
    tmp_path: Path, extension: str, codec: str
) -> None:
    plain = chirp(tmp_path / "plain.mkv", video=film(), codec=codec)
    source, target = tmp_path / "in.mkv", tmp_path / f"out{extension}"
    _join_sound_packets(plain, source, 12)
    rerender(source, target, start=0.52)
    (before, wanted), (after, got) = sound(plain), sound(target)
    assert after <= 0.001
    begin, skip = 0.52 - before, 0.05
    a, b = wanted[round((begin + skip) * RATE) :], got[round((skip - after) * RATE) :]
    assert abs(lag(a[: RATE // 2], b[: RATE // 2])) <= RATE // 1000


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


@pytest.mark.parametrize(
    ("codec", "extension", "result"),
    [
        ("wavpack", ".mov", "pcm_f32le"),
        ("pcm_f64le", ".mov", "pcm_f64le"),
        ("pcm_f32le", ".avi", "pcm_s24le"),
        ("pcm_f32be", ".mkv", "pcm_f32le"),
        ("pcm_f64be", ".mkv", "pcm_f64le"),
    ],
)
def test_floats_keep_their_bits(tmp_path: Path, codec: str, extension: str, result: str) -> None:
    """AVI has no floats here, and cuts them off with a notice."""
    source = tmp_path / f"in{'.mov' if codec.endswith('be') else '.mkv'}"
    target = tmp_path / f"out{extension}"
    tone = "aevalsrc=1.5*sin(2764*t)|0.3*sin(1000*t):s=48000:d=1"
    video = write_movie(tmp_path / "video.mkv", film(1))
    ffmpeg("-i", video, "-f", "lavfi", "-i", tone, "-c:v", "copy", "-c:a", codec, source)
    muxer, events = rerender(source, target)
    assert [report.codec for report in muxer.audio] == [result]
    assert ("above full level are cut off" in told(events)) == (result == "pcm_s24le")
    (_, wanted), (_, got) = sound(source), sound(target)
    if result == "pcm_s24le":
        wanted, got = wanted.clip(-1, 1), got / 2**31
    assert np.abs(got - wanted[: len(got)]).max() <= (2**-23 if result == "pcm_s24le" else 0)


DEEP = {
    "flac": ("-sample_fmt", "s32", "-bits_per_raw_sample", "32", "-strict", "-2"),
    "s302m": ("-sample_fmt", "s32", "-strict", "-2"),
    "tta": ("-sample_fmt", "s16"),
    "wavpack": ("-sample_fmt", "s32p"),
}


@pytest.mark.parametrize(
    ("codec", "origin", "extension", "result"),
    [
        ("s302m", ".ts", ".avi", "pcm_s24le"),
        ("s302m", ".ts", ".mov", "pcm_s24le"),
        ("pcm_s64le", ".nut", ".mkv", "pcm_s32le"),
        ("pcm_u32le", ".nut", ".mkv", "pcm_s32le"),
        ("flac", ".mkv", ".mov", "pcm_s32le"),
        ("wavpack", ".mkv", ".mov", "pcm_s32le"),
        ("tta", ".mkv", ".mov", "pcm_s16le"),
        ("s302m", ".ts", ".mkv", "flac"),
    ],
)
def test_integers_keep_their_bits(
    tmp_path: Path, codec: str, origin: str, extension: str, result: str
) -> None:
    source, target = tmp_path / f"in{origin}", tmp_path / f"out{extension}"
    plain = chirp(tmp_path / "plain.mkv", video=film(1))
    quieter = ("-af", "aformat=flt,volume=0.3", "-ac", "2", "-c:a", codec, *DEEP.get(codec, ()))
    ffmpeg("-i", plain, "-c:v", "libx264", *quieter, source)
    muxer, _ = rerender(source, target)
    assert [report.codec for report in muxer.audio] == [result]
    for path in (source, target):
        ffmpeg("-i", path, "-map", "0:a", "-f", "s32le", path.with_suffix(".raw"))
    wanted, got = (np.fromfile(path.with_suffix(".raw"), "<i4") for path in (source, target))
    assert len(got)
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(("rate", "result"), [(7_350, 7_350), (11_025, 11_025), (192_000, 96_000)])
def test_another_rate_is_named(tmp_path: Path, rate: int, result: int) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mp4"
    video = write_movie(tmp_path / "video.mkv", film(1))
    tone = ("-f", "lavfi", "-i", f"sine=r={rate}:d=1")
    ffmpeg("-i", video, *tone, "-c:v", "copy", "-c:a", "pcm_s16le", source)
    _, events = rerender(source, target)
    with av.open(str(target), mode="r") as container:
        assert container.streams.audio[0].codec_context.sample_rate == result
    assert (f"{rate} Hz becomes {result} Hz" in told(events)) == (rate != result)


@pytest.mark.parametrize("extension", [".ts", ".mkv", ".mp4"])
def test_sound_before_a_clock_that_wraps_is_kept(tmp_path: Path, extension: str) -> None:
    """FFmpeg gives negative times to packets before the wrap."""
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


@pytest.mark.parametrize("seconds", [2, 12])
def test_a_part_before_a_restart_of_the_clock_has_its_sound(tmp_path: Path, seconds: int) -> None:
    first, second, joined = (tmp_path / f"{name}.ts" for name in ("first", "second", "joined"))
    write_movie(first, film(25), [SoundSpec(codec="mp2", seconds=25)])
    write_movie(second, film(seconds), [SoundSpec(codec="mp2", pitch=880, seconds=seconds)])
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    single, target = tmp_path / "single.mkv", tmp_path / "out.mkv"
    muxer, _ = rerender(first, single, start=24, duration=0.9)
    part = CopyOptions(start_seconds=24, duration_seconds=0.9)
    encode_frames(target, probe(joined), sorted(muxer.video_pts), copied=part)
    assert payloads(target, "audio")
    assert payloads(target, "audio") == payloads(single, "audio")


def _aac_of_two_rates(folder: Path, rates: tuple[int, int]) -> Path:
    """Two broadcasts of 2 s, joined: 440 Hz, mono then stereo."""
    parts = []
    for number, rate in enumerate(rates):
        part = write_movie(folder / f"{rate}.mkv", film(), [SoundSpec(seconds=2)])
        to = part.with_suffix(".ts")
        sound = ("-c:v", "copy", "-c:a", "aac", "-ar", str(rate), "-ac", str(number + 1))
        ffmpeg("-i", part, *sound, "-output_ts_offset", str(2.1 * number), to)
        parts.append(to.read_bytes())
    joined = folder / "joined.ts"
    joined.write_bytes(b"".join(parts))
    return joined


def _tones(path: Path) -> list[float]:
    """The strongest frequency of each half second but the last, in hertz, as ffmpeg decodes it."""
    ffmpeg("-i", path, "-map", "0:a", "-ar", "48000", "-ac", "1", path.with_suffix(".wav"))
    _, samples = sound(path.with_suffix(".wav"))
    halves = [samples[at : at + 24_000] for at in range(0, len(samples) - 24_000, 24_000)]
    return [2.0 * int(np.argmax(abs(np.fft.rfft(half * np.hanning(24_000))))) for half in halves]


@pytest.mark.parametrize("rates", [(44_100, 32_000), (22_050, 48_000)], ids=["falls", "rises"])
@crossed(extension=[".mkv", ".mp4", ".ts"])
def test_aac_may_change_its_sample_rate(
    tmp_path: Path, rates: tuple[int, int], extension: str
) -> None:
    source, target = _aac_of_two_rates(tmp_path, rates), tmp_path / f"out{extension}"
    _, events = rerender(source, target)
    again = [event.message for event in events if "its sample rate or channels ch" in event.message]
    assert len(again) == (extension != ".ts")
    assert not any("damaged" in event.message for event in events)
    assert _tones(target)[:7] == [440] * 7


@pytest.mark.parametrize(("start", "duration", "rate"), [(0, 1.5, 44_100), (2.5, 1, 32_000)])
@crossed(extension=[".mkv", ".mp4"])
def test_a_part_without_a_change_is_copied(
    tmp_path: Path, start: float, duration: float, rate: int, extension: str
) -> None:
    source, target = _aac_of_two_rates(tmp_path, (44_100, 32_000)), tmp_path / f"out{extension}"
    _, events = rerender(source, target, start=start, duration=duration)
    assert "converted" not in told(events)
    with av.open(str(target)) as file:
        assert file.streams.audio[0].codec_context.sample_rate == rate
    assert _tones(target)[:1] == [440]


def _from_pipe(source: Path, target: Path) -> list[Event]:
    """Copy the tracks of a pipe."""
    pipe, pts, events = target.parent / "pipe", shown_pts(source), list[Event]()
    os.mkfifo(pipe)
    sender = threading.Thread(target=lambda: pipe.write_bytes(source.read_bytes()))
    sender.start()
    with PipeInput(pipe, threading.Event()) as piped:
        info = probe(piped)
        encode_frames(target, info, pts, copied=COPY_ALL, on_event=events.append)
    sender.join()
    return events


def test_aac_of_a_pipe_that_changes_its_sample_rate_is_left_out(tmp_path: Path) -> None:
    source, target = _aac_of_two_rates(tmp_path, (44_100, 32_000)), tmp_path / "out.mkv"
    events = _from_pipe(source, target)
    (warning,) = [event.message for event in events if event.kind == "warning"]
    assert "sound of another sample rate or other channels is left out" in warning
    assert _tones(target)[:4] == [440] * 4


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
    assert (track.overlapping_packets, track.damaged_packets) == (1, 0)


def _broadcast_with_noise(source: Path, noise: dict[int, int]) -> int:
    """Write bytes into one header of AAC; return the number of packets without that."""
    write_movie(source, film(), [SoundSpec(seconds=2)])
    data = bytearray(source.read_bytes())
    count = len(payloads(source, "audio"))
    headers = [i for i in range(len(data) - 1) if data[i] == 0xFF and data[i + 1] in (0xF1, 0xF9)]
    for at, byte in noise.items():
        data[headers[len(headers) // 2] + at] = byte
    source.write_bytes(bytes(data))
    return count


@pytest.mark.parametrize("copy", [rerender, _from_pipe], ids=["file", "pipe"])
def test_a_header_that_differs_once_is_damaged(tmp_path: Path, copy: Callable[..., Any]) -> None:
    source, target = tmp_path / "in.ts", tmp_path / "out.mkv"
    count = _broadcast_with_noise(source, {2: 0x58})  # 24 kHz
    assert "audio" not in str(copy(source, target))
    assert len(payloads(target, "audio")) == count


@pytest.mark.parametrize("noise", [{0: 0x55, 1: 0x55}, {1: 0xF0, 6: 0xFD}], ids=["none", "rare"])
def test_damaged_sound_does_not_stop_the_render(tmp_path: Path, noise: dict[int, int]) -> None:
    # AAC of a broadcast is repacked for MP4. A packet whose header is noise cannot be, nor one that
    # seems to have two blocks and checksums.
    source = tmp_path / "in.ts"
    count = _broadcast_with_noise(source, noise)
    _, events = rerender(source, tmp_path / "out.mp4")
    assert any("damaged packets left out" in event.message for event in events)
    kept = payloads(tmp_path / "out.mp4", "audio")
    assert len(kept) >= count // 2


def test_the_end_of_flac_is_not_damaged(tmp_path: Path) -> None:
    source = write_movie(tmp_path / "in.wmv", film(), [SoundSpec(codec="wmav2", seconds=2)])
    muxer, events = rerender(source, tmp_path / "out.mkv")
    assert [(r.codec, r.action) for r in muxer.audio] == [("flac", "transcoded")]
    assert "damaged" not in told(events)


def test_pcm_of_quicktime_is_converted_for_mp4(tmp_path: Path) -> None:
    source = write_movie(tmp_path / "in.mov", film(), [SoundSpec(codec="pcm_s16le", seconds=1)])
    muxer, _ = rerender(source, tmp_path / "out.mp4")
    assert [(r.codec, r.action) for r in muxer.audio] == [("aac", "transcoded")]
