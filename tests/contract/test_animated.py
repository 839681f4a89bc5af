"""Animations: GIF and WebP, which Pillow reads."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

import bgsoft
from bgsoft.errors import ConfigError
from tests.face_clips import SAMPLE
from tests.outside import ffmpeg
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie, write_video

QUICK = {"face": "off", "matte": "fast", "effect": "dim", "strength": 0.0, "preset": None}


def frames_of(path: Path) -> list[np.ndarray]:
    with Image.open(path) as image:
        return [np.asarray(each.convert("RGBA")) for each in ImageSequence.Iterator(image)]


def webp_milliseconds(path: Path) -> list[int]:
    """Durations of a WebP animation's frames (RFC 9649, 2.7.1.1)."""
    data, at, found = path.read_bytes(), 12, []
    while at < len(data):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if kind == b"ANMF":
            found.append(int.from_bytes(data[at + 20 : at + 23], "little"))
        at += 8 + size + size % 2
    return found


def gif_milliseconds(path: Path) -> list[int]:
    with Image.open(path) as image:
        return [int(each.info["duration"]) for each in ImageSequence.Iterator(image)]


@pytest.mark.parametrize("name", ["out.gif", "out.webp"])
def test_every_frame_has_its_time_and_colours(tmp_path: Path, name: str) -> None:
    times = regular_times(6, Fraction(20))
    times[4:] = [time + Fraction(1, 10) for time in times[4:]]  # a pause
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=times, width=96, height=72))
    target = tmp_path / name
    bgsoft.render(source, target, format=name[4:], **QUICK)
    raw = ("-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24")
    ffmpeg("-i", source, *raw, tmp_path / "rgb")
    wanted = np.fromfile(tmp_path / "rgb", np.uint8).reshape(6, 72, 96, 3).astype(int)
    shown = frames_of(target)
    assert len(shown) == 6
    for one, other in zip(shown, wanted, strict=True):
        assert np.abs(one[..., :3] - other).mean() < 6
        assert (one[..., 3] == 255).all()
    measure = gif_milliseconds if name == "out.gif" else webp_milliseconds
    assert measure(target)[:5] == [50, 50, 50, 150, 50]


@pytest.mark.parametrize("name", ["out.gif", "out.webp"])
def test_frames_that_do_not_change_are_all_written(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / name
    ffmpeg("-f", "lavfi", "-i", "color=0x4080c0:s=64x48:r=10:d=0.5", source)
    bgsoft.render(source, target, format=name[4:], **QUICK)
    measure = gif_milliseconds if name == "out.gif" else webp_milliseconds
    assert sum(measure(target)) == 500
    assert np.abs(frames_of(target)[-1][24, 32, :3] - np.array((64, 128, 192))).max() <= 6


@pytest.mark.parametrize("name", ["out.gif", "out.webp"])
def test_a_cutout_is_clear_around_people(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / name
    pan = "scale=320:180,crop=160:90:n*20:90"  # people move to the left
    ffmpeg("-ss", "1", "-i", SAMPLE, "-an", "-frames:v", "8", "-vf", pan, source)
    quick = {"face": "off", "matte": "fast", "effect": "alpha"}
    bgsoft.render(source, target, format=name[4:], **quick, matte_out=tmp_path / "matte.mkv")
    raw = ("-f", "rawvideo", "-pix_fmt", "gray")
    ffmpeg("-i", tmp_path / "matte.mkv", *raw, tmp_path / "gray")
    mattes = np.fromfile(tmp_path / "gray", np.uint8).reshape(8, 90, 160).astype(int)
    assert (mattes[0] > mattes[-1] + 200).mean() > 0.1
    for shown, matte in zip(frames_of(target), mattes, strict=True):
        assert shown[..., 3].min() == 0
        assert shown[..., 3].max() == 255
        assert np.abs(shown[..., 3] - matte).mean() < 6


def test_a_video_named_webp_is_refused_with_advice(tmp_path: Path) -> None:
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=regular_times(2)))
    with pytest.raises(ConfigError, match=r"or write \.gif or add format webp"):
        bgsoft.render(source, tmp_path / "out.webp", **QUICK)


@pytest.mark.parametrize(
    ("format", "label", "most"), [("gif", "GIF", 50), ("webp", "animated WebP", 60)]
)
def test_what_an_animation_lacks_is_named(
    tmp_path: Path, format: str, label: str, most: int
) -> None:
    video = VideoSpec(times=regular_times(3, Fraction(90)), width=96, height=72)
    tags = {"title": "a film"}
    source = write_movie(tmp_path / "in.mp4", video, sounds=[SoundSpec()], metadata=tags)
    report = bgsoft.render(source, tmp_path / f"out.{format}", format=format, **QUICK)
    notices = [event.message for event in report.events]
    assert f"audio track 0 (aac) left out: {label} cannot hold aac" in notices
    assert f"{label} with more than {most} frames/s is played slowly by most programs" in notices
    assert f"{label} cannot hold the tag title: left out" in notices


@pytest.mark.parametrize("aspect", [Fraction(3, 2), Fraction(6)])
@pytest.mark.parametrize("kind", ["gif", "webp"])
def test_a_pixel_aspect_is_stored_or_named(tmp_path: Path, kind: str, aspect: Fraction) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / f"out.{kind}"
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=64x48:d=0.1,setsar={aspect}", "-c:v", "ffv1", source)
    report = bgsoft.render(source, target, format=kind, **QUICK)
    named = any("pixel aspect" in event.message for event in report.events)
    stored = kind == "gif" and Fraction(target.read_bytes()[12] + 15, 64) == aspect
    assert stored is not named
    assert named == (kind == "webp" or aspect > 4)
