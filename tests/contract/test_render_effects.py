"""Each effect on the room, sample by sample; the person stays unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from av.container import InputContainer
from numpy.typing import NDArray

import bgsoft
from bgsoft.settings.config import EffectKind
from tests.face_clips import SAMPLE
from tests.marks import slow
from tests.outside import ffmpeg
from tests.rendering import LOSSLESS, read_back
from tests.synthetic import Plane, write_frames

FRAMES = 3
LAYOUTS = {
    "8 bits": ("yuv420p", (640, 360), (1, 1, 1), {"codec": "ffv1"}),
    "odd size": ("yuv420p", (427, 239), (1, 1, 1), LOSSLESS),
    "HDR10": ("yuv420p10le", (640, 360), (9, 16, 9), {"codec": "ffv1"}),
}
"""Pixel format, size, H.273's numbers of primaries, transfer and matrix, and an encoder."""
EFFECTS = [kind for kind in EffectKind if kind is not EffectKind.ALPHA]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    clip: Path
    mirrored: Path
    """The clip, mirrored."""
    settings: dict[str, Any]
    """Settings of every render: lossless."""
    bits: int
    frames: list[list[Plane]]
    """Luma, Cb, Cr of each frame."""
    person: list[Mask]
    """Mask of alpha one, at least two pixels from other values: if the background stays in its
    place, the edge is fitted less closely than in the matte."""
    room: list[Mask]
    """Mask of alpha zero, at least two pixels from other values."""

    @property
    def step(self) -> int:
        """Code values for each of 8 bits."""
        return 1 << (self.bits - 8)


@pytest.fixture(scope="module", params=["8 bits", *map(slow, list(LAYOUTS)[1:])])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("scene")
    pixels, size, tags, encoder = LAYOUTS[request.param]
    with av.open(str(SAMPLE), "r") as source:
        assert isinstance(source, InputContainer)
        sources = [
            frame.reformat(*size, format="bgr24").to_ndarray()
            for frame, _ in zip(source.decode(video=0), range(FRAMES), strict=False)
        ]
    given: dict[str, Any] = {"pixels": pixels, "tags": tags}
    clip = write_frames(folder / "in.mkv", sources, "bgr24", **given)
    flipped = [each[:, ::-1] for each in sources]
    mirrored = write_frames(folder / "mirrored.mkv", flipped, "bgr24", **given)
    settings = {**encoder, "preset": None, "face": "off", "matte": "fast"}
    bgsoft.render(clip, folder / "matte.mkv", effect="matte", **settings)
    alphas = [luma for luma, *_ in pictures(folder / "matte.mkv")]
    assert alphas[0].dtype == np.uint8
    near = np.ones((5, 5), np.uint8)
    return Scene(
        clip=clip,
        mirrored=mirrored,
        settings=settings,
        bits=8 if pixels == "yuv420p" else 10,
        frames=pictures(clip),
        person=[cv2.erode((alpha == 235).astype(np.uint8), near) > 0 for alpha in alphas],
        room=[cv2.erode((alpha == 16).astype(np.uint8), near) > 0 for alpha in alphas],
    )


def render(scene: Scene, effect: str, folder: Path) -> list[list[Plane]]:
    """The frames that come out, lossless."""
    background: Path | str | None = None
    if effect == "color":
        background = "#00b140"
    elif effect == "video":
        background = scene.mirrored
    elif effect == "image":
        background = folder / "red.png"
        assert cv2.imwrite(str(background), np.full((40, 60, 3), (0, 0, 255), np.uint8))
    bgsoft.render(
        scene.clip, folder / "out.mkv", effect=effect, background=background, **scene.settings
    )
    return pictures(folder / "out.mkv")


def pictures(path: Path) -> list[list[Plane]]:
    """Luma, Cb and Cr of each frame, in 4:2:0: odd sizes are coded as 4:4:4, samples doubled."""
    found = []
    for frame in read_back(path):
        luma, *chroma = frame.planes
        found.append([luma, *(c[::2, ::2] if c.shape == luma.shape else c for c in chroma)])
    return found


def smaller(mask: Mask, chroma: Plane) -> Mask:
    """Return the chroma samples whose pixels, and their neighbours, are all in a mask."""
    inner = cv2.erode(mask.astype(np.uint8), np.ones((5, 5), np.uint8))[::2, ::2] > 0
    assert inner.shape == chroma.shape
    return inner


def detail(luma: Plane, mask: Mask) -> float:
    pairs = mask[:, 1:] & mask[:, :-1]
    return float(np.abs(np.diff(luma.astype(int), axis=1))[pairs].mean())


