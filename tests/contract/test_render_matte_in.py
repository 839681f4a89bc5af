"""Renders with mattes from files, judged by value."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.errors import BgsoftError, ConfigError, DecodeError
from bgsoft.live.settings import picture_config
from bgsoft.media.probe import probe
from tests.carried import SAMPLE_ENTRY, clean_aperture, insert_box
from tests.contract.test_render_hide import FRAMES, QUICK, pictures, write_noise
from tests.outside import ffmpeg
from tests.rendering import read_back
from tests.synthetic import VideoSpec, damage, write_frames, write_video

MATTE: dict[str, Any] = {"preset": None, "face": "off", "effect": "matte", "codec": "ffv1"}


def truth(number: int, size: tuple[int, int] = (320, 180)) -> NDArray[np.uint8]:
    """A soft disc that moves, another for each frame."""
    xs, ys = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)
    scale = size[0] / 320
    distance = np.hypot(xs / scale - 60 - 30 * number, ys / scale - 90)
    return np.asarray(np.clip(255 * (50 - distance) / 10, 0, 255), np.uint8)


def write_mattes(
    path: Path, layout: str = "gray", count: int = FRAMES, size: tuple[int, int] = (320, 180)
) -> str:
    """Write them as the luma or alpha of a video."""
    drawn = [truth(number, size) for number in range(count)]
    kind = "gray"
    if "a" in layout and layout != "gray":
        drawn = [np.dstack([np.full((*each.shape, 3), 200, np.uint8), each]) for each in drawn]
        kind = "rgba"
    return str(write_frames(path, drawn, kind, pixels=layout))


def write_pictures(folder: Path, *, alpha: bool = False, count: int = FRAMES) -> str:
    folder.mkdir()
    for number in range(count):
        matte = truth(number)
        picture = np.dstack([np.full((180, 320, 3), 9, np.uint8), matte]) if alpha else matte
        cv2.imwrite(str(folder / f"{number:04d}.png"), picture)
    return str(folder / "%04d.png")


def mattes(path: Path) -> list[NDArray[np.float64]]:
    """Opacity of 0 to 255: a matte is written in limited range."""
    return [(frame.planes[0].astype(float) - 16) * 255 / 219 for frame in read_back(path)]


def assert_given(path: Path, tolerance: float = 3) -> None:
    found = mattes(path)
    assert len(found) == FRAMES
    for number, matte in enumerate(found):
        assert np.abs(matte - truth(number)).max() <= tolerance


@pytest.mark.parametrize("kind", ["gray", "yuv420p", "yuva420p", "bgra", "pictures", "rgba png"])
def test_the_matte_is_the_one_in_the_file(tmp_path: Path, kind: str) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    if kind.endswith(("pictures", "png")):
        file = write_pictures(tmp_path / "m", alpha=kind == "rgba png")
    else:
        file = write_mattes(tmp_path / "m.mkv", kind)
    report = bgsoft.render(clip, tmp_path / "out.mkv", matte_in=file, **MATTE)
    assert_given(tmp_path / "out.mkv")
    assert report.model.name == Path(file).name


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    given = {"preset": None, "face": "off", "codec": "ffv1", "keep": "50,50,99,99", **QUICK}
    bgsoft.render(clip, tmp_path / "one.mkv", matte_out=tmp_path / "m.mkv", **given)
    bgsoft.render(clip, tmp_path / "two.mkv", matte_in=tmp_path / "m.mkv", preset=None, face="off",
                  codec="ffv1")  # fmt: skip
    for one, two in zip(
        pictures(tmp_path / "one.mkv"), pictures(tmp_path / "two.mkv"), strict=True
    ):
        assert np.abs(one[0].astype(int) - two[0]).mean() < 1


def test_a_matte_of_another_size_is_enlarged(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    file = write_mattes(tmp_path / "m.mkv", size=(160, 90))
    bgsoft.render(clip, tmp_path / "out.mkv", matte_in=file, **MATTE)
    assert_given(tmp_path / "out.mkv", 16)


@pytest.mark.parametrize("kind", ["pictures", "wide"])
def test_a_matte_for_pixels_that_are_not_square(tmp_path: Path, kind: str) -> None:
    """It has the video's size, whatever its pixels, or the video's shape on a screen."""
    clip = tmp_path / "in.mkv"
    ffmpeg("-i", write_noise(tmp_path / "square.mkv"), "-c", "copy", "-aspect", "32:9", clip)
    if kind == "pictures":
        file = write_pictures(tmp_path / "m")
    else:
        file = str(tmp_path / "m.mkv")
        write_frames(file, (np.repeat(truth(n), 2, axis=1) for n in range(FRAMES)), pixels="gray")
    bgsoft.render(clip, tmp_path / "out.mkv", matte_in=file, **MATTE)
    assert_given(tmp_path / "out.mkv")


def test_a_matte_is_cropped_as_its_container_declares(tmp_path: Path) -> None:
    clip, file = write_noise(tmp_path / "in.mkv"), tmp_path / "m.mov"
    padded = (np.pad(truth(number), ((20, 8), (32, 16))) for number in range(FRAMES))
    write_frames(file, padded, codec="libx264", options={"qp": "0"})
    insert_box(file, SAMPLE_ENTRY, clean_aperture((368, 208), 32, 20, 16, 8))
    bgsoft.render(clip, tmp_path / "out.mkv", matte_in=file, **MATTE)
    assert_given(tmp_path / "out.mkv")


def test_mattes_by_time(tmp_path: Path) -> None:
    """The mattes have half the frame rate, so each serves two frames."""
    clip = write_noise(tmp_path / "in.mkv")
    settings = {**MATTE, "matte_match": "time"}
    write_frames(tmp_path / "half.mkv", map(truth, range(3)), pixels="gray", rate=Fraction(25, 2))
    bgsoft.render(clip, tmp_path / "out.mkv", matte_in=tmp_path / "half.mkv", **settings)
    for number, matte in enumerate(mattes(tmp_path / "out.mkv")):
        assert np.abs(matte - truth(number // 2)).max() <= 3
    part = {**settings, "start": 0.08, "duration": 0.08}
    bgsoft.render(clip, tmp_path / "part.mkv", matte_in=tmp_path / "half.mkv", **part)
    found = mattes(tmp_path / "part.mkv")
    assert len(found) == 2
    for matte in found:
        assert np.abs(matte - truth(1)).max() <= 3


def test_a_matte_by_time_is_not_taken_early(tmp_path: Path) -> None:
    clip, given = tmp_path / "in.mkv", tmp_path / "m.mkv"
    write_frames(clip, map(truth, range(5)), rate=Fraction(5, 2))
    write_frames(given, map(truth, range(4)), pixels="gray", rate=2)
    bgsoft.render(clip, tmp_path / "out.mkv", matte_in=given, matte_match="time", **MATTE)
    for number, matte in zip((0, 0, 1, 2, 3), mattes(tmp_path / "out.mkv"), strict=True):
        assert np.abs(matte - truth(number)).max() <= 3


def test_the_last_matte_is_shown_to_its_end(tmp_path: Path) -> None:
    clip, file = write_noise(tmp_path / "in.mkv"), tmp_path / "m.mp4"
    write_video(file, VideoSpec(times=[Fraction(0), Fraction(1, 25)], rate=Fraction(5), width=128))
    given = {**MATTE, "matte_in": file, "matte_match": "time"}
    bgsoft.render(clip, tmp_path / "out.mkv", **given)
    first, *others = mattes(tmp_path / "out.mkv")
    assert len(others) == FRAMES - 1
    assert not np.array_equal(first, others[0])
    for matte in others[1:]:
        np.testing.assert_array_equal(matte, others[0])


def test_pictures_by_time(tmp_path: Path) -> None:
    """Without ``fps``, matte pictures last 1/25 s each."""
    clip, files = write_noise(tmp_path / "in.mkv"), write_pictures(tmp_path / "m")
    settings = {**MATTE, "matte_match": "time", "matte_in": files}
    bgsoft.render(clip, tmp_path / "out.mkv", **settings)
    assert_given(tmp_path / "out.mkv")
    bgsoft.render(clip, tmp_path / "part.mkv", start=0.12, **settings)
    found = mattes(tmp_path / "part.mkv")
    assert len(found) == FRAMES - 3
    for number, matte in enumerate(found, 3):
        assert np.abs(matte - truth(number)).max() <= 3


@pytest.mark.parametrize("mode", ["max", "min"])
def test_mattes_are_combined_with_our_own(tmp_path: Path, mode: str) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    file = write_mattes(tmp_path / "m.mkv")
    given = {**MATTE, **QUICK}
    bgsoft.render(clip, tmp_path / "own.mkv", **given)
    bgsoft.render(clip, tmp_path / "out.mkv", matte_in=file, matte_mode=mode, **given)
    merge = np.maximum if mode == "max" else np.minimum
    own, found = mattes(tmp_path / "own.mkv"), mattes(tmp_path / "out.mkv")
    for number, (before, after) in enumerate(zip(own, found, strict=True)):
        assert np.abs(after - merge(before, truth(number))).max() <= 3


@pytest.mark.parametrize("count", [FRAMES - 2, FRAMES + 3])
@pytest.mark.parametrize("kind", ["video", "pictures"])
def test_counts_that_differ_are_an_error_that_names_both(
    tmp_path: Path, count: int, kind: str
) -> None:
    clip, target = write_noise(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    file = (
        write_mattes(tmp_path / "m.mkv", count=count)
        if kind == "video"
        else write_pictures(tmp_path / "m", count=count)
    )
    with pytest.raises(
        DecodeError, match=rf"contains {count} mattes, but the video .*{FRAMES} frame"
    ):
        bgsoft.render(clip, target, matte_in=file, **MATTE)
    assert not target.exists()


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("none.mkv", {}, "none.mkv: it does not exist"),
        ("text.mkv", {}, "text.mkv"),
        (
            "wide.mkv",
            {},
            "its picture of 320x90 is shown at 3.56:1, but the video of 320x180 at 1.78:1",
        ),
        ("vp9.webm", {}, "cannot read the alpha channel of VP8, VP9 and HEVC"),
        ("hevc.mp4", {}, "cannot read the alpha channel of VP8, VP9 and HEVC"),
        ("m.mkv", {"start": 0.1}, "need matte_match time"),
        ("m.mkv", {"model": "selfie-landscape"}, "model .*has no effect"),
        ("m.mkv", {"threshold": 0.3}, "threshold .*has no effect"),
        (None, {"matte_mode": "max"}, "matte_mode .*has no effect"),
    ],
)
def test_a_matte_that_cannot_be_used(
    tmp_path: Path, file: str | None, settings: dict[str, Any], message: str
) -> None:
    clip, target = write_noise(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    (tmp_path / "text.mkv").write_text("no video")
    write_mattes(tmp_path / "m.mkv")
    write_mattes(tmp_path / "wide.mkv", size=(320, 90))
    if file == "hevc.mp4":
        source = "color=red@0.5:s=320x180:d=0.1,format=yuva420p"
        ffmpeg("-f", "lavfi", "-i", source, "-c:v", "libx265", tmp_path / file)
        if probe(tmp_path / file).pixel_format == "yuva420p":
            pytest.skip("FFmpeg 9 reads the alpha channel of HEVC")
    if file == "vp9.webm":
        cutout = {"effect": "alpha", "codec": "vp9", "preset": None, "face": "off", **QUICK}
        bgsoft.render(clip, tmp_path / file, **cutout)
    given = {} if file is None else {"matte_in": tmp_path / file}
    with pytest.raises(ConfigError, match=message):
        bgsoft.render(clip, target, **given, **{**MATTE, **settings})
    assert not target.exists()


def test_gaps_in_the_numbers_of_mattes(tmp_path: Path) -> None:
    """They are those of the pictures; with a video, or by time, they are reported."""
    clip, files = write_noise(tmp_path / "in.mkv"), write_pictures(tmp_path / "f", count=FRAMES + 1)
    mattes_given = write_pictures(tmp_path / "m", count=FRAMES + 1)
    given = {**MATTE, "matte_in": mattes_given}
    (tmp_path / "m" / "0003.png").unlink()
    (tmp_path / "f" / "0004.png").unlink()
    with pytest.raises(ConfigError, match=r"0004\.png would be the matte of 0003\.png"):
        bgsoft.render(files, tmp_path / "out.mkv", **given)
    for source, more in ((clip, {}), (files, {"matte_match": "time"})):
        report = bgsoft.render(source, tmp_path / "out.mkv", overwrite=True, **given, **more)
        (told,) = (event.message for event in report.events if "--matte-in" in event.message)
        assert told.endswith("1 numbers between 0 and 6 have no picture: closed up")
    (tmp_path / "f" / "0003.png").rename(tmp_path / "f" / "0004.png")
    report = bgsoft.render(files, tmp_path / "out.mkv", overwrite=True, **given)
    assert not any("--matte-in" in event.message for event in report.events)


def test_each_matte_has_the_proportions_of_the_frame(tmp_path: Path) -> None:
    clip, files = write_noise(tmp_path / "in.mkv"), write_pictures(tmp_path / "m")
    cv2.imwrite(str(tmp_path / "m" / "0004.png"), truth(4).T)
    with pytest.raises(DecodeError, match=r"cannot use .*0004\.png: its picture of 180x320"):
        bgsoft.render(clip, tmp_path / "out.mkv", matte_in=files, **MATTE)


def test_a_damaged_matte_is_an_error(tmp_path: Path) -> None:
    """In the video itself, packets that a decoder rejects are concealed."""
    clip, file = write_noise(tmp_path / "in.mkv"), Path(write_mattes(tmp_path / "m.mkv"))
    damage(file, [2], whole=True)
    with pytest.raises(DecodeError, match=r"m\.mkv: it is damaged"):
        bgsoft.render(clip, tmp_path / "out.mkv", matte_in=file, **MATTE)
    assert not (tmp_path / "out.mkv").exists()


def test_the_matte_may_not_be_the_output(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    file = write_mattes(tmp_path / "m.mkv")
    before = Path(file).read_bytes()
    with pytest.raises(BgsoftError, match=r"m\.mkv"):
        bgsoft.render(clip, file, matte_in=file, overwrite=True, **MATTE)
    assert Path(file).read_bytes() == before


def test_arrays_and_cameras_take_no_file() -> None:
    with pytest.raises(ConfigError, match="cannot use matte_in: it works only with"):
        bgsoft.Processor(matte_in="m.mkv")
    with pytest.raises(ConfigError, match="cannot use --matte-in: it works only with"):
        picture_config(None, {"segment": {"matte_in": "m.mkv"}})
    with pytest.raises(ConfigError, match="cannot use --faces: it works only with"):
        picture_config(None, {"face": {"file": "f.jsonl"}})
