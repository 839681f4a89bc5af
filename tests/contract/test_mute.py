"""Sound that is left out or muted, heard by ffmpeg's own program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import av
import numpy as np
import pytest

import bgsoft
from bgsoft.batch.find import Found
from bgsoft.batch.job import JobFactory
from bgsoft.errors import ConfigError
from bgsoft.settings.copied import Audio, CopyConfig
from bgsoft.settings.setting import Span
from tests.marks import slow
from tests.movies import RATE, assert_in_step, chirp, film, payloads, rerender, told
from tests.outside import ffmpeg, ffmpeg_program, lines_by_ffmpeg, shown_by_ffmpeg
from tests.synthetic import Plane, SoundSpec, write_movie

MUTED = ("0.75001-1.25",)
BEGIN, END = 36_001, 60_000
"""Samples of MUTED: 0.75001 s lies between 36,000 and 36,001."""
NEAR = 24
"""Samples by which a lossy codec may blur an edge; encoders delay sound by 256 or more."""
QUICK = {"preset": None, "effect": "dim", "face": "off", "matte": "fast", "mask_every": 25}


def spans(*texts: str) -> tuple[Span, ...]:
    return CopyConfig(mute=texts).muted_spans()


def heard(path: Path, track: int = 0) -> Plane:
    """(samples,) int32: the first channel of an audio track, as ffmpeg decodes it."""
    output = ("-map", f"0:a:{track}", "-c:a", "pcm_s32le", "-af", "pan=mono|c0=c0", "-f", "s32le")
    command = [ffmpeg_program(), "-nostdin", "-v", "error", "-i", str(path), *output, "-"]
    return np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, "<i4")


def film_with(path: Path, codec: str, seconds: int = 2) -> Path:
    """A film with two seconds of noise in a codec, at its full depth."""
    plain = chirp(path.with_name("plain.mkv"), video=film(seconds))
    ffmpeg("-i", plain, "-c:v", "copy", "-af", "volume=0.3", "-c:a", codec, path)
    return path


def placed(sound: Plane, original: Plane) -> Plane:
    """A sound moved to where its end agrees best with the original's; both (samples,)."""
    tail = original[END + 2_000 :].astype(np.float64)
    size = len(sound) + len(tail)
    spectrum = np.fft.rfft(sound.astype(np.float64), size) * np.conj(np.fft.rfft(tail, size))
    shift = int(np.argmax(np.fft.irfft(spectrum, size))) - END - 2_000
    return sound[shift:] if shift >= 0 else np.r_[np.zeros(-shift, sound.dtype), sound]


def edge(sound: Plane, original: Plane, near: int, *, falls: bool) -> int:
    """The sample at which a sound best turns from the original to silence, or back."""
    begin = near - 480
    got, wanted = (each[begin : near + 480] / 2**31 for each in (sound, original))
    costs = [(got - wanted) ** 2, got**2]
    before, after = costs if falls else costs[::-1]
    sums = np.r_[0, np.cumsum(before)] + np.r_[np.cumsum(after[::-1])[::-1], 0]
    return begin + int(np.argmin(sums))


@pytest.mark.parametrize(
    ("codec", "origin", "ending"),
    [
        ("pcm_s24le", ".mov", ".mov"),
        ("flac", ".mkv", ".mp4"),
        ("pcm_u8", ".mkv", ".mkv"),
        slow("pcm_s16le", ".mkv", ".mkv"),
        slow("pcm_f32le", ".mkv", ".mkv"),
        slow("pcm_s32be", ".mov", ".mov"),
        slow("flac", ".mkv", ".mkv"),
        slow("alac", ".mov", ".mov"),
        slow("wavpack", ".mkv", ".mkv"),
    ],
)
def test_lossless_sound_is_equal_outside(
    tmp_path: Path, codec: str, origin: str, ending: str
) -> None:
    source, target = film_with(tmp_path / f"in{origin}", codec), tmp_path / f"out{ending}"
    muxer, events = rerender(source, target, muted=spans(*MUTED))
    expected = heard(source).copy()
    assert np.count_nonzero(expected[BEGIN - 9 : END + 9]) > 0.9 * (END - BEGIN)
    expected[BEGIN:END] = 0
    assert np.array_equal(heard(target), expected)
    (report,) = muxer.audio
    assert (report.codec, report.action) == (codec, "transcoded")
    assert not events


