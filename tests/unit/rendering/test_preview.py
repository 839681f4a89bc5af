from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from bgsoft.errors import OutputError
from bgsoft.face.base import Face
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.rendering.preview import draw_faces, frame_to_bgr, write_preview
from bgsoft.settings.config import EffectConfig, EffectKind, FaceConfig, FaceMode, RenderConfig
from tests.face_clips import HALF_FACE, write_late_face
from tests.marks import slow
from tests.synthetic import VideoSpec, read_index, regular_times, write_video

RATE = 25


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds whose frames show their numbers."""
    spec = VideoSpec(times=regular_times(50, RATE), width=160, height=120)
    return write_video(tmp_path_factory.mktemp("clip") / "in.mp4", spec)


def config(clip: Path, output: Path, **effect: object) -> RenderConfig:
    return RenderConfig(input=clip, output=output, effect=EffectConfig(**effect))  # type: ignore[arg-type]


def panels(path: Path) -> list[np.ndarray]:
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    assert picture is not None
    return np.split(picture, 3, axis=1)


def shown_index(picture: np.ndarray) -> int:
    # Luma at full scale is 255 (y − 16) / 219; the markers are read at code values.
    return read_index(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(np.float32) * 219 / 255 + 16)


@pytest.mark.parametrize(("at", "index"), [(0.0, 0), (0.4, 10), (0.99, 24), (1.5, 37)])
def test_shows_the_frame_at_the_time(clip: Path, tmp_path: Path, at: float, index: int) -> None:
    out = tmp_path / "p.png"
    result = write_preview(config(clip, out), at)
    assert (result.width, result.height) == (160, 120)
    assert result.time_seconds == pytest.approx(index / RATE)
    source, matte, _ = panels(out)
    assert source.shape == (120, 160, 3)
    assert shown_index(source) == index
    assert np.array_equal(matte[..., 0], matte[..., 1])
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"], "nothing else is left"


@pytest.mark.parametrize(("at", "index"), [(2.9, 2), (3.5, 3)])
def test_a_frame_is_shown_until_the_next_one(tmp_path: Path, at: float, index: int) -> None:
    """As in a recording of a screen: for seconds."""
    times = [*regular_times(3, RATE), Fraction(3), Fraction(4)]
    clip = write_video(tmp_path / "in.mkv", VideoSpec(times=tuple(times), width=160, height=120))
    result = write_preview(config(clip, tmp_path / "p.png"), at)
    assert result.time_seconds == pytest.approx(float(times[index]))
    assert shown_index(panels(tmp_path / "p.png")[0]) == index


def test_default_time_is_one_second(clip: Path, tmp_path: Path) -> None:
    assert write_preview(config(clip, tmp_path / "p.png")).time_seconds == pytest.approx(1.0)


def test_default_time_of_a_short_clip_is_its_middle(tmp_path: Path) -> None:
    short = write_video(tmp_path / "s.mp4", VideoSpec(times=regular_times(10, RATE)))
    result = write_preview(config(short, tmp_path / "p.png"))
    assert result.time_seconds == pytest.approx(Fraction(5, RATE))


def test_a_background_video_shows_the_frame_of_a_render(clip: Path, tmp_path: Path) -> None:
    out, behind = tmp_path / "p.png", tmp_path / "behind.mp4"
    write_video(behind, VideoSpec(times=regular_times(20, RATE), width=160, height=120))
    write_preview(config(clip, out, kind=EffectKind.VIDEO, background=str(behind)), 1.5)
    assert shown_index(panels(out)[2]) == 37 % 20


def test_matte_effect_shows_the_matte(clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.png"
    write_preview(config(clip, out, kind=EffectKind.MATTE), 0.5)
    _, matte, result = panels(out)
    assert np.array_equal(matte, result)


def test_alpha_effect_shows_a_checkerboard_behind(clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.png"
    write_preview(config(clip, out, kind=EffectKind.ALPHA), 0.5)
    _, matte, result = panels(out)
    background = matte[..., 0] == 0
    assert background.any(), "blocks of grey are nobody"
    assert set(np.unique(result[background])) == {153, 204}


@pytest.mark.parametrize("at", [slow(0.0), 0.3])
def test_faces_are_hidden_at_once(tmp_path: Path, at: float) -> None:
    """Without the frames that a render would inspect first."""
    out, clip = tmp_path / "p.png", write_late_face(tmp_path / "in.mp4", 11, 0)
    plain = config(clip, out, kind=EffectKind.DIM, strength=0.0)
    face = FaceConfig(mode=FaceMode.ANONYMIZE, subjects=0)
    write_preview(dataclasses.replace(plain, face=face), at)
    source, _, result = (
        np.abs(np.diff(p[HALF_FACE].astype(int), axis=1)).mean() for p in panels(out)
    )
    assert result < 0.35 * source


def test_a_preview_says_that_it_does_not_know_the_whole_shot(clip: Path, tmp_path: Path) -> None:
    def notices(**face: object) -> list[str]:
        out = tmp_path / "p.png"
        plain = config(clip, out, kind=EffectKind.DIM)
        chosen = FaceConfig(mode=FaceMode.ANONYMIZE, **face)
        result = write_preview(dataclasses.replace(plain, face=chosen, overwrite=True), 0.0)
        return [text for text in result.notices if "whole shot" in text]

    assert len(notices()) == 1
    assert notices(subjects=0) == []
    assert notices(main=("50%,50%",)) == []


def test_a_preview_says_that_it_does_not_know_who_was_there_earlier(
    clip: Path, tmp_path: Path
) -> None:
    plain = config(clip, tmp_path / "p.png", kind=EffectKind.DIM)
    chosen = FaceConfig(mode=FaceMode.ANONYMIZE, main=("9%,9%", "8%,8%@0:00.9"))
    result = write_preview(dataclasses.replace(plain, face=chosen), 1.0)
    assert [text for text in result.notices if "--main" in text] == [
        "--main 9%,9%: the preview shows who is there in the frames before this one; a render"
        " shows who is there at its time"
    ]


def test_drawn_faces_are_those_of_a_file(clip: Path, tmp_path: Path) -> None:
    """With its ids, which its editor and ``--main`` need."""
    out, file = tmp_path / "p.png", tmp_path / "f.jsonl"
    box, pts = (40.0, 30.0, 80.0, 90.0), range(0, 50 * 3600, 3600)
    header = {"faces_of": clip.name, "frame": [160, 120], "time_base": "1/90000"}
    track = {"id": 41, "faces": [[each, *box] for each in pts]}
    file.write_text("".join(json.dumps(line) + "\n" for line in (header, track)))
    plain = dataclasses.replace(config(clip, out), face=FaceConfig(file=str(file)), overwrite=True)
    write_preview(plain, 0.4)
    expected = panels(out)[0].copy()
    draw_faces(expected, [Face(id=41, score=1.0, box_xyxy=box, detected=True, age_frames=9)])
    write_preview(plain, 0.4, faces=True)
    assert np.array_equal(panels(out)[0], expected)


def test_existing_picture_is_kept_unless_asked(clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.png"
    out.write_bytes(b"mine")
    with pytest.raises(OutputError, match="exists; use --overwrite"):
        write_preview(config(clip, out))
    assert out.read_bytes() == b"mine"
    write_preview(dataclasses.replace(config(clip, out), overwrite=True))
    assert len(panels(out)) == 3


# Code values of 75 % colour bars, from ITU-R BT.709-6 and BT.601-7: Y' = 16 + 219 E'y,
# C = 128 + 224 E'c, at 8 bits.
BARS_709 = {
    "white": ((180, 128, 128), (191, 191, 191)),
    "yellow": ((168, 44, 136), (191, 191, 0)),
    "green": ((134, 63, 52), (0, 191, 0)),
    "red": ((51, 109, 212), (191, 0, 0)),
    "blue": ((28, 212, 120), (0, 0, 191)),
    "black": ((16, 128, 128), (0, 0, 0)),
}
BARS_601 = {
    "yellow": ((162, 44, 142), (191, 191, 0)),
    "green": ((112, 72, 58), (0, 191, 0)),
    "red": ((65, 100, 212), (191, 0, 0)),
}
CASES = [(1, code, rgb) for code, rgb in BARS_709.values()] + [
    (6, code, rgb) for code, rgb in BARS_601.values()
]


@pytest.mark.parametrize(("matrix", "code", "rgb"), CASES)
@pytest.mark.parametrize("layout", [PixelLayout.NV12, PixelLayout.P010])
def test_colour_bars(
    matrix: int, code: tuple[int, int, int], rgb: tuple[int, int, int], layout: PixelLayout
) -> None:
    format = FrameFormat(width=5, height=3, layout=layout, color=ColorInfo(matrix=matrix))
    scale = 1 if layout is PixelLayout.NV12 else 1 << 8  # 10 bits in the high bits of 16
    luma = np.full(format.luma_shape, code[0] * scale, format.dtype)
    chroma = np.empty(format.chroma_shape, format.dtype)
    chroma[..., 0], chroma[..., 1] = code[1] * scale, code[2] * scale
    picture = frame_to_bgr(luma, chroma, format)
    assert picture.shape == (3, 5, 3)
    assert picture.dtype == np.uint8
    # One code value of chroma is up to 2.1 steps of blue.
    assert np.abs(picture.astype(int) - np.array(rgb[::-1])).max() <= 2


def test_full_range() -> None:
    format = FrameFormat(width=3, height=1, color=ColorInfo(matrix=1, full_range=True))
    luma = np.array([[0, 128, 255]], np.uint8)
    chroma = np.full(format.chroma_shape, 128, np.uint8)
    picture = frame_to_bgr(luma, chroma, format)
    assert picture[0].tolist() == [[0, 0, 0], [128, 128, 128], [255, 255, 255]]