def sdr_code(red: float, green: float, blue: float) -> tuple[float, float, float]:
    """8-bit code values of BT.709, from ITU-R BT.709-6."""
    luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return (16 + 219 * luma, 128 + 224 * (blue - luma) / 1.8556, 128 + 224 * (red - luma) / 1.5748)


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_room_changes_as_the_effect_says_and_the_person_does_not(
    scene: Scene, effect: str, tmp_path: Path
) -> None:
    rendered = render(scene, effect, tmp_path)
    assert len(rendered) == len(scene.frames) == FRAMES
    mirrored = pictures(scene.mirrored)
    for index, (before, after) in enumerate(zip(scene.frames, rendered, strict=True)):
        person, room = scene.person[index], scene.room[index]
        assert person.mean() > 0.1
        assert room.mean() > 0.3
        if effect == "matte":  # always 8 bits
            assert (after[0][person] == 235).all()
            assert (after[0][room] == 16).all()
            assert all((plane == 128).all() for plane in after[1:])
        else:
            np.testing.assert_array_equal(after[0][person], before[0][person])
            for old, new in zip(before[1:], after[1:], strict=True):
                inner = smaller(person, old)
                np.testing.assert_array_equal(new[inner], old[inner])
        luma, *chroma = (
            plane[mask].astype(float) / scene.step
            for plane, mask in zip(
                after, [room, smaller(room, after[1]), smaller(room, after[2])], strict=True
            )
        )
        old_luma = before[0][room].astype(float) / scene.step
        match effect:
            case "blur" | "bokeh":
                assert detail(after[0], room) < 0.4 * detail(before[0], room)
                assert luma.mean() == pytest.approx(old_luma.mean(), abs=8)
            case "pixelate":  # blocks of 3 % of the height
                pairs = room[:, 1:] & room[:, :-1]
                edges = (np.diff(after[0].astype(int), axis=1) != 0)[pairs].mean()
                height = after[0].shape[0]
                assert edges < 1.2 / (0.03 * height)
                assert luma.mean() == pytest.approx(old_luma.mean(), abs=2)
            case "dim":
                np.testing.assert_allclose(luma, 16 + 0.4 * (old_luma - 16), atol=1)
            case "color" | "image":
                rgb = (0, 177 / 255, 64 / 255) if effect == "color" else (1, 0, 0)
                for plane, due in zip((luma, *chroma), sdr_code(*rgb), strict=True):
                    assert plane.min() == plane.max()
                    if scene.bits == 8:
                        assert plane.mean() == pytest.approx(due, abs=1)
                assert bool(chroma[1].mean() > 128) is (effect == "image")
            case "video":
                due = mirrored[index][0][room].astype(float) / scene.step
                off = np.abs(luma - due)
                if before[0].shape[1] % 2 == 0:
                    assert off.max() <= 1
                else:  # scaled by a fraction of a sample
                    assert off.mean() < 0.2 * np.abs(old_luma - due).mean()


def test_colours_of_a_background_video_that_are_not_converted_are_reported(tmp_path: Path) -> None:
    plain, hdr = tmp_path / "plain.mkv", tmp_path / "hdr.mkv"
    picture = ["-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.08:r=25", "-c:v", "ffv1"]
    labels = "setparams=color_primaries=bt2020:color_trc=arib-std-b67"
    ffmpeg(*picture, plain)
    ffmpeg(*picture, "-vf", labels, hdr)
    for source, background, is_told in (
        (plain, hdr, True),
        (hdr, plain, True),
        (plain, plain, False),
        (hdr, hdr, False),
    ):
        given = {"background": background, "face": "off", "overwrite": True, **LOSSLESS}
        report = bgsoft.render(source, tmp_path / "out.mp4", **given)
        told = [event.message for event in report.events if "--background" in event.message]
        assert len(told) == is_told
        assert all("its colours look wrong" in text for text in told)


def test_a_transparent_background_becomes_opaque_with_a_notice(tmp_path: Path) -> None:
    source = tmp_path / "plain.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.08:r=25", "-c:v", "ffv1", source)
    for name, told in (
        ("glass.png", "transparent parts are laid over black"),
        ("glass.mkv", "alpha channel dropped"),
    ):
        background = tmp_path / name
        glass = ["-f", "lavfi", "-i", "color=white@0.5:s=64x48:d=0.04:r=25,format=rgba"]
        ffmpeg(*glass, "-c:v", "png", background)
        given = {"background": background, "face": "off", "overwrite": True, **LOSSLESS}
        report = bgsoft.render(source, tmp_path / "out.mp4", **given)
        notices = [event.message for event in report.events if "--background" in event.message]
        assert notices == [f"--background {background}: {told}"]


@pytest.mark.parametrize("name", ["square.png", "square.mkv"])
@pytest.mark.parametrize(("size", "aspect"), [((160, 180), 2.0), ((320, 90), 0.5)])
def test_a_background_keeps_its_shape_where_pixels_are_not_square(
    tmp_path: Path, size: tuple[int, int], aspect: float, name: str
) -> None:
    source, background, target = (tmp_path / each for each in ("in.mkv", name, "out.mkv"))
    width, height = size
    grey = f"color=gray:s={width}x{height}:d=0.08:r=25,setsar={aspect}"
    ffmpeg("-f", "lavfi", "-i", grey, "-c:v", "ffv1", source)
    square = "color=black:s=100x100:d=0.04:r=25,drawbox=25:25:50:50:white:fill"
    ffmpeg("-f", "lavfi", "-i", square, background)
    bgsoft.render(source, target, background=background, face="off", matte="fast", **LOSSLESS)
    white = read_back(target)[0].planes[0] > 128
    shown = white[height // 2].sum() * aspect, white[:, width // 2].sum()
    assert shown == pytest.approx([width * aspect / 2] * 2, abs=4)
