"""Whole renders of 4:2:2 and 4:4:4: people's colour comes back as it was, judged by ffmpeg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.errors import ConfigError
from bgsoft.report import RenderReport
from tests.face_clips import FACE, SAMPLE
from tests.marks import slow
from tests.outside import described_by_ffmpeg, ffmpeg
from tests.stills import load
from tests.synthetic import made_once
from tests.unit.chunks.short_chunks import _short_chunks, render_in_chunks, settings

QUICK: dict[str, Any] = {"face": "off", "matte": "fast", "preset": None}
NOTHING: dict[str, Any] = {**QUICK, "effect": "dim", "strength": 0}
"""Changes no sample of the pipeline's frames."""
FRAMES = 3
SIZE, ODD = (320, 180), (321, 181)

Samples = NDArray[np.int32]


@made_once
def striped(
    path: Path, pixels: str, size: tuple[int, int] = SIZE, turn: str = "", frames: int = FRAMES
) -> Path:
    """The sample's person with a different colour in each pixel, which 4:2:0 cannot hold."""
    unit, depth = (4, "10") if pixels.endswith("le") else (1, "")
    stripes = (
        f"format=yuv444p{depth},geq=lum='lum(X,Y)'"
        f":cb='{128 * unit}+{60.3 * unit}*sin(X+2.5*Y)'"
        f":cr='{128 * unit}+{70.3 * unit}*cos(0.7*X+2.8*Y)'"
    )
    picture = f"scale={size[0]}:{size[1]},{stripes}{turn},format={pixels}"
    ffmpeg("-i", SAMPLE, "-frames:v", str(frames), "-vf", picture, "-c:v", "ffv1", path)
    return path