@pytest.mark.parametrize(
    ("codec", "origin", "ending"),
    [
        ("aac", ".mp4", ".mp4"),
        ("libopus", ".mkv", ".webm"),
        ("libmp3lame", ".mkv", ".ts"),
        slow("aac", ".ts", ".ts"),
        slow("aac", ".mkv", ".mkv"),
        slow("aac", ".mov", ".mov"),
        slow("ac3", ".mov", ".mkv"),
        slow("libopus", ".mkv", ".mp4"),
        slow("libmp3lame", ".mp4", ".mp4"),
        slow("libmp3lame", ".mkv", ".mkv"),
    ],
)
def test_lossy_sound_is_muted_to_the_sample(
    tmp_path: Path, codec: str, origin: str, ending: str
) -> None:
    source, target = film_with(tmp_path / f"in{origin}", codec), tmp_path / f"out{ending}"
    muxer, events = rerender(source, target, muted=spans(*MUTED))
    exact = heard(film_with(tmp_path / "exact.mkv", "pcm_s32le"))
    original, sound = placed(heard(source), exact), placed(heard(target), exact)
    assert abs(edge(sound, original, BEGIN, falls=True) - BEGIN) <= NEAR
    assert abs(edge(sound, original, END, falls=False) - END) <= NEAR
    middle = sound[BEGIN + 4_800 : END - 4_800]
    assert np.abs(middle).max() < 2**31 / 1000
    assert_in_step(source, target)
    (report,) = muxer.audio
    assert report.codec == codec.removeprefix("lib").replace("mp3lame", "mp3")
    assert told(events) == "audio track 0 is encoded again: parts of it are muted"


