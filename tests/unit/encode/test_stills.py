"""Frames as picture files, against ffmpeg and Pillow."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bgsoft.decode.stills import StillDecoder
from bgsoft.encode.base import PictureKind
from bgsoft.encode.stills import StillEncoder, choose_still
from bgsoft.errors import ConfigError, UnsupportedFormatError
from bgsoft.frame import ColorInfo, Frame, FrameFormat, PixelLayout
from bgsoft.hide.plan import HidePlan, Rectangle
from bgsoft.media.containers import container_for
from bgsoft.media.sequence import probe_stills
from bgsoft.media.stillfiles import StillFiles
from bgsoft.media.writer import COPY_NOTHING
from bgsoft.ring import FrameRing
from bgsoft.settings.config import Codec, EncodeConfig, RenderConfig
from tests.fakes import host_planes
from tests.outside import ffmpeg
from tests.rendering import draw, video_info
from tests.stills import colourful, load, profile, save

FORMAT = FrameFormat(width=64, height=48)
SIZES = [(64, 48), (63, 47), (1, 1), (2, 7)]


def written(
    frame: Frame, path: Path, kind: PictureKind = PictureKind.COLOR, quality: int | None = None
) -> np.ndarray:
    container = container_for(path)
    files = StillFiles(
        lambda _number: path, container, video_info(frame.format), COPY_NOTHING, output_path=path
    )
    choice = choose_still(EncodeConfig(quality=quality), container, frame.format, kind)
    encoder = StillEncoder(files, choice, frame.format)
    encoder.encode(frame)
    encoder.finish()
    files.finish()
    assert list(files.video_pts) == [frame.pts]
    return load(path)


def still_frame(tmp_path: Path, size: tuple[int, int] = (64, 48)) -> tuple[Frame, np.ndarray]:
    path = save(tmp_path / "source.png", colourful(*size), icc=profile())
    info = probe_stills(path, [path], None)
    ring = FrameRing(1, lambda slot: host_planes(info.format, slot))
    (frame,) = StillDecoder(info).frames(ring)
    return frame, colourful(*size)


@pytest.mark.parametrize("size", SIZES)
def test_people_keep_the_pixels_of_the_file(tmp_path: Path, size: tuple[int, int]) -> None:
    frame, source = still_frame(tmp_path, size)
    frame.planes.alpha[:] = 255
    frame.planes.alpha[size[1] // 2 :] = 0
    frame.planes.luma[size[1] // 2 :] = 16
    frame.planes.chroma[size[1] // 4 :] = 128  # one row of it lies under people, too
    out = written(frame, tmp_path / "out.png")
    assert np.array_equal(out[: size[1] // 2], source[: size[1] // 2])
    below = out[size[1] // 2 + 6 :]  # behind the reach of chroma
    assert below.size == 0 or below.max() <= 1


def test_what_420_lacks_is_given_back_at_the_edge_by_alpha(tmp_path: Path) -> None:
    frame, source = still_frame(tmp_path)
    errors = []
    for alpha in (254, 128, 1):
        frame.planes.alpha[:] = alpha
        errors.append(np.abs(written(frame, tmp_path / "out.png").astype(int) - source).mean())
    assert errors[0] < 0.5
    assert errors[0] < errors[1] / 2 < errors[2] / 2


def test_nothing_of_a_hidden_place_is_given_back(tmp_path: Path) -> None:
    frame, source = still_frame(tmp_path)
    frame.planes.alpha[:24], frame.planes.alpha[24:] = 255, 200
    config = RenderConfig(input=Path("in.png"), output=Path("out.png"))
    list(HidePlan.of(config, FORMAT).patches(frame, [Rectangle(10, 10, 30, 40)]))
    frame.planes.luma[10:40, 10:30] = 126
    frame.planes.chroma[5:20, 5:15] = 128
    out = written(frame, tmp_path / "out.png").astype(int)
    assert np.array_equal(out[:24, 32:], source[:24, 32:])
    inside = out[16:34, 16:24]  # behind the reach of chroma
    assert np.ptp(inside) <= 1


def test_a_cutout_holds_nothing_where_it_is_clear(tmp_path: Path) -> None:
    frame, source = still_frame(tmp_path)
    frame.planes.alpha[:, :20], frame.planes.alpha[:, 20:] = 0, 255
    out = written(frame, tmp_path / "out.png", PictureKind.COLOR_ALPHA)
    assert np.array_equal(out[:, 20:, :3], source[:, 20:])
    assert not out[:, :20].any()
    assert np.array_equal(out[..., 3], frame.planes.alpha)
    webp = written(frame, tmp_path / "out.webp", PictureKind.COLOR_ALPHA)
    assert np.array_equal(webp[..., 3], frame.planes.alpha)


def test_the_matte_is_grey(tmp_path: Path) -> None:
    frame, _ = still_frame(tmp_path)
    frame.planes.alpha[:] = np.arange(64)
    assert np.array_equal(
        written(frame, tmp_path / "out.png", PictureKind.MATTE), frame.planes.alpha
    )


@pytest.mark.parametrize("layout", PixelLayout)
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("matrix", [1, 6, 9])
def test_a_video_s_frames_are_what_ffmpeg_makes_of_them(
    tmp_path: Path, layout: PixelLayout, full_range: bool, matrix: int
) -> None:
    color = ColorInfo(matrix=matrix, full_range=full_range, range_specified=True)
    format = FrameFormat(width=64, height=48, layout=layout, color=color)
    frame = Frame(host_planes(format), format, index=3, pts=3, time_base=Fraction(1, 25))
    draw(frame.planes, format, 3)
    deep = layout is PixelLayout.P010
    raw, wanted = tmp_path / "raw", tmp_path / "wanted.rgb"
    raw.write_bytes(frame.luma.tobytes() + frame.chroma.tobytes())
    names = {1: "bt709", 6: "bt601", 9: "bt2020"}
    scale = f"in_color_matrix={names[matrix]}:in_range={'pc' if full_range else 'tv'}:out_range=pc"
    flags = "flags=bicubic+accurate_rnd+full_chroma_int"
    ffmpeg(
        *("-f", "rawvideo", "-s", "64x48", "-pix_fmt", "p010le" if deep else "nv12", "-i", raw),
        *("-vf", f"scale={scale}:{flags},format={'rgb48le' if deep else 'rgb24'}"),
        *("-f", "rawvideo", wanted),
    )
    samples = np.fromfile(wanted, np.uint16 if deep else np.uint8).reshape(48, 64, 3)
    import cv2  # Pillow has no colour of 16 bits

    written(frame, tmp_path / "out.png")
    out = cv2.imread(str(tmp_path / "out.png"), cv2.IMREAD_UNCHANGED)[..., ::-1]
    assert out.dtype == samples.dtype
    assert np.abs(out.astype(int) - samples).max() <= (400 if deep else 2)


@pytest.mark.parametrize(
    ("name", "kind", "settings", "error", "words"),
    [
        ("a.jpg", PictureKind.COLOR_ALPHA, {}, UnsupportedFormatError, r"\.png, \.webp, \.tif"),
        ("a.png", PictureKind.COLOR, {"quality": 3}, ConfigError, "lossless"),
        ("a.jpg", PictureKind.COLOR, {"quality": 0}, ConfigError, "between 1 and 100"),
        ("a.webp", PictureKind.COLOR, {"quality": 101}, ConfigError, "between 1 and 100"),
        ("a.png", PictureKind.COLOR, {"codec": Codec.H264}, ConfigError, "cannot use --codec"),
        ("a.png", PictureKind.COLOR, {"speed": "fast"}, ConfigError, "cannot use --speed"),
        *(
            (
                "a.jpg",
                PictureKind.COLOR,
                {"encoder_option": (text,)},
                ConfigError,
                "cannot use --enc",
            )
            for text in ("tune=film", "nonsense=1")
        ),
    ],
)
def test_settings_that_do_not_fit(
    name: str, kind: PictureKind, settings: dict, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        choose_still(EncodeConfig(**settings), container_for(Path(name)), FORMAT, kind)


def test_a_picture_too_large_for_its_kind() -> None:
    large = FrameFormat(width=16_384, height=4)
    with pytest.raises(UnsupportedFormatError, match="16383"):
        choose_still(EncodeConfig(), container_for(Path("a.webp")), large, PictureKind.COLOR)


@pytest.mark.parametrize("ending", [".jpg", ".webp"])
def test_more_quality_is_more_alike(tmp_path: Path, ending: str) -> None:
    frame, source = still_frame(tmp_path)
    frame.planes.alpha[:] = 255
    errors = [
        np.abs(written(frame, tmp_path / f"out{ending}", quality=q).astype(int) - source).mean()
        for q in (10, 60, 100)
    ]
    assert errors == sorted(errors, reverse=True)
    if ending == ".jpg":
        assert errors[-1] < 1, "chroma is not subsampled"