def planes(path: Path, pixels: str, size: tuple[int, int]) -> list[list[Samples]]:
    """Every frame's planes as ffmpeg decodes them, as they are stored."""
    raw = path.with_suffix(".raw")
    ffmpeg(
        *("-noautorotate", "-i", path, "-map", "0:v:0", "-pix_fmt", pixels, "-f", "rawvideo", raw)
    )
    samples = np.fromfile(raw, np.uint16 if pixels.endswith("le") else np.uint8).astype(np.int32)
    width, height = size
    fine = {"420": (2, 2), "422": (1, 2), "440": (2, 1), "444": (1, 1)}
    down, across = next(steps for name, steps in fine.items() if name in pixels)
    shapes = [(height, width), *2 * [(-(-height // down), -(-width // across))]]
    if pixels.startswith("yuva"):
        shapes.append((height, width))
    assert samples.size % sum(rows * columns for rows, columns in shapes) == 0
    frames, at = [], 0
    while at < samples.size:
        frame = []
        for rows, columns in shapes:
            frame.append(samples[at : at + rows * columns].reshape(rows, columns))
            at += rows * columns
        frames.append(frame)
    return frames


def described(path: Path) -> str:
    return next(line for line in described_by_ffmpeg(path).splitlines() if "Video: " in line)


def rendered(clip: Path, target: Path, **more: Any) -> tuple[RenderReport, list[NDArray[np.uint8]]]:
    """The report, and the mattes of all frames."""
    folder = target.with_name(target.stem + "-mattes")
    report = bgsoft.render(clip, target, matte_out=folder / "%d.png", **{**QUICK, **more})
    return report, [load(folder / f"{number}.png") for number in range(1, FRAMES + 1)]


def averaged(alpha: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Alpha from 0 to 1, averaged over the pixels of each sample of a plane."""
    down, across = (-(-big // small) for big, small in zip(alpha.shape, shape, strict=True))
    rows = np.minimum(np.arange(shape[0] * down), alpha.shape[0] - 1)
    columns = np.minimum(np.arange(shape[1] * across), alpha.shape[1] - 1)
    cells = alpha[np.ix_(rows, columns)].reshape(shape[0], down, shape[1], across)
    return cells.astype(np.float64).mean(axis=(1, 3)) / 255


def enlarged(plane: Samples, shape: tuple[int, ...]) -> Samples:
    """Return a 4:2:0 plane with its samples repeated to a finer shape."""
    down, across = (-(-big // small) for big, small in zip(shape, plane.shape, strict=True))
    return plane.repeat(down, 0).repeat(across, 1)[: shape[0], : shape[1]]


def coarse(pixels: str) -> str:
    return "yuv420p10le" if pixels.endswith("10le") else "yuv420p"


@pytest.mark.parametrize(
    ("pixels", "size"),
    [
        slow("yuv422p", SIZE),
        slow("yuv444p10le", SIZE),
        ("yuv422p10le", ODD),
        slow("yuv444p", ODD),
        slow("yuv422p10le", SIZE),
        slow("yuv444p", SIZE),
    ],
)
def test_people_s_colour_comes_back_as_it_was(
    tmp_path: Path, pixels: str, size: tuple[int, int]
) -> None:
    """Every sample follows the formula, from what ffmpeg decodes of three other files."""
    clip = striped(tmp_path / "in.mkv", pixels, size)
    fine, plain, nothing = (tmp_path / f"{name}.mkv" for name in ("fine", "plain", "nothing"))
    report, mattes = rendered(clip, fine, codec="ffv1")
    told, _ = rendered(clip, plain, codec="ffv1", chroma="420")
    bgsoft.render(clip, nothing, codec="ffv1", chroma="420", **NOTHING)
    assert f" {pixels}" in described(fine)
    assert (report.pixel_format, told.pixel_format) == (pixels, coarse(pixels))
    lost = f"4:{pixels[4]}:{pixels[5]} converted to 4:2:0"
    assert [lost in str(each.events) for each in (report, told)] == [False, True]

    most = 1023 if pixels.endswith("10le") else 255
    films = [planes(clip, pixels, size), planes(fine, pixels, size)]
    films += [planes(path, coarse(pixels), size) for path in (plain, nothing)]
    assert [len(film) for film in films] == 4 * [FRAMES]
    for source, out, composited, decoded, matte in zip(*films, mattes, strict=True):
        assert 0.1 < (matte == 255).mean() < 0.6
        np.testing.assert_array_equal(out[0], composited[0])
        for plane in (1, 2):
            shape = source[plane].shape
            alpha = averaged(matte, shape)
            person, room = alpha == 1, alpha == 0
            np.testing.assert_array_equal(out[plane][person], source[plane][person])
            shown = enlarged(composited[plane], shape)
            np.testing.assert_array_equal(out[plane][room], shown[room])
            before = enlarged(decoded[plane], shape)
            mixed = np.clip(shown + alpha * (source[plane] - before), 0, most)
            assert np.abs(out[plane] - np.where(person, source[plane], mixed)).max() <= 0.51
            # 4:2:0 has lost most of it.
            assert np.abs(before - source[plane])[person].mean() > 10


def test_twelve_bits_are_rounded_and_rgb_is_4_4_4(tmp_path: Path) -> None:
    deep = striped(tmp_path / "deep.mkv", "yuv444p12le")
    target = tmp_path / "out.mkv"
    report, mattes = rendered(deep, target, codec="ffv1")
    assert report.pixel_format == "yuv444p10le"
    people = zip(
        planes(deep, "yuv444p12le", SIZE), planes(target, "yuv444p10le", SIZE), strict=True
    )
    for (source, out), matte in zip(people, mattes, strict=True):
        for plane in (1, 2):
            error = np.abs(out[plane] - source[plane] / 4)[matte == 255]
            assert error.max() <= 1
    colours = striped(tmp_path / "rgb.mkv", "gbrp")
    report, mattes = rendered(colours, target, codec="ffv1", overwrite=True)
    assert report.pixel_format == "yuv444p"
    wanted = tmp_path / "wanted.mkv"
    matrix = "scale=out_color_matrix=bt709:out_range=tv:flags=accurate_rnd+full_chroma_inp"
    ffmpeg("-i", colours, "-vf", f"{matrix},format=yuv444p", "-c:v", "ffv1", wanted)
    people = zip(planes(wanted, "yuv444p", SIZE), planes(target, "yuv444p", SIZE), strict=True)
    for (source, out), matte in zip(people, mattes, strict=True):
        for plane in (1, 2):
            assert np.abs(out[plane] - source[plane])[matte == 255].max() <= 1


def test_a_turned_picture_keeps_all_samples(tmp_path: Path) -> None:
    """A quarter turn makes 4:4:0 of 4:2:2, which is written as 4:4:4."""
    lying = striped(tmp_path / "lying.mkv", "yuv422p", (240, 320), turn=",transpose=clock")
    clip, target = tmp_path / "in.mov", tmp_path / "out.mkv"
    ffmpeg("-display_rotation", "90", "-i", lying, "-c", "copy", clip)
    report, mattes = rendered(clip, target, codec="ffv1")
    assert report.pixel_format == "yuv444p"
    films = planes(clip, "yuv422p", (320, 240)), planes(target, "yuv444p", (240, 320))
    for source, out, matte in zip(*films, mattes, strict=True):
        assert (matte == 255).mean() > 0.1
        for plane in (1, 2):
            upright = np.rot90(source[plane])
            assert upright.shape == (160, 240)
            person = averaged(matte, upright.shape) == 1
            for field in (out[plane][::2], out[plane][1::2]):
                np.testing.assert_array_equal(field[person], upright[person])


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 422.mkv and 444.mkv."""
    folder = tmp_path_factory.mktemp("chroma")
    for name in ("422", "444"):
        striped(folder / f"{name}.mkv", f"yuv{name}p")
    return folder


@pytest.mark.parametrize(
    ("clip", "name", "given", "pixels", "words"),
    [
        ("422", "out.mov", {"codec": "prores"}, "yuv422p10le", "prores (HQ)"),
        slow("444", "out.mov", {"codec": "prores"}, "yuv444p10le", "prores (4444)"),
        (
            *("444", "out.mov", {"codec": "prores", "encoder_option": "profile=lt"}),
            *("yuv422p10le", "prores (LT)"),
        ),
        ("422", "out.mov", {"effect": "alpha"}, "yuva444p10le", "prores (4444)"),
        slow("422", "out.mkv", {"codec": "ffv1", "effect": "alpha"}, "yuva422p", "yuva422p"),
        ("444", "out.mkv", {"codec": "ffv1", "effect": "matte"}, "yuv420p", "yuv420p"),
        ("422", "out.mp4", {}, "yuv420p", "h264 (High)"),
        slow("422", "out.mp4", {"chroma": "keep"}, "yuv422p", "h264 (High 4:2:2)"),
        ("444", "out.mp4", {"chroma": "keep"}, "yuv444p", "h264 (High 4:4:4 Predictive)"),
        ("422", "out.mp4", {"chroma": "keep", "codec": "hevc"}, "yuv422p", "hevc (Rext)"),
        ("422", "out.y4m", {}, "yuv422p", "yuv422p"),
        slow("444", "out.nut", {}, "yuv444p", "yuv444p"),
        ("422", "out.webm", {}, "yuv420p", "vp9"),
    ],
)
def test_what_each_codec_keeps(
    tmp_path: Path,
    clips: Path,
    clip: str,
    name: str,
    given: dict[str, Any],
    pixels: str,
    words: str,
) -> None:
    target = tmp_path / name
    report = bgsoft.render(clips / f"{clip}.mkv", target, **{**QUICK, **given})
    assert report.pixel_format == pixels
    assert words in described(target)
    told = " ".join(event.message for event in report.events)
    kept = not pixels.startswith("yuv420p") and "encoder_option" not in given
    assert ("converted to 4:2:0" in told) is not kept
    assert ("most players lack" in told) is (given.get("chroma") == "keep")


@pytest.mark.parametrize("given", [{}, {"effect": "matte"}, {"codec": "vp9"}])
def test_what_becomes_of_odd_sizes_is_reported_once(tmp_path: Path, given: dict[str, str]) -> None:
    """H.264 cannot crop 4:2:0 to odd sizes."""
    clip = striped(tmp_path / "in.mkv", "yuv422p", ODD, frames=2)
    report = bgsoft.render(clip, tmp_path / "out.mp4", **{**QUICK, **given})
    lost, odd = "4:2:2 converted to 4:2:0", "321x181 is odd, so H.264 codes"
    lacking = "4:4:4, which many hardware players lack"
    texts = {
        "color": [f"{lost}; {odd} it as {lacking}"],
        "matte": [lost, f"{odd} {lacking}"],
        "vp9": [lost],
    }
    told = [event.message for event in report.events if event.kind == "notice"]
    assert told == texts[given.get("effect") or given.get("codec") or "color"]


@pytest.mark.parametrize("name", ["out.nut", "out.mp4"])
def test_raw_video_and_lossless_h264_bring_it_back_too(
    tmp_path: Path, clips: Path, name: str
) -> None:
    lossless = {"quality": 0, "speed": "ultrafast", "chroma": "keep"} if "mp4" in name else {}
    _, mattes = rendered(clips / "422.mkv", tmp_path / name, **lossless)
    films = (planes(path, "yuv422p", SIZE) for path in (clips / "422.mkv", tmp_path / name))
    for source, out, matte in zip(*films, mattes, strict=True):
        for plane in (1, 2):
            person = averaged(matte, source[plane].shape) == 1
            np.testing.assert_array_equal(out[plane][person], source[plane][person])


def test_a_cutout_has_people_s_colour_too(tmp_path: Path, clips: Path) -> None:
    target = tmp_path / "out.mkv"
    bgsoft.render(clips / "422.mkv", target, codec="ffv1", effect="alpha", **QUICK)
    films = planes(clips / "422.mkv", "yuv422p", SIZE), planes(target, "yuva422p", SIZE)
    for source, out in zip(*films, strict=True):
        for plane in (1, 2):
            alpha = averaged(out[3], source[plane].shape)
            np.testing.assert_array_equal(out[plane][alpha == 1], source[plane][alpha == 1])
            assert (alpha == 1).mean() > 0.1


def test_prores_has_more_of_it(tmp_path: Path, clips: Path) -> None:
    def error(chroma: str) -> float:
        target = tmp_path / f"{chroma}.mov"
        _, mattes = rendered(clips / "444.mkv", target, codec="prores", chroma=chroma)
        pairs = zip(
            planes(clips / "444.mkv", "yuv444p", SIZE), planes(target, "yuv444p", SIZE), strict=True
        )
        errors = [
            np.abs(out[1] - source[1])[matte == 255].mean()
            for (source, out), matte in zip(pairs, mattes, strict=True)
        ]
        return float(np.mean(errors))

    assert error("auto") < 2 < 10 < error("420")


@pytest.mark.slow
@pytest.mark.usefixtures(_short_chunks.__name__)
def test_chunks_are_the_whole_bit_for_bit(tmp_path: Path) -> None:
    clip = striped(tmp_path / "in.mkv", "yuv422p", (160, 90), frames=56)
    whole, joined = tmp_path / "whole.mkv", tmp_path / "joined.mkv"
    given = {**QUICK, "codec": "ffv1", "temporal": 0.0}
    bgsoft.render(clip, whole, **given)
    report = render_in_chunks(settings(clip, joined, chunks=2, **given))
    assert len(report.parts) == 2
    assert report.pixel_format == "yuv422p"
    sums = [ffmpeg("-i", path, "-f", "framemd5", "-") for path in (whole, joined)]
    assert sums[0].count("\n") > 56
    assert sums[0] == sums[1]


@pytest.mark.parametrize("pixels", ["yuv444p", slow("yuv422p10le")])
def test_nothing_of_a_hidden_place_comes_back(tmp_path: Path, pixels: str) -> None:
    """The hidden place is inside the person, and its edges lie between chroma samples."""
    clip = striped(tmp_path / "in.mkv", pixels)
    fine, plain = tmp_path / "fine.mkv", tmp_path / "plain.mkv"
    given = {"codec": "ffv1", "hide": "131,81,61,51", "anonymize_style": "solid"}
    _, mattes = rendered(clip, fine, **given)
    rendered(clip, plain, chroma="420", **given)
    films = [planes(path, pixels, SIZE) for path in (clip, fine)]
    films += [planes(plain, coarse(pixels), SIZE)]
    for source, out, hidden, matte in zip(*films, mattes, strict=True):
        assert (matte[81:132, 131:192] == 255).mean() > 0.5
        for plane in (1, 2):
            across = SIZE[0] // source[plane].shape[1]
            place = np.s_[80:132, 130 // across : 192 // across]
            neutral = 512 if "10" in pixels else 128
            assert np.unique(out[plane][place]).tolist() == [neutral]
            shown = enlarged(hidden[plane], source[plane].shape)
            np.testing.assert_array_equal(out[plane][place], shown[place])
            beside = np.zeros(source[plane].shape, np.bool_)
            beside[60:80, 130 // across : 192 // across] = True
            beside &= averaged(matte, source[plane].shape) == 1
            assert beside.sum() > 100
            np.testing.assert_array_equal(out[plane][beside], source[plane][beside])


@pytest.mark.slow
def test_nothing_of_a_hidden_face_comes_back(tmp_path: Path) -> None:
    clip, size = striped(tmp_path / "in.mkv", "yuv444p", (640, 360)), (640, 360)
    fine, plain = tmp_path / "fine.mkv", tmp_path / "plain.mkv"
    given = {"face": "anonymize", "subjects": 0, "anonymize_style": "solid", "codec": "ffv1"}
    _, mattes = rendered(clip, fine, **given)
    rendered(clip, plain, chroma="420", **given)
    face, chest = (
        np.s_[top:bottom, FACE[1].start // 2 : FACE[1].stop // 2]
        for top, bottom in ((FACE[0].start // 2, FACE[0].stop // 2), (300, 360))
    )
    films = (
        planes(clip, "yuv444p", size),
        planes(fine, "yuv444p", size),
        planes(plain, "yuv420p", size),
    )
    for source, out, hidden, matte in zip(*films, mattes, strict=True):
        assert (matte[face] == 255).mean() > 0.8
        for plane in (1, 2):
            shown = enlarged(hidden[plane], matte.shape)
            np.testing.assert_array_equal(out[plane][face], shown[face])
            assert np.ptp(out[plane][face]) <= 2 < 100 < np.ptp(source[plane][face])
            np.testing.assert_array_equal(out[plane][chest], source[plane][chest])


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("out.webm", {"chroma": "keep"}, "another container than WebM"),
        ("out.mp4", {"chroma": "keep", "codec": "vp9"}, "choose a codec of h264, hevc$"),
        ("out.mkv", {"chroma": "keep", "codec": "av1"}, "h264, hevc, prores, ffv1$"),
        ("frames/%d.png", {"chroma": "keep"}, "cannot use chroma with PNG: it is a picture"),
        ("out.mkv", {"chroma": "keep", "effect": "matte"}, "shows no picture"),
        ("out.mkv", {"chroma": "422"}, "chroma"),
        (
            "out.mov",
            {"chroma": "keep", "codec": "prores", "encoder_option": "profile=lt"},
            "4:4:4 does not fit these settings",
        ),
    ],
)
def test_what_cannot_keep_it_says_so(
    tmp_path: Path, clips: Path, name: str, given: dict[str, Any], words: str
) -> None:
    target = tmp_path / name
    with pytest.raises(ConfigError, match=words):
        bgsoft.render(clips / "444.mkv", target, **{**QUICK, **given})
    assert not list(tmp_path.iterdir())


def test_keep_is_as_the_source_is(tmp_path: Path) -> None:
    """A 4:2:0 source has no finer colour to keep."""
    clip = tmp_path / "in.mkv"
    ffmpeg("-i", SAMPLE, "-frames:v", "2", "-vf", "scale=160:90", "-c:v", "ffv1", clip)
    sums = set()
    for chroma in ("auto", "420", "keep"):
        target = tmp_path / f"{chroma}.mkv"
        report = bgsoft.render(clip, target, codec="ffv1", chroma=chroma, **QUICK)
        assert report.pixel_format == "yuv420p"
        sums.add(ffmpeg("-i", target, "-f", "framemd5", "-"))
    assert len(sums) == 1
