"""Each channel of a track keeps its place in the output, or a notice tells its new place.

Each channel of a source has its own tone; a second FFmpeg reads the output.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.report import Event
from tests.marks import slow
from tests.movies import rerender
from tests.outside import described_by_ffmpeg, ffmpeg

RATE = 48_000
LEVEL = 0.1
AUDIBLE = 0.03
"""Share of a tone that counts as there: a 24th of it, where 24 channels become one."""
TONES = (60, 80, *range(300, 2_700, 100))
CONTAINERS = (".mp4", ".mov", ".mkv", ".webm", ".ts", ".avi")
LAYOUTS = (
    *("mono", "stereo", "2.1", "3.0", "3.0(back)", "4.0", "quad", "quad(side)", "3.1", "5.0"),
    *("5.0(side)", "4.1", "5.1", "5.1(side)", "6.0", "6.0(front)", "hexagonal", "6.1", "6.1(back)"),
    *("6.1(front)", "7.0", "7.0(front)", "7.1", "7.1(wide)", "7.1(wide-side)", "octagonal"),
    *("5.1.2", "cube", "5.1.4", "7.1.4", "9.1.6", "hexadecagonal", "22.2"),
    *("ambisonic 1", "binaural", "downmix"),
    *(f"{count} channels" for count in range(3, 17)),
    *("2 channels (FR+FL)", "2 channels (FL+FL)", "6 channels (FL+FR+SL+SR+FC+LFE)"),
)
CODECS = {
    # By encoder: a container that FFmpeg writes it to.
    **dict.fromkeys(("pcm_s16le", "pcm_s24be", "alac", "aac", "adpcm_ima_qt"), ".mov"),
    **dict.fromkeys(("pcm_f64le", "flac", "libopus", "libvorbis", "ac3", "eac3", "dca"), ".mkv"),
    **dict.fromkeys(("truehd", "mlp", "tta", "wavpack", "mp2", "libmp3lame", "wmav2"), ".mkv"),
    **dict.fromkeys(("pcm_f32le", "pcm_u8"), ".nut"),
    **dict.fromkeys(("pcm_mulaw", "adpcm_ms"), ".avi"),
    "s302m": ".ts",
    "pcm_bluray": ".ts",
    "pcm_dvd": ".mpg",
    "pcm_s24le": ".mxf",
}


@cache
def channels(layout: str) -> tuple[str, ...]:
    return tuple(channel.name for channel in av.AudioLayout(layout).channels)


def tones(layout: str) -> list[int]:
    """Hz of each channel's tone: codecs take low ones only in a channel for these."""
    names = channels(layout)
    return [{"LFE": 60, "LFE2": 80}.get(name, 300 + 100 * at) for at, name in enumerate(names)]


def write(path: Path, layout: str, encoder: str, *options: str) -> bool:
    """A second of pictures with the tones of a layout; False where FFmpeg cannot write that."""
    sound = "|".join(f"{LEVEL}*sin(2*PI*{tone}*t)" for tone in tones(layout))
    ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=1"),
        *("-f", "lavfi", "-i", f"aevalsrc='{sound}':c='{layout}':s={RATE}:d=1"),
        *("-c:v", "mpeg4", "-c:a", encoder, "-strict", "-2", *options, path),
        check=False,
    )
    return path.exists() and path.stat().st_size > 0 and "Audio:" in described_by_ffmpeg(path)


