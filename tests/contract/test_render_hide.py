"""Whole renders in which places are hidden, judged by value."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from av.stream import Disposition
from numpy.typing import NDArray

import bgsoft
from bgsoft.errors import ConfigError, PresetError
from bgsoft.rendering.preview import write_preview
from tests.face_clips import FACE, SAMPLE
from tests.marks import crossed, slow
from tests.rendering import read_back
from tests.synthetic import (
    Plane,
    VideoSpec,
    made_once,
    regular_times,
    write_frames,
    write_movie,
    write_video,
)
from tests.unit.chunks.short_chunks import settings

FRAMES = 6
QUICK = {"matte": "fast", "mask_every": 25}
AS_IT_IS = {"preset": None, "face": "off", "effect": "dim", "strength": 0, **QUICK}
"""Settings that change no sample."""
REGION = "25%,20%,30%,40%"
STYLES = ["blur", "pixelate", "solid"]
LAYOUTS = {
    "8 bits": ("yuv420p", (320, 180), "ffv1"),
    "odd size": ("yuv420p", (321, 179), "h264"),
    "10 bits": ("yuv420p10le", (320, 180), "ffv1"),
}


@made_once
def write_noise(path: Path, pixels: str = "yuv420p", size: tuple[int, int] = (320, 180)) -> Path:
    """Noise with detail of two to eight pixels, of every colour, another in each frame."""
    rng = np.random.default_rng(5)

    def noise(n: int) -> NDArray[np.uint8]:
        coarse = rng.integers(0, 128, (size[1] // n, size[0] // n, 3), np.uint8)
        return cv2.resize(coarse, size).astype(np.uint8)

    drawn = (noise(2) + noise(8) for _ in range(FRAMES))
    return write_frames(path, drawn, "bgr24", pixels=pixels)


def pictures(path: Path, count: int | None = None) -> list[list[Plane]]:
    """Luma, Cb and Cr of each frame, perhaps alpha, in 4:2:0: odd sizes are coded as 4:4:4."""
    found = []
    for frame in read_back(path, count):
        luma, *chroma = frame.planes[:3]
        chroma = [c[::2, ::2] if c.shape == luma.shape else c for c in chroma]
        found.append([luma, *chroma, *frame.planes[3:]])
    return found


def lossless(codec: str) -> dict[str, Any]:
    return {"codec": codec} | ({"quality": 0, "speed": "ultrafast"} if codec == "h264" else {})


def correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return how much of one picture's fine detail is in the other."""

    def fine(picture: NDArray[Any]) -> NDArray[np.float64]:
        return picture - cv2.blur(picture.astype(np.float64), (9, 9))

    a, b = fine(one).ravel(), fine(other).ravel()
    return 0.0 if min(a.std(), b.std()) < 1e-9 else float(np.corrcoef(a, b)[0, 1])