def test_flac_keeps_32_bits(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    deep = ("-c:a", "flac", "-sample_fmt", "s32", "-bits_per_raw_sample", "32", "-strict", "-2")
    plain = chirp(tmp_path / "plain.mkv", video=film())
    ffmpeg("-i", plain, "-c:v", "copy", "-af", "aformat=flt,volume=0.3", *deep, source)
    rerender(source, target, muted=spans(*MUTED))
    expected = heard(source).copy()
    assert np.bitwise_or.reduce(expected) & 0xFF
    expected[BEGIN:END] = 0
    assert np.array_equal(heard(target), expected)


def test_sound_that_is_converted_is_muted(tmp_path: Path) -> None:
    source, target = film_with(tmp_path / "in.mov", "pcm_s16le"), tmp_path / "out.webm"
    _, events = rerender(source, target, muted=spans(*MUTED))
    assert told(events) == (
        "audio track 0 converted from pcm_s16le to opus: WebM cannot hold pcm_s16le"
    )
    assert abs(edge(heard(target), heard(source), BEGIN, falls=True) - BEGIN) <= NEAR


@pytest.mark.parametrize(("text", "begin", "end"), [("-0.5", 0, 24_000), ("1.5-", 72_000, None)])
def test_open_ends(tmp_path: Path, text: str, begin: int, end: int | None) -> None:
    source, target = film_with(tmp_path / "in.mkv", "flac"), tmp_path / "out.mkv"
    rerender(source, target, muted=spans(text))
    expected = heard(source).copy()
    expected[begin:end] = 0
    assert np.array_equal(heard(target), expected)


@pytest.mark.parametrize("ending", [".mkv", slow(".mov")])
def test_times_count_from_the_first_frame(tmp_path: Path, ending: str) -> None:
    # The video begins one second after zero, and so does its sound.
    source = chirp(tmp_path / "in.mkv", video=film(start=1), codec="flac")
    target = tmp_path / f"out{ending}"
    rerender(source, target, muted=spans(*MUTED))
    expected = heard(source).copy()
    expected[BEGIN:END] = 0
    assert np.array_equal(heard(target), expected)


def test_a_header_that_is_too_short_hides_no_sound(tmp_path: Path) -> None:
    source, target = film_with(tmp_path / "in.mkv", "flac"), tmp_path / "out.mkv"
    duration = bytes.fromhex("448988") + np.array(2000, ">f8").tobytes()
    data = source.read_bytes()
    assert data.count(duration) == 1, "Matroska's Duration, in milliseconds"
    short = duration[:3] + np.array(500, ">f8").tobytes()
    source.write_bytes(data.replace(duration, short))
    rerender(source, target, muted=spans(*MUTED))
    assert not heard(target)[BEGIN:END].any()


def test_several_spans_in_all_tracks(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    sounds = [SoundSpec(codec="flac", seconds=2, pitch=pitch) for pitch in (440, 880)]
    write_movie(source, film(), sounds)
    rerender(source, target, muted=spans("0.25-0.5", "1-1.25"))
    for track in (0, 1):
        expected = heard(source, track).copy()
        expected[12_000:24_000] = expected[48_000:60_000] = 0
        assert np.array_equal(heard(target, track), expected)


@pytest.mark.parametrize("ending", [".mov", ".mkv"])
def test_a_part_is_muted_by_the_times_of_the_whole(tmp_path: Path, ending: str) -> None:
    source, target = film_with(tmp_path / "in.mov", "pcm_s24le"), tmp_path / f"out{ending}"
    rerender(source, target, start=0.52, duration=1, muted=spans(*MUTED))
    expected = heard(source).copy()
    expected[BEGIN:END] = 0
    sound, first = heard(target), round(0.52 * RATE)
    assert len(sound) >= RATE
    assert np.array_equal(sound, expected[first:][: len(sound)])
    assert shown_by_ffmpeg(target)[0] == 0


@pytest.mark.parametrize("codec", ["libmp3lame", slow("libopus"), slow("aac")])
def test_the_beginning_of_a_part_is_decoded_whole(tmp_path: Path, codec: str) -> None:
    # Its first packet needs what came before it.
    source, target = film_with(tmp_path / "in.mp4", codec), tmp_path / "out.mov"
    rerender(source, target, start=0.52, muted=spans("1-1.25"))
    first = round(0.52 * RATE)
    got, wanted = heard(target)[48:1_000] / 2**31, heard(source)[first + 48 : first + 1_000] / 2**31
    assert np.std(got - wanted) < 0.35 * np.std(wanted)


@pytest.mark.parametrize(
    ("text", "part"), [("5-6", {}), ("1.5-", {"duration": 1}), ("0.1-0.3", {"start": 0.52})]
)
def test_sound_at_another_time_is_copied(tmp_path: Path, text: str, part: dict[str, float]) -> None:
    source, target = film_with(tmp_path / "in.mp4", "aac"), tmp_path / "out.mp4"
    muxer, events = rerender(source, target, muted=spans(text), **part)
    assert [report.action for report in muxer.audio] == ["copied"]
    assert set(payloads(target, "audio")) <= set(payloads(source, "audio"))
    assert told(events) == f"--mute {text} mutes nothing: the output has no sound at that time"


def test_sound_is_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    sounds = [SoundSpec(codec="flac"), SoundSpec(codec="aac")]
    write_movie(source, film(), sounds, subtitles=True, metadata={"title": "A title"})
    muxer, events = rerender(source, target, sound=False)
    with av.open(str(target), mode="r") as container:
        assert [stream.type for stream in container.streams] == ["video", "subtitle"]
        assert container.metadata["title"] == "A title"
    assert lines_by_ffmpeg(target) == lines_by_ffmpeg(source)
    assert [report.action for report in muxer.audio] == ["dropped", "dropped"]
    assert not events


@pytest.mark.parametrize("chunks", [1, slow(2)])
def test_a_render_mutes(tmp_path: Path, chunks: int) -> None:
    source = film_with(tmp_path / "in.mkv", "flac", seconds=2 if chunks == 1 else 12)
    target = tmp_path / "out.mkv"
    quick = QUICK if chunks == 1 else {**QUICK, "mask_every": 1}  # a chunk has enough masks
    report = bgsoft.render(source, target, mute=MUTED, chunks=chunks, **quick)
    expected = heard(source).copy()
    expected[BEGIN:END] = 0
    assert np.array_equal(heard(target), expected)
    assert report.audio[0].reason == "parts of it are muted"
    assert len(report.parts) == (chunks if chunks > 1 else 0)


@pytest.mark.parametrize(
    "text", ["5", "-", "", "6-5", "5-5", "1-2-3", "a-b", "1:75-2:00", "5--3", "nan-"]
)
def test_a_span_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--mute .*must"):
        CopyConfig(mute=(text,))


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("a.mp4", "b.gif"), {"audio": "none"}, "audio with pictures, or an"),
        (("a.jpg", "b.jpg"), {"audio": "none"}, "audio with pictures, or an"),
        (("a/%d.png", "b.mp4"), {"mute": "1-2"}, "mute with pictures, or an"),
        (("a.mp4", "b.y4m"), {"mute": "1-2"}, "mute with pictures, or an"),
        (("a.mp4", "b.mp4"), {"audio": "none", "mute": "1-2"}, "mute with audio"),
    ],
)
def test_where_nothing_can_be_muted(
    tmp_path: Path, names: tuple[str, str], options: dict[str, str], message: str
) -> None:
    source, target = (tmp_path / name for name in names)
    with pytest.raises(ConfigError, match=message):
        bgsoft.render(source, target, **options)


def test_frames_have_no_sound(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"no keyword 'mute': it is a setting of bgsoft"):
        bgsoft.frames(tmp_path / "a.mp4", mute="1-2")  # type: ignore[call-arg]


def test_a_batch_of_videos_and_pictures(tmp_path: Path) -> None:
    flags = {"copy": {"audio": Audio.NONE}, "": {}}
    job_factory = JobFactory(tmp_path, name="{stem}-new{suffix}", preset="soft", flags=flags)
    found = [Found(tmp_path / name, Path()) for name in ("a.mp4", "b.jpg")]
    configs = [job.config for job in job_factory.plan(found)]
    assert [config.copy.audio for config in configs] == [Audio.NONE, Audio.KEEP]