class Heard(NamedTuple):
    """First audio track of a file, as a second FFmpeg decodes it."""

    channels: tuple[str, ...]
    samples: NDArray[np.float64]
    """(channels, samples)."""

    def shares(self, tone: int) -> NDArray[np.float64]:
        """Return the share of a tone in each channel."""
        middle = self.samples[:, RATE // 5 : RATE // 5 + RATE // 2]
        turn = np.exp(2j * np.pi * tone / RATE * np.arange(middle.shape[1]))
        found: NDArray[np.float64] = np.abs((middle * turn).mean(axis=1)) * 2 / LEVEL
        return found


def hear(path: Path) -> Heard:
    """Decode a track, and read the names of its channels as players take them."""
    found = re.search(r"Audio: .*? Hz, (.*?), ", described_by_ffmpeg(path))
    assert found is not None
    names = channels(found[1])
    if "NONE" in names and len(names) <= 8:
        names = channels(f"{len(names)}c")
    raw = path.with_suffix(".raw")
    ffmpeg("-i", path, "-map", "0:a:0", "-f", "f32le", "-ar", str(RATE), raw)
    samples = np.fromfile(raw, "<f4").reshape(-1, len(names)).T.astype(np.float64)
    return Heard(names, samples)


def assert_heard(source: Path, target: Path, events: list[Event]) -> None:
    """Each tone is in the channel of its name or, as a notice says, in another."""
    before, after = hear(source), hear(target)
    said = " ".join(event.message for event in events)
    heard = [tone for tone in TONES if before.shares(tone).max() > 0.3]
    assert heard
    for tone in heard:
        here, there = before.shares(tone), after.shares(tone)
        name, loudest = before.channels[int(np.argmax(here))], here.max()
        own = before.channels.count(name) == 1 and name in after.channels
        if before.channels == after.channels:
            at = int(np.argmax(here))
            assert there[at] > 0.9 * loudest, (name, said)
            assert np.delete(there, at).max(initial=0) < 0.2 + np.delete(here, at).max(initial=0)
        elif own:
            assert there[after.channels.index(name)] > AUDIBLE * loudest, (name, said)
        elif there.max() < AUDIBLE * loudest:
            assert f"{name} left out" in said, (name, said)
        else:
            same = {name, after.channels[int(np.argmax(there))]} in ({"BL", "SL"}, {"BR", "SR"})
            assert same or "becomes" in said or "have no names" in said, (name, said)


def convert(tmp_path: Path, source: Path, ending: str) -> None:
    target = tmp_path / f"out{ending}"
    _, events = rerender(source, target)
    assert_heard(source, target, events)


@pytest.mark.parametrize(
    ("layout", "ending"), [slow("7.1", ".mp4"), ("5.1.4", ".mp4"), ("5.0", ".webm")]
)
def test_channels_are_where_they_were(tmp_path: Path, layout: str, ending: str) -> None:
    assert write(tmp_path / "in.mov", layout, "pcm_s16le")
    convert(tmp_path, tmp_path / "in.mov", ending)


@pytest.mark.slow
@pytest.mark.parametrize("ending", CONTAINERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout(tmp_path: Path, layout: str, ending: str) -> None:
    source = tmp_path / "in.mov"
    if not write(source, layout, "pcm_s16le"):
        pytest.skip("FFmpeg does not write it")
    convert(tmp_path, source, ending)


@pytest.mark.slow
@pytest.mark.parametrize("ending", CONTAINERS)
@pytest.mark.parametrize("layout", ["stereo", "2.1", "4.0", "5.1", "7.1"])
@pytest.mark.parametrize("encoder", CODECS)
def test_each_codec(tmp_path: Path, encoder: str, layout: str, ending: str) -> None:
    source = tmp_path / f"in{CODECS[encoder]}"
    if not write(source, layout, encoder):
        pytest.skip("FFmpeg does not write it")
    convert(tmp_path, source, ending)


@pytest.mark.parametrize("ending", [".mkv", ".ts"])
def test_frames_shorter_than_the_clock_s_tick_are_kept(tmp_path: Path, ending: str) -> None:
    """TrueHD has 1200 frames a second, and Matroska 1000 ticks."""
    source, target = tmp_path / "in.mkv", tmp_path / f"out{ending}"
    assert write(source, "5.1", "truehd")
    _, events = rerender(source, target)
    assert [event.message for event in events if event.stage == "mux"] == []
    samples = [ffmpeg("-i", path, "-map", "0:a", "-f", "md5", "-") for path in (source, target)]
    assert samples[0] == samples[1] != ""


def test_opus_that_mpeg_ts_cannot_describe_is_converted(tmp_path: Path) -> None:
    """Opus's mapping family 255 has any number of unnamed channels."""
    source, target = tmp_path / "in.mkv", tmp_path / "out.ts"
    assert write(source, "stereo", "libopus", "-mapping_family", "255")
    muxer, _ = rerender(source, target)
    assert [track.action for track in muxer.audio] == ["transcoded"]
    assert max(hear(target).shares(300)) > 0.9


def test_channels_that_change_midway_are_reported(tmp_path: Path) -> None:
    """Broadcasts change them between programmes."""
    joined = tmp_path / "in.ac3"
    with joined.open("wb") as file:
        for layout in ("stereo", "5.1"):
            assert write(tmp_path / "part.mkv", layout, "ac3")
            ffmpeg("-i", tmp_path / "part.mkv", "-map", "0:a", "-c", "copy", tmp_path / "part.ac3")
            file.write((tmp_path / "part.ac3").read_bytes())
    source, target = tmp_path / "in.ts", tmp_path / "out.webm"
    picture = ("-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=2", "-c:v", "mpeg2video")
    ffmpeg("-f", "ac3", "-i", joined, *picture, "-c:a", "copy", source)
    _, events = rerender(source, target)
    said = [event.message for event in events if "from now on" in event.message]
    assert len(said) == 1
    assert said[0].startswith(
        "audio track 0: from now on 5.1(side) becomes stereo: FC into FL and FR"
    )
    assert hear(target).samples.shape[1] > 1.8 * RATE