def region_of(plane: Plane, shape: tuple[int, int]) -> tuple[slice, slice]:
    """Return REGION in a plane of a frame of that shape, in whole chroma samples."""
    height, width = shape
    step = 1 if plane.shape == shape else 2
    left, right = 2 * (width * 25 // 200), 2 * -(-width * 55 // 200)
    top, bottom = 2 * (height * 20 // 200), 2 * -(-height * 60 // 200)
    return slice(top // step, bottom // step), slice(left // step, right // step)


@crossed(style=STYLES, layout=LAYOUTS)
def test_nothing_of_a_region_is_left_and_the_rest_is_untouched(
    tmp_path: Path, style: str, layout: str
) -> None:
    pixels, size, codec = LAYOUTS[layout]
    clip = write_noise(tmp_path / "in.mkv", pixels, size)
    target = tmp_path / "out.mkv"
    bgsoft.render(clip, target, hide=REGION, anonymize_style=style, **lossless(codec), **AS_IT_IS)
    for before, after in zip(pictures(clip), pictures(target), strict=True):
        for source, result in zip(before, after, strict=True):
            place = region_of(source, before[0].shape)
            outside = np.ones(source.shape, np.bool_)
            outside[place] = False
            np.testing.assert_array_equal(result[outside], source[outside])
            assert result[place].astype(float).std() < 0.6 * source[place].astype(float).std()
            assert abs(correlation(result[place], source[place])) < 0.25
            # No row or column at the edge is the original's, in luma or chroma.
            for side in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
                assert (result[place][side] == source[place][side]).mean() < 0.3


@pytest.mark.parametrize(
    "effect", ["alpha", *map(slow, ("video", "blur", "bokeh", "pixelate", "dim", "color", "image"))]
)
def test_every_effect_hides_the_person_and_the_room(tmp_path: Path, effect: str) -> None:
    """Outside the region, and in alpha, the output equals a render without it."""
    background: dict[str, Any] = {}
    if effect == "color":
        background = {"background": "#00b140"}
    elif effect == "video":
        background = {"background": write_noise(tmp_path / "noise.mkv")}
    elif effect == "image":
        assert cv2.imwrite(str(tmp_path / "b.png"), np.full((40, 60, 3), 90, np.uint8))
        background = {"background": tmp_path / "b.png"}
    films = []
    for name, more in (("plain", {}), ("hidden", {"hide": ["40%,15%,30%,50%"]})):
        target = tmp_path / f"{name}.mkv"
        given = {"effect": effect, "face": "off", "duration": 0.05, **QUICK, **background, **more}
        bgsoft.render(
            SAMPLE,
            target,
            preset=None,
            **lossless("ffv1" if effect == "alpha" else "h264"),
            **given,
        )
        films.append(pictures(target))
    for plain, hidden in zip(*films, strict=True):
        assert len(plain) == (4 if effect == "alpha" else 3)
        for index, (before, after) in enumerate(zip(plain, hidden, strict=True)):
            step = -(-1280 // before.shape[1])
            place = np.s_[108 // step : 468 // step, 512 // step : 896 // step]
            outside = np.ones(before.shape, np.bool_)
            outside[place] = False
            np.testing.assert_array_equal(after[outside], before[outside])
            if index == 3:
                np.testing.assert_array_equal(after, before)
        face_before, face_after = plain[0][FACE].astype(float), hidden[0][FACE].astype(float)
        assert np.abs(np.diff(face_after)).mean() < 0.3 * np.abs(np.diff(face_before)).mean()
        assert abs(correlation(face_after, face_before)) < 0.3


@pytest.mark.parametrize(
    ("times", "given", "hidden"),
    [
        ("", {}, [0, 1, 2, 3, 4, 5]),
        ("@0.08-0.16", {}, [2, 3]),  # as --start 0.08 --duration 0.08 would
        slow("@0.08-", {}, [2, 3, 4, 5]),
        slow("@-0:00.08", {}, [0, 1]),
        ("@0.1-0.16", {}, [2, 3]),  # the frame that is shown then
        ("@0.08-0.16", {"start": 0.04}, [1, 2]),  # of the frames that come out
        ("@0.08-0.16", {"start": 0.12, "duration": 0.1}, [0]),
    ],
)
def test_times_are_the_inputs(
    tmp_path: Path, times: str, given: dict[str, float], hidden: list[int]
) -> None:
    """Times count from the input's first frame, which is at 10 s here."""
    noise = write_noise(tmp_path / "noise.mkv")
    clip, plain, target = (tmp_path / name for name in ("in.mkv", "plain.mkv", "out.mkv"))
    with av.open(str(noise)) as source, av.open(str(clip), "w") as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.pts, packet.dts = packet.pts + 10_000, packet.dts + 10_000
                packet.stream = stream
                output.mux(packet)
    bgsoft.render(clip, plain, codec="ffv1", **AS_IT_IS, **given)
    bgsoft.render(clip, target, codec="ffv1", hide=REGION + times, **AS_IT_IS, **given)
    pairs = zip(pictures(plain), pictures(target), strict=True)
    assert [n for n, (a, b) in enumerate(pairs) if (a[0] != b[0]).any()] == hidden


def test_a_frame_that_is_still_shown_is_hidden(tmp_path: Path) -> None:
    """The third frame is shown from 0.3 to 2.3 s."""
    times = [Fraction(number, 10) for number in (0, 1, 3, 23, 24)]
    clip = write_video(tmp_path / "in.mkv", VideoSpec(times=times))
    plain, target = tmp_path / "plain.mkv", tmp_path / "out.mkv"
    bgsoft.render(clip, plain, codec="ffv1", **AS_IT_IS)
    bgsoft.render(clip, target, codec="ffv1", hide="0,0,40,40@1-2", **AS_IT_IS)
    pairs = zip(pictures(plain), pictures(target), strict=True)
    assert [n for n, (a, b) in enumerate(pairs) if (a[0] != b[0]).any()] == [2]


def test_places_are_those_of_the_upright_frame(tmp_path: Path) -> None:
    spec = VideoSpec(
        times=regular_times(3), turn=np.rot90, setup=lambda stream: stream.set_display_rotation(-90)
    )
    clip = write_video(tmp_path / "in.mp4", spec)
    plain, target = tmp_path / "plain.mkv", tmp_path / "out.mkv"
    bgsoft.render(clip, plain, codec="ffv1", **AS_IT_IS)
    given = {"hide": "50%,0,25%,10%", "anonymize_style": "solid"}
    bgsoft.render(clip, target, codec="ffv1", **AS_IT_IS, **given)
    expected = pictures(plain)[0][0]
    assert expected.shape == (72, 96)
    expected[:8, 48:72] = 16
    np.testing.assert_array_equal(pictures(target)[0][0], expected)


@pytest.mark.slow
def test_styles_of_faces(tmp_path: Path) -> None:
    """Black faces; boxes with a margin; the rest of the picture is unchanged."""
    given = {**AS_IT_IS, "subjects": 0, "face": "anonymize", "duration": 0.1, "codec": "ffv1"}
    hidden: list[int] = []
    source = pictures(SAMPLE, 3)[2]
    for name, more in (("ellipse", {}), ("box", {"anonymize_shape": "box"})):
        for margin in (0, 30):
            target = tmp_path / f"{name}{margin}.mkv"
            bgsoft.render(
                SAMPLE, target, anonymize_style="solid", anonymize_margin=margin, **given, **more
            )
            luma, cb, cr = pictures(target)[-1]
            # The corners of a rectangle in the face lie outside of an ellipse.
            face = FACE if name == "box" else np.s_[240:360, 590:690]
            assert (luma[face] == 16).all()
            chroma = tuple(slice(side.start // 2, side.stop // 2) for side in face)
            assert (cb[chroma] == 128).all()
            assert (cr[chroma] == 128).all()
            hidden.append((luma != source[0]).sum())
    ellipse, wider_ellipse, box, wider_box = hidden
    assert wider_ellipse == pytest.approx(1.69 * ellipse, rel=0.05)
    assert box > 1.2 * ellipse
    assert wider_box == pytest.approx(1.69 * box, rel=0.05)


def test_a_preset_may_name_places_and_a_flag_others(tmp_path: Path) -> None:
    preset = tmp_path / "desk.toml"
    preset.write_text('[hide]\nstyle = "solid"\nregions = ["0,0,20,20", "50%,50%,10%,10%"]\n')
    clip = write_noise(tmp_path / "in.mkv")
    given = {**AS_IT_IS, "preset": str(preset), "codec": "ffv1"}
    report = bgsoft.render(clip, tmp_path / "out.mkv", **given)
    luma = pictures(tmp_path / "out.mkv")[0][0]
    assert (luma[:20, :20] == 16).all()
    assert (luma[90:108, 160:192] == 16).all()
    assert report.settings["hide"] == {
        "regions": ("0,0,20,20", "50%,50%,10%,10%"),
        "style": "solid",
        "shape": "ellipse",
        "margin_pct": 0.0,
    }
    bgsoft.render(clip, tmp_path / "other.mkv", hide="100,100,20,20", **given)
    luma = pictures(tmp_path / "other.mkv")[0][0]
    assert (luma[100:120, 100:120] == 16).all()
    np.testing.assert_array_equal(luma[:20, :20], pictures(clip)[0][0][:20, :20])
    preset.write_text('[hide]\nregions = "here"\n')
    with pytest.raises(PresetError, match="preset desk: hide must be X,Y,W,H"):
        bgsoft.render(clip, tmp_path / "bad.mkv", **given)


@pytest.mark.parametrize(
    ("times", "part", "reason"),
    [
        ("@5-6", {}, "the video ends at 0.24 s"),
        ("@5-6", {"start": 0.08}, "the video ends at 0.24 s"),
        ("@0-0.08", {"start": 0.08}, "the rendered part begins at 0.08 s of the video"),
        ("@0.2-6", {"duration": 0.16}, "the rendered part ends at 0.16 s of the video"),
        ("@0.04-0.16", {"start": 0.08, "duration": 0.08}, ""),
        ("@0.17-6", {"duration": 0.17}, ""),  # in the frame from 0.16 to 0.2 s
        ("", {"start": 0.08, "duration": 0.08}, ""),
    ],
)
def test_a_place_at_another_time_is_reported(
    tmp_path: Path, times: str, part: dict[str, float], reason: str
) -> None:
    clip, text = write_noise(tmp_path / "in.mkv"), "310,0,50,50" + times
    more = {**AS_IT_IS, **part}
    report = bgsoft.render(clip, tmp_path / "out.mkv", hide=text, codec="ffv1", **more)
    told = [event.message for event in report.events if "hide" in event.message]
    assert told == ([f"--hide {text} hides nothing: {reason}"] if reason else [])


def test_a_place_outside_the_frame(tmp_path: Path) -> None:
    clip, target = write_noise(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    with pytest.raises(ConfigError, match="hide 320,0,10,10: it lies outside the frame of 320x180"):
        bgsoft.render(clip, target, hide="320,0,10,10", **AS_IT_IS)
    assert not target.exists()


def test_a_matte_shows_no_picture_to_hide(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    with pytest.raises(ConfigError, match="hide with effect matte"):
        bgsoft.render(clip, tmp_path / "out.mkv", effect="matte", hide=REGION)


def test_the_preview_hides_too(tmp_path: Path) -> None:
    config = settings(
        write_noise(tmp_path / "in.mkv"),
        tmp_path / "look.png",
        **AS_IT_IS,
        hide=[REGION + "@0.1-0.2"],
        anonymize_style="solid",
    )
    for at, dark in ((0.04, False), (0.12, True)):
        write_preview(config, at)
        result = cv2.imread(str(config.output))[:, 640:]
        assert (result[40:100, 90:170].max() < 3) == dark
        config.output.unlink()


@pytest.mark.parametrize("suffix", ["mp4", slow("mkv")])
def test_a_cover_is_left_out_that_shows_what_the_video_hides(tmp_path: Path, suffix: str) -> None:
    clip = tmp_path / f"in.{suffix}"
    write_movie(clip.with_suffix(".mp4"), VideoSpec(times=regular_times(3)), cover=True)
    if suffix == "mkv":
        bgsoft.render(clip.with_suffix(".mp4"), clip, **AS_IT_IS)
    for given, kept in (
        ({}, True),
        ({"hide": REGION}, False),
        ({"face": "anonymize", "subjects": 0}, False),
        ({"effect": "blur"}, True),
        ({"effect": "color", "background": "#00ff00", "strength": None}, False),
    ):
        target = tmp_path / f"out.{suffix}"
        report = bgsoft.render(clip, target, overwrite=True, **{**AS_IT_IS, **given})
        with av.open(str(target)) as container:
            covers = [
                stream
                for stream in container.streams.video
                if stream.disposition & Disposition.attached_pic
            ]
            assert len(covers) + len(container.streams.attachments) == kept
        told = [event.message for event in report.events if "cover" in event.message]
        left_out = "cover picture left out: nothing is hidden or replaced in it"
        assert told == ([] if kept else [left_out])
