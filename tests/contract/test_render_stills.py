"""Whole renders of pictures and of sequences of them."""

from __future__ import annotations

import re
import shutil
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

import bgsoft
from bgsoft.cli.main import main
from bgsoft.errors import ConfigError, OpenError, OutputError, UnsupportedFormatError
from tests.face_clips import SAMPLE
from tests.outside import described_by_ffmpeg, ffmpeg, shown_by_ffmpeg
from tests.profiles import adobe_as_srgb, adobe_profile, gray_as_srgb, gray_profile
from tests.stills import colourful, load, profile, save

QUICK = {"face": "off", "matte": "fast"}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture of a person, whose every second column has another colour."""
    path = tmp_path_factory.mktemp("stills") / "person.png"
    ffmpeg("-ss", "1", "-i", SAMPLE, "-frames:v", "1", "-vf", "scale=320:180", path)
    pixels = np.array(Image.open(path).convert("RGB"))
    pixels[:, ::2, 0] |= 128
    return save(path, pixels, icc=profile())


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    ffmpeg("-i", SAMPLE, "-frames:v", "12", "-vf", "scale=160:90", folder / "%d.png")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_people_in_a_picture_stay_untouched(person: Path, tmp_path: Path) -> None:
    out, matte = tmp_path / "out.png", tmp_path / "matte.png"
    report = bgsoft.render(person, out, matte_out=matte, **QUICK)
    opaque = load(matte) == 255
    assert 0.05 < opaque.mean() < 0.9
    assert np.array_equal(load(out)[opaque], load(person)[opaque])
    assert not np.array_equal(load(out), load(person))
    assert (report.frames_decoded, report.frames_encoded) == (1, 1)
    with Image.open(out) as image:
        assert image.info["icc_profile"] == profile()
    assert names(tmp_path) == ["matte.png", "out.png"]


def test_a_picture_is_cut_out(person: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    bgsoft.render(person, out, preset="cutout", **QUICK)
    pixels = load(out)
    assert pixels.shape == (180, 320, 4)
    opaque, clear = pixels[..., 3] == 255, pixels[..., 3] == 0
    assert opaque.any()
    assert clear.any()
    assert np.array_equal(pixels[opaque][:, :3], load(person)[opaque])
    assert not pixels[clear].any()
    with pytest.raises(UnsupportedFormatError, match="JPEG: it cannot hold an alpha channel"):
        bgsoft.render(person, tmp_path / "out.jpg", effect="alpha")
    assert names(tmp_path) == ["out.png"]


def test_a_picture_has_no_speed(
    person: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--face", "off", "--matte", "fast", "--infer", "cpu", "--decode", "cpu"]
    assert main(["render", str(person), str(tmp_path / "out.png"), *flags]) == 0
    assert re.search(r"out\.png: 1 frame in \d+\.\d s$", capfd.readouterr().err, re.MULTILINE)


def test_a_turned_photograph_comes_out_upright(person: Path, tmp_path: Path) -> None:
    upright = load(person)
    source = save(tmp_path / "in.jpg", np.rot90(upright), orientation=6, icc=profile())
    bgsoft.render(source, tmp_path / "out.jpg", quality=98, **QUICK)
    with Image.open(tmp_path / "out.jpg") as image:
        assert image.size == (320, 180)
        assert image.getexif().get(274) is None
        assert image.info["icc_profile"] == profile()


PLAIN = {"effect": "dim", "strength": 0.0, "preset": None, **QUICK}


def test_a_grey_profile_is_applied(tmp_path: Path) -> None:
    source = save(tmp_path / "in.png", colourful()[..., 0], icc=gray_profile(1.0))
    bgsoft.render(source, tmp_path / "out.png", **PLAIN)
    with Image.open(tmp_path / "out.png") as image:
        assert (image.mode, image.info.get("icc_profile")) == ("RGB", None)
    wanted = gray_as_srgb(colourful()[..., :1] / 255, 1.0)
    assert np.abs(load(tmp_path / "out.png") - wanted).mean() < 1.5


@pytest.mark.parametrize("target", ["out.png", "out.bmp", "out.mkv"])
def test_wide_colours_fit_what_is_written(tmp_path: Path, target: str) -> None:
    muted = np.full((48, 64, 3), (90, 160, 110), np.uint8)
    source, out = save(tmp_path / "in.png", muted, icc=adobe_profile()), tmp_path / target
    bgsoft.render(source, out, **PLAIN)
    wanted = adobe_as_srgb(muted / 255)
    if target == "out.png":
        wanted = muted
        with Image.open(out) as image:
            assert image.info["icc_profile"] == adobe_profile()
    if target == "out.mkv":
        # sRGB in what labels say is BT.709's matrix, limited range.
        ffmpeg("-i", out, "-frames:v", "1", tmp_path / "shown.png")
        out = tmp_path / "shown.png"
    assert np.abs(load(out) - wanted).max() <= (3 if target == "out.mkv" else 1.5)


@pytest.mark.parametrize("target", ["out.png", "out.tif", "out.webp"])
def test_a_cutout_keeps_pixels_and_profile(tmp_path: Path, target: str) -> None:
    source, out = save(tmp_path / "in.png", colourful(), icc=adobe_profile()), tmp_path / target
    bgsoft.render(source, out, effect="alpha", keep="0,0,50,48", drop="50,0,14,48", **QUICK)
    with Image.open(out) as image:
        assert image.info["icc_profile"] == adobe_profile()
        assert image.mode == "RGBA"
    if target != "out.webp":
        assert np.array_equal(load(out)[:, :40, :3], colourful()[:, :40])


def test_another_background_makes_everything_srgb(tmp_path: Path) -> None:
    muted = np.full((48, 64, 3), (90, 160, 110), np.uint8)
    source = save(tmp_path / "in.png", muted, icc=adobe_profile())
    bgsoft.render(source, tmp_path / "out.png", effect="color", background="#204060", **QUICK)
    with Image.open(tmp_path / "out.png") as image:
        assert image.info.get("icc_profile") is None


def test_a_hidden_place_in_a_picture(person: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    hidden = {"hide": "40%,40%,20%,40%", "anonymize_style": "solid"}
    bgsoft.render(person, out, **hidden, **QUICK)
    assert load(out)[72 + 6 : 144 - 6, 128 + 6 : 192 - 6].max() <= 3


@pytest.mark.parametrize("pattern", [False, True])
def test_a_sequence_in_and_out(frames: Path, tmp_path: Path, pattern: bool) -> None:
    out = tmp_path / "out" / "%03d.png"
    report = bgsoft.render(frames / "%d.png" if pattern else frames, out, **QUICK)
    assert names(out.parent) == [f"{number:03}.png" for number in range(1, 13)]
    assert report.frames_encoded == 12
    # The same as each alone, where nothing remembers the one before.
    once = {**QUICK, "temporal": 0.0, "effect": "color"}
    bgsoft.render(frames, tmp_path / "all" / "%d.png", **once)
    bgsoft.render(frames / "10.png", tmp_path / "one.png", **once)
    difference = load(tmp_path / "all" / "10.png").astype(int) - load(tmp_path / "one.png")
    assert np.abs(difference).mean() < 0.5


def test_a_sequence_becomes_a_video_at_its_rate(frames: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    bgsoft.render(frames, out, fps=10, codec="ffv1", start=0.2, duration=0.5, **QUICK)
    assert shown_by_ffmpeg(out) == [Fraction(number, 10) for number in range(5)]


def test_a_video_becomes_a_sequence(tmp_path: Path) -> None:
    source = tmp_path / "in.mkv"
    filters = "scale=160:90,format=yuv420p10le"
    ffmpeg("-i", SAMPLE, "-t", "0.2", "-vf", filters, "-c:v", "ffv1", source)
    messages: list[str] = []
    bgsoft.render(
        source,
        tmp_path / "out" / "%d.png",
        effect="alpha",
        on_event=lambda event: messages.append(event.message),
        **QUICK,
    )
    ffmpeg("-i", source, tmp_path / "theirs%d.png")
    assert len(names(tmp_path / "out")) == len(shown_by_ffmpeg(source))
    ours = load(tmp_path / "out" / "1.png")
    theirs = load(tmp_path / "theirs1.png")
    opaque = ours[..., 3] == 255
    assert np.abs(ours[opaque][:, :3].astype(int) - theirs[opaque]).mean() < 2
    with Image.open(tmp_path / "out" / "1.png") as image:
        assert image.tile[0][3] == "RGBA;16B"
    assert any("hold no sound" in message for message in messages)


def test_a_picture_of_another_size_is_fitted_in(frames: Path, tmp_path: Path) -> None:
    shutil.copy(frames / "1.png", tmp_path / "1.png")
    save(tmp_path / "2.png", colourful(90, 90))
    messages: list[str] = []
    out = tmp_path / "out" / "%d.png"
    bgsoft.render(tmp_path, out, on_event=lambda event: messages.append(event.message), **QUICK)
    assert load(tmp_path / "out" / "2.png").shape == (90, 160, 3)
    assert any("size changes to 90x90" in message for message in messages)


@pytest.mark.parametrize("deep", [1, 2])
def test_pictures_of_two_depths(tmp_path: Path, deep: int) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in (1, 2):
        samples = colourful().astype(np.uint16) * 257 if number == deep else colourful()
        cv2.imwrite(str(source / f"{number}.png"), samples)
    report = bgsoft.render(source, tmp_path / "out" / "%d.png", keep="0,0,100%,100%", **PLAIN)
    shown = cv2.imread(str(tmp_path / "out" / "2.png"), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(shown, colourful() * np.uint16(257) if deep == 1 else colourful())
    notices = [event.message for event in report.events]
    assert ("16-bit samples reduced to 8 bits, as in the first picture" in notices) == (deep == 2)


def test_a_sequence_that_cannot_be_read_to_its_end_leaves_nothing(
    frames: Path, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        shutil.copy(frames / f"{number}.png", tmp_path)
    data = (tmp_path / "3.png").read_bytes()
    (tmp_path / "3.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(OpenError, match=r"3\.png: it is damaged or cut off"):
        bgsoft.render(tmp_path, tmp_path / "out" / "%d.png", **QUICK)
    assert names(tmp_path) == ["1.png", "2.png", "3.png"]


def test_what_makes_no_sense(person: Path, frames: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one picture cannot hold a video"):
        bgsoft.render(frames, tmp_path / "out.png")
    with pytest.raises(ConfigError, match=r"fps .*has no effect"):
        bgsoft.render(person, tmp_path / "out.png", fps=30)
    with pytest.raises(OutputError, match="would replace its input"):
        bgsoft.render(frames, frames / "%d.png", overwrite=True)
    assert names(tmp_path) == []


def test_no_picture_of_a_sequence_is_written_to(frames: Path, tmp_path: Path) -> None:
    only, more, linked = (tmp_path / name for name in ("only", "more", "linked"))
    for folder, numbers in ((only, [1]), (more, [1, 2])):
        folder.mkdir()
        for number in numbers:
            shutil.copy(frames / f"{number}.png", folder)
    linked.mkdir()
    (linked / "a.png").symlink_to(only / "1.png")
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*.png")}
    for source, target, beside in (
        (only, only / "1.png", {}),
        (linked, only / "%d.png", {}),
        (more, tmp_path / "out.mkv", {"report": more / "2.png"}),
        (more, tmp_path / "out.mkv", {"matte_out": more / "2.png"}),
    ):
        with pytest.raises(OutputError, match=r"is the same|would replace"):
            bgsoft.render(source, target, overwrite=True, **beside, **QUICK)
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*.png")} == before


def test_an_existing_sequence_may_be_skipped(frames: Path, tmp_path: Path) -> None:
    shutil.copy(frames / "1.png", tmp_path / "7.png")
    assert bgsoft.render(frames, tmp_path / "%d.png", skip_existing=True).skipped
    assert names(tmp_path) == ["7.png"]


@pytest.mark.parametrize(
    ("primaries", "transfer"), [("bt2020", "smpte2084"), ("smpte432", "bt709")]
)
def test_pictures_of_a_video_say_what_nobody_would_guess(
    tmp_path: Path, primaries: str, transfer: str
) -> None:
    source = tmp_path / "in.mkv"
    labels = f"setparams=color_primaries={primaries}:color_trc={transfer}:colorspace=bt709"
    clip = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.04", "-vf", f"{labels},setsar=4/3")
    ffmpeg(*clip, "-c:v", "ffv1", "-pix_fmt", "yuv420p10le", source)
    report = bgsoft.render(source, tmp_path / "png" / "%d.png", **PLAIN)
    shown = described_by_ffmpeg(tmp_path / "png" / "1.png")
    assert f"{primaries}/{transfer}" in shown
    notices = [event.message for event in report.events]
    assert "pixel aspect 4:3 left out: pictures have square pixels" in notices
    bgsoft.render(tmp_path / "png", tmp_path / "back.mkv", codec="ffv1", **PLAIN)
    assert f"/{primaries}/{transfer}" in described_by_ffmpeg(tmp_path / "back.mkv")
    report = bgsoft.render(source, tmp_path / "jpg" / "%d.jpg", **PLAIN)
    assert any(
        "JPEG cannot store the colour description" in event.message for event in report.events
    )


def test_pictures_of_hdr10_say_what_they_lack(tmp_path: Path) -> None:
    light = "log-level=none:hdr10=1:max-cll=1000,400:colorprim=9:transfer=16:colormatrix=9"
    clip = ("-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=0.04", "-pix_fmt", "yuv420p10le")
    ffmpeg(*clip, "-c:v", "libx265", "-x265-params", light, tmp_path / "in.mkv")
    report = bgsoft.render(tmp_path / "in.mkv", tmp_path / "png" / "%d.png", **PLAIN)
    lost = "PNG is written without HDR10's mastering display and content light"
    assert lost in [event.message for event in report.events]
