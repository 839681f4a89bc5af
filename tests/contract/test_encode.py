"""Every CPU encoder in every container that takes it: frames, timestamps, colour, alpha."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import choose_encoder
from bgsoft.encode.cpu import CpuEncoder
from bgsoft.errors import ConfigError, EncodeError, UnsupportedFormatError
from bgsoft.exitcodes import ExitCode, exit_code
from bgsoft.frame import (
    UNSPECIFIED,
    ColorInfo,
    ContentLight,
    Frame,
    FrameFormat,
    MasteringDisplay,
    PixelLayout,
    Planes,
)
from bgsoft.media.containers import ANIMATED, CONTAINERS, container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import content_light_of, mastering_display_of
from bgsoft.media.side_data import read_side_data
from bgsoft.media.writer import COPY_NOTHING
from bgsoft.settings.config import Codec, EncodeConfig
from tests.fakes import host_planes
from tests.marks import crossed, slow
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.processes import run_python
from tests.rendering import draw, encode_frames, matte_picture, psnr, read_back, video_info
from tests.synthetic import read_index

NV12 = FrameFormat(
    width=96,
    height=72,
    color=ColorInfo(
        primaries=1, transfer=1, matrix=1, range_specified=True, full_range=False, chroma_location=1
    ),
)
P010 = FrameFormat(
    width=96,
    height=72,
    layout=PixelLayout.P010,
    color=ColorInfo(primaries=9, transfer=16, matrix=9, range_specified=True, chroma_location=1),
)
REGULAR = [3600 * index for index in range(12)]
VARYING = [-1800, 0, 3000, 6000, 12_000, 13_500, 27_000, 28_500, 45_000, 46_500, 60_000, 180_000]
"""Gaps from 1/60 s to more than a second, from before zero."""

FILES = [
    (f"out{container.extensions[0]}", codec)
    for container in CONTAINERS
    for codec in sorted(container.codecs - ANIMATED)
]
"""Animations are in ``test_animated.py``."""
EXACT = {".mp4", ".mov"}
_MINIMUM_PSNR = {8: 38.0, 10: 38.0}


def coded_sample(format: FrameFormat, plane: np.ndarray, bits: int) -> np.ndarray:
    """Stored samples as code values of another depth."""
    values = plane.astype(np.int64) >> format.shift
    shift = bits - format.bit_depth
    return values << shift if shift >= 0 else (values + (1 << -shift >> 1)) >> -shift


def check_times(path: Path, pts: list[int], seconds: list[Fraction]) -> None:
    """Compare frame times: exact, within Matroska's 1 ms, or all shifted alike.

    MPEG-TS shifts them. So does AVI, for whose H.264 FFmpeg's demuxer invents one frame of delay.
    """
    wanted = [Fraction(value, 90_000) for value in pts]
    assert len(seconds) == len(wanted)
    # No container shows pictures before zero: a film that starts there is moved as a whole.
    wanted = [time - min(wanted[0], 0) for time in wanted]
    if path.suffix in EXACT:
        assert seconds == wanted
        return
    shifts = [got - want for got, want in zip(seconds, wanted, strict=True)]
    if path.suffix in (".ts", ".avi"):
        assert len(set(shifts)) == 1
    else:
        assert max(abs(shift) for shift in shifts) <= Fraction(1, 2000)


@pytest.mark.parametrize("format", [NV12, P010], ids=["8bit", "10bit"])
@pytest.mark.parametrize("pts", [slow(REGULAR), VARYING], ids=["cfr", "vfr"])
@pytest.mark.parametrize(("name", "codec"), FILES, ids=[f"{n}-{c}" for n, c in FILES])
def test_frames_come_back(
    tmp_path: Path, name: str, codec: Codec, pts: list[int], format: FrameFormat
) -> None:
    path = tmp_path / name
    info = video_info(format)
    settings = EncodeConfig(codec=codec)
    if path.suffix in (".avi", ".y4m") and pts == VARYING:
        with pytest.raises(UnsupportedFormatError, match="varying frame rate"):
            encode_frames(path, info, pts, settings=settings)
        return
    muxer = encode_frames(path, info, pts, settings=settings)
    assert sorted(muxer.video_pts) == pts
    decoded = read_back(path)
    check_times(path, pts, [frame.seconds for frame in decoded])
    planes = host_planes(format)
    for index, frame in enumerate(decoded):
        assert read_index(frame.planes[0], frame.bits - 8) == index
        draw(planes, format, index)
        luma = coded_sample(format, planes.luma, frame.bits)
        assert psnr(frame.planes[0], luma, frame.bits) > _MINIMUM_PSNR[format.bit_depth]
        for channel in (0, 1):
            wanted = coded_sample(format, planes.chroma[..., channel], frame.bits)
            got = frame.planes[1 + channel]
            step_y, step_x = got.shape[0] // wanted.shape[0], got.shape[1] // wanted.shape[1]
            # Where chroma was repeated, each copy is like the original.
            assert psnr(got[step_y - 1 :: step_y, step_x - 1 :: step_x], wanted, frame.bits) > 38
    color = format.color
    with av.open(str(path), mode="r") as container:
        shown = container.streams.video[0].codec_context
        described = (color.primaries, color.transfer, color.matrix)
        if codec is Codec.RAW:  # which has no place for it; a notice says so
            described = (2, 2, 2)
        assert (shown.color_primaries, shown.color_trc, shown.colorspace) == described
        assert shown.color_range == (0 if path.suffix == ".nut" and codec is Codec.RAW else 1)
    assert decoded[0].bits >= min(format.bit_depth, 8 if codec is Codec.VP9 else 10)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("codec", sorted({*Codec} - {Codec.AUTO} - ANIMATED))
def test_films_of_few_frames(tmp_path: Path, codec: Codec, count: int) -> None:
    path = tmp_path / ("out.nut" if codec is Codec.RAW else "out.mkv")
    encode_frames(path, video_info(NV12), REGULAR[:count], settings=EncodeConfig(codec=codec))
    decoded = read_back(path)
    check_times(path, REGULAR[:count], [frame.seconds for frame in decoded])
    assert [read_index(f.planes[0], f.bits - 8) for f in decoded] == list(range(count))


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp4", Codec.H264), ("a.mov", Codec.HEVC), ("a.mov", Codec.PRORES)]
)
def test_the_last_frame_keeps_its_duration(tmp_path: Path, name: str, codec: Codec) -> None:
    path = tmp_path / name
    encode_frames(
        path,
        video_info(NV12),
        VARYING[1:],
        settings=EncodeConfig(codec=codec),
        last_duration=40_000,
    )
    # The film's length by its header box (ISO 14496-12, 8.2.2): time scale, then duration.
    data = path.read_bytes()
    box = data.index(b"mvhd") + 4
    scale, duration = struct.unpack_from(">II", data, box + 12)
    assert 0 <= Fraction(duration, scale) - Fraction(220_000, 90_000) < Fraction(1, scale)


ODD_FILES = [
    ("out.mp4", Codec.H264),
    ("out.mp4", Codec.HEVC),
    ("out.webm", Codec.VP9),
    ("out.mp4", Codec.AV1),
    ("out.mov", Codec.PRORES),
    ("out.mkv", Codec.FFV1),
]


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize(("name", "codec"), ODD_FILES)
def test_odd_sizes_are_exact(tmp_path: Path, name: str, codec: Codec, layout: PixelLayout) -> None:
    format = replace(NV12, width=97, height=73, layout=layout)
    path = tmp_path / name
    encode_frames(path, video_info(format), REGULAR[:5], settings=EncodeConfig(codec=codec))
    decoded = read_back(path)
    assert [read_index(f.planes[0], f.bits - 8) for f in decoded] == list(range(5))
    for frame in decoded:
        assert frame.planes[0].shape == (73, 97)
        assert (frame.frame.width, frame.frame.height) == (97, 73)


@pytest.mark.parametrize(("width", "height"), [(96, 73), (97, 72), (33, 35)])
def test_one_odd_side(tmp_path: Path, width: int, height: int) -> None:
    format = replace(NV12, width=width, height=height)
    path = tmp_path / "out.mp4"
    encode_frames(path, video_info(format), REGULAR[:3])
    for frame in read_back(path):
        assert frame.planes[0].shape == (height, width)
        assert frame.planes[1].shape == (height, width)


FFV1_SIZES = [(1, 3), (2, 6), (3, 3), (4, 34), (7, 401), (33, 17), (97, 71), (352, 288), (353, 287)]
FFV1_SIZES += [(427, 239), (426, 239), (427, 240), (853, 479), (1279, 719), (1920, 1080)]


@crossed(size=FFV1_SIZES, kind=[PictureKind.COLOR, PictureKind.COLOR_ALPHA])
def test_ffv1_of_any_size(tmp_path: Path, size: tuple[int, int], kind: PictureKind) -> None:
    format = replace(NV12, width=size[0], height=size[1])
    path, raw = tmp_path / "out.mkv", tmp_path / "out.yuv"
    codec = EncodeConfig(codec=Codec.FFV1)
    encode_frames(path, video_info(format), REGULAR[:2], settings=codec, kind=kind)
    planes, expected = host_planes(format), b""
    for index in range(2):
        draw(planes, format, index)
        shown = [planes.luma, planes.chroma[..., 0], planes.chroma[..., 1]]
        shown += [planes.alpha] if kind is PictureKind.COLOR_ALPHA else []
        expected += b"".join(plane.tobytes() for plane in shown)
    ffmpeg("-xerror", "-err_detect", "crccheck+explode", "-i", path, "-f", "rawvideo", raw)
    assert raw.read_bytes() == expected


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("name", ["out.mov", "out.mkv", "out.webm"])
@pytest.mark.parametrize("width", [96, 97])
def test_alpha_channel(tmp_path: Path, name: str, layout: PixelLayout, width: int) -> None:
    format = replace(NV12, width=width, layout=layout)
    path = tmp_path / name
    info = video_info(format)
    encode_frames(path, info, REGULAR, kind=PictureKind.COLOR_ALPHA)
    decoded = read_back(path)
    assert len(decoded) == len(REGULAR)
    for index, frame in enumerate(decoded):
        assert read_index(frame.planes[0], frame.bits - 8) == index
        assert len(frame.planes) == 4
        alpha = frame.planes[3].astype(np.float64) * (255 / ((1 << frame.bits) - 1))
        error = np.abs(alpha - matte_picture(index, format))
        if path.suffix == ".webm":
            assert psnr(alpha, matte_picture(index, format), 8) > 38
        else:
            assert error.max() < 0.5


def test_vp9_says_that_it_has_alpha(tmp_path: Path) -> None:
    path = tmp_path / "out.webm"
    encode_frames(path, video_info(NV12), REGULAR[:2], kind=PictureKind.COLOR_ALPHA)
    # Matroska's AlphaMode element (ID 0x53C0), one byte long, value 1.
    assert b"\x53\xc0\x81\x01" in path.read_bytes()


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("codec", [Codec.H264, Codec.FFV1, Codec.PRORES])
def test_matte_as_grey(tmp_path: Path, codec: Codec, layout: PixelLayout, full_range: bool) -> None:
    format = replace(NV12, layout=layout, color=replace(NV12.color, full_range=full_range))
    path = tmp_path / "matte.mkv"
    info = video_info(format)
    encode_frames(
        path, info, REGULAR[:6], settings=EncodeConfig(codec=codec), kind=PictureKind.MATTE
    )
    full = full_range and codec is not Codec.PRORES  # which decoders take for limited
    black, white = (0, 255) if full else (16, 235)
    for index, frame in enumerate(read_back(path)):
        scale = 1 << (frame.bits - 8)
        luma = frame.planes[0] / scale
        if full and frame.bits > 8:
            luma = frame.planes[0] * (255 / ((1 << frame.bits) - 1))
        wanted = black + matte_picture(index, format) * ((white - black) / 255)
        assert psnr(luma, wanted, 8) > 38
        for chroma in frame.planes[1:3]:
            assert np.abs(chroma / scale - 128).max() <= 1


def test_alpha_tables_are_exact_at_both_ends(tmp_path: Path) -> None:
    def two_halves(planes: Planes, format: FrameFormat, index: int) -> None:
        draw(planes, format, index)
        planes.alpha[:, :48] = 0
        planes.alpha[:, 48:] = 255

    path = tmp_path / "out.mkv"
    encode_frames(path, video_info(P010), [0], kind=PictureKind.COLOR_ALPHA, draw_frame=two_halves)
    (frame,) = read_back(path)
    assert frame.bits == 10
    assert np.all(frame.planes[3][:, :48] == 0)
    assert np.all(frame.planes[3][:, 48:] == 1023)


HDR10 = MasteringDisplay(
    red=(Fraction(17, 25), Fraction(8, 25)),
    green=(Fraction(53, 200), Fraction(69, 100)),
    blue=(Fraction(3, 20), Fraction(3, 50)),
    white=(Fraction(3127, 10_000), Fraction(329, 1000)),
    min_luminance=Fraction(1, 200),
    max_luminance=Fraction(1000),
)
LIGHT = ContentLight(max_content=1000, max_frame_average=400)


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC, Codec.AV1])
def test_hdr10_metadata_is_kept(tmp_path: Path, codec: Codec) -> None:
    path = tmp_path / "out.mkv"
    info = video_info(P010, mastering_display=HDR10, content_light=LIGHT)
    encode_frames(path, info, REGULAR[:3], settings=EncodeConfig(codec=codec))
    shown = read_back(path)[0].frame
    data = read_side_data(shown, codec)
    display = mastering_display_of(data)
    assert display is not None
    for name in ("red", "green", "blue", "white"):
        for got, want in zip(getattr(display, name), getattr(HDR10, name), strict=True):
            assert abs(got - want) < Fraction(1, 10_000)
    assert abs(display.max_luminance - 1000) < 1
    assert abs(display.min_luminance - HDR10.min_luminance) < Fraction(1, 1000)
    assert content_light_of(data) == LIGHT


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", Codec.H264),
        ("a.mp4", Codec.AV1),
        ("a.mkv", Codec.HEVC),
        ("a.mkv", Codec.AV1),
        ("a.mkv", Codec.FFV1),
        ("a.mkv", Codec.PRORES),
        ("a.webm", Codec.VP9),
        ("a.avi", Codec.H264),
    ],
)
@pytest.mark.parametrize("aspect", [Fraction(16, 15), *map(slow, (Fraction(10, 11), Fraction(2)))])
def test_pixel_aspect_is_kept(tmp_path: Path, name: str, codec: Codec, aspect: Fraction) -> None:
    path = tmp_path / name
    info = video_info(NV12, sample_aspect_ratio=aspect)
    encode_frames(path, info, REGULAR[:2], settings=EncodeConfig(codec=codec))
    with av.open(str(path), mode="r") as container:
        assert container.streams.video[0].sample_aspect_ratio == aspect
    assert len(shown_by_ffmpeg(path)) == 2


def test_hevc_is_tagged_for_apple_players(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    encode_frames(path, video_info(P010), REGULAR[:2])
    with av.open(str(path), mode="r") as container:
        stream = container.streams.video[0]
        assert stream.codec.canonical_name == "hevc"
        assert stream.codec_context.codec_tag == "hvc1"


def test_unspecified_colour_stays_unspecified(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    encode_frames(path, video_info(replace(NV12, color=ColorInfo())), REGULAR[:2])
    shown = read_back(path)[0].frame
    assert (shown.color_primaries, shown.color_trc, shown.colorspace) == (2, 2, 2)
    assert shown.color_range == 0


def test_full_range_is_kept(tmp_path: Path) -> None:
    color = replace(NV12.color, full_range=True)
    path = tmp_path / "out.mp4"
    encode_frames(path, video_info(replace(NV12, color=color)), REGULAR[:2])
    assert read_back(path)[0].frame.color_range == 2


@pytest.mark.parametrize(
    ("name", "format", "kind", "codec"),
    [
        ("a.mp4", NV12, PictureKind.COLOR, Codec.H264),
        ("a.mkv", NV12, PictureKind.COLOR, Codec.H264),
        ("a.ts", NV12, PictureKind.COLOR, Codec.H264),
        ("a.webm", NV12, PictureKind.COLOR, Codec.VP9),
        ("a.mp4", P010, PictureKind.COLOR, Codec.HEVC),
        ("a.mov", P010, PictureKind.COLOR, Codec.HEVC),
        ("a.webm", P010, PictureKind.COLOR, Codec.AV1),
        ("a.mov", NV12, PictureKind.COLOR_ALPHA, Codec.PRORES),
        ("a.webm", P010, PictureKind.COLOR_ALPHA, Codec.VP9),
        ("a.mkv", P010, PictureKind.COLOR_ALPHA, Codec.FFV1),
        ("a.mp4", P010, PictureKind.MATTE, Codec.H264),
    ],
)
def test_automatic_codec(name: str, format: FrameFormat, kind: PictureKind, codec: Codec) -> None:
    info = video_info(format)
    assert choose_encoder(EncodeConfig(), container_for(Path(name)), info, kind).codec is codec


def test_eight_bit_vp9_of_a_ten_bit_source_is_reported() -> None:
    settings = EncodeConfig(codec=Codec.VP9)
    choice = choose_encoder(settings, container_for(Path("a.webm")), video_info(P010))
    assert any("8 bits" in notice for notice in choice.notices)


@pytest.mark.parametrize("matrix", [1, 4, 5, 6, 7, 9, 10])
def test_a_matrix_that_vp9_lacks_is_named(tmp_path: Path, matrix: int) -> None:
    info = video_info(replace(NV12, color=replace(NV12.color, matrix=matrix)))
    path = tmp_path / "a.webm"
    choice = choose_encoder(EncodeConfig(codec=Codec.VP9), container_for(path), info)
    encode_frames(path, info, REGULAR[:1], choice=choice)
    with av.open(str(path)) as file:
        stored = next(file.decode(video=0)).colorspace
    named = f"VP9 cannot store colour matrix {matrix} (H.273)" in choice.notices
    assert named == (stored == UNSPECIFIED)


@pytest.mark.parametrize(
    ("name", "settings", "kind", "error", "words"),
    [
        ("a.mp4", EncodeConfig(), PictureKind.COLOR_ALPHA, UnsupportedFormatError, r"\.mov"),
        ("a.mp4", EncodeConfig(codec=Codec.PRORES), PictureKind.COLOR, None, r"\.mov, \.mkv"),
        ("a.webm", EncodeConfig(codec=Codec.H264), PictureKind.COLOR, None, r"\.mp4"),
        (
            "a.mkv",
            EncodeConfig(codec=Codec.H264),
            PictureKind.COLOR_ALPHA,
            ConfigError,
            "it has no alpha channel here",
        ),
        ("a.mp4", EncodeConfig(quality=52), PictureKind.COLOR, ConfigError, r"0 \(best\) and 51"),
        ("a.mp4", EncodeConfig(quality=-1), PictureKind.COLOR, ConfigError, "between 0"),
        ("a.mp4", EncodeConfig(speed="P4"), PictureKind.COLOR, ConfigError, "veryfast"),
        ("a.webm", EncodeConfig(speed="9"), PictureKind.COLOR, ConfigError, "0 to 8"),
        (
            "a.mkv",
            EncodeConfig(codec=Codec.FFV1, quality=3),
            PictureKind.COLOR,
            ConfigError,
            "lossless",
        ),
        (
            "a.mov",
            EncodeConfig(codec=Codec.PRORES, speed="fast"),
            PictureKind.COLOR,
            ConfigError,
            "cannot use --speed",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    name: str, settings: EncodeConfig, kind: PictureKind, error: type[Exception] | None, words: str
) -> None:
    with pytest.raises(error or UnsupportedFormatError, match=words):
        choose_encoder(settings, container_for(Path(name)), video_info(NV12), kind)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a.mp4", EncodeConfig(quality=30, speed="ultrafast")),
        ("a.mp4", EncodeConfig(codec=Codec.HEVC, quality=35, speed="ultrafast")),
        ("a.mkv", EncodeConfig(codec=Codec.AV1, quality=50, speed="12")),
        ("a.webm", EncodeConfig(quality=50, speed="8")),
        ("a.mov", EncodeConfig(codec=Codec.PRORES, quality=20)),
    ],
)
def test_quality_and_speed_reach_the_encoder(
    tmp_path: Path, name: str, settings: EncodeConfig
) -> None:
    rng = np.random.default_rng(3)
    noise = rng.integers(16, 236, NV12.luma_shape, np.uint8)

    def noisy(planes: Planes, format: FrameFormat, index: int) -> None:
        draw(planes, format, index)
        planes.luma[:] = noise

    sizes = []
    for label, quality in (("worse", settings.quality), ("better", 4)):
        path = tmp_path / f"{label}{Path(name).suffix}"
        encode_frames(
            path,
            video_info(NV12),
            REGULAR[:4],
            settings=replace(settings, quality=quality),
            draw_frame=noisy,
        )
        sizes.append(path.stat().st_size)
    assert sizes[0] * 1.3 < sizes[1]


@pytest.mark.parametrize(("codec", "width"), [(Codec.H264, 16386), (Codec.AV1, 66000)])
def test_a_picture_that_no_such_encoder_takes_is_wrong_usage(
    tmp_path: Path, codec: Codec, width: int
) -> None:
    """SVT-AV1 accepted a picture 66000 pixels wide, and hung."""
    info = video_info(FrameFormat(width=width, height=4))
    container = container_for(Path("a.mkv"))
    choice = choose_encoder(EncodeConfig(codec=codec), container, info)
    with (
        Muxer(tmp_path / "a.mkv", container, info, COPY_NOTHING) as muxer,
        pytest.raises(UnsupportedFormatError, match=f"{width}x4: .* 16384 pixels a side") as told,
    ):
        CpuEncoder(muxer, choice)
    assert exit_code(told.value) is ExitCode.USAGE


@pytest.mark.parametrize(
    ("size", "is_held"),
    [((24, 65), False), ((7680, 16), False), ((25, 65), True), ((65, 25), True), ((24, 64), True)],
)
def test_pictures_too_thin_for_av1(tmp_path: Path, size: tuple[int, int], is_held: bool) -> None:
    """SVT-AV1 4.1 did not return from them."""
    info = video_info(FrameFormat(width=size[0], height=size[1]))
    path, settings = tmp_path / "a.mkv", EncodeConfig(codec=Codec.AV1)
    if is_held:
        encode_frames(path, info, REGULAR[:3], settings=settings)
        assert len(read_back(path)) == 3
        return
    with pytest.raises(UnsupportedFormatError, match=r"too thin .*--codec h264") as told:
        encode_frames(path, info, REGULAR[:3], settings=settings)
    assert exit_code(told.value) is ExitCode.USAGE


def test_an_encoder_that_does_not_open_gives_ffmpegs_reason(tmp_path: Path) -> None:
    info = video_info(NV12)
    container = container_for(Path("a.mp4"))
    choice = choose_encoder(EncodeConfig(), container, info)
    broken = replace(choice, options={**choice.options, "preset": "nonsense"})
    with (
        Muxer(tmp_path / "a.mp4", container, info, COPY_NOTHING) as muxer,
        pytest.raises(EncodeError, match="cannot open libx264 for 96x72") as told,
    ):
        CpuEncoder(muxer, broken)
    assert "Error setting preset/tune nonsense" in str(told.value)  # FFmpeg's own words
    assert list(tmp_path.iterdir()) == []


def test_a_failing_frame_is_named(tmp_path: Path) -> None:
    info = video_info(NV12)
    container = container_for(Path("a.mp4"))
    with Muxer(tmp_path / "a.mp4", container, info, COPY_NOTHING) as muxer:
        encoder = CpuEncoder(muxer, choose_encoder(EncodeConfig(), container, info))
        frame = Frame(host_planes(NV12), NV12, 7, 25_200, info.time_base)
        encoder.encode(frame)
        encoder.finish()
        with pytest.raises(EncodeError, match="frame 7") as caught:
            encoder.encode(frame)
        assert caught.value.pts == 25_200
        assert caught.value.stage == "encode"


_ENCODE_ALL = """
import sys
from pathlib import Path
from bgsoft.settings.config import Codec, EncodeConfig
from bgsoft.frame import FrameFormat
from tests.rendering import encode_frames, video_info

endings = {"raw": "nut", "gif": "gif"}
for codec in set(Codec) - {Codec.WEBP}:
    encode_frames(
        Path(sys.argv[1]) / f"{codec}.{endings.get(codec, 'mkv')}",
        video_info(FrameFormat(width=96, height=72)),
        [0, 3600],
        settings=EncodeConfig(codec=codec),
    )
"""


def test_encoders_print_nothing(tmp_path: Path) -> None:
    """A fresh process shows what encoder libraries write to the terminal themselves."""
    result = run_python("-c", _ENCODE_ALL, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert len(list(tmp_path.iterdir())) == len(Codec) - 1


@pytest.mark.parametrize(
    ("name", "codec", "speed"),
    [
        ("out.mp4", Codec.H264, None),
        slow("out.mp4", Codec.H264, "slow"),
        slow("out.mp4", Codec.HEVC, None),
        slow("out.mp4", Codec.HEVC, "medium"),
        slow("out.mp4", Codec.AV1, None),
        slow("out.mov", Codec.PRORES, None),
    ],
)
def test_the_number_of_threads_changes_nothing(
    tmp_path: Path, name: str, codec: Codec, speed: str | None
) -> None:
    """The share of cores that a batch gives to a file does not change the file."""
    format = replace(NV12, width=482, height=362)
    settings = EncodeConfig(codec=codec, speed=speed)
    made = set()
    for threads in (0, 1, 2, 5):
        path = tmp_path / f"{threads}" / name
        path.parent.mkdir()
        encode_frames(
            path, video_info(format), REGULAR, settings=settings, threads=threads, draw_frame=_noise
        )
        made.add(path.read_bytes())
    assert len(made) == 1


def _noise(planes: Planes, format: FrameFormat, index: int) -> None:
    """A picture that moves, with some noise: the encoder has much to choose from."""
    rng = np.random.default_rng(5)
    texture = rng.integers(40, 200, format.luma_shape, np.uint8)
    planes.luma[:] = np.roll(texture // 8 * 4, (5 * index, 3 * index), (0, 1)) + 20
    planes.chroma[:] = 100 + 4 * index
    planes.luma[: format.height // 3] += rng.integers(0, 9, planes.luma.shape[1], np.uint8)


def encode_noise(path: Path | str, codec: Codec | str) -> None:
    info = video_info(replace(NV12, width=642, height=362))
    settings = EncodeConfig(codec=Codec(codec))
    encode_frames(Path(path), info, REGULAR, settings=settings, draw_frame=_noise)


@pytest.mark.parametrize("codec", [Codec.H264, slow(Codec.HEVC), slow(Codec.AV1)])
def test_what_lay_in_memory_before_changes_nothing(tmp_path: Path, codec: Codec) -> None:
    """glibc fills fresh memory with a value in the other process, as if it had rendered before."""
    here, there = tmp_path / "here.mp4", tmp_path / "there.mp4"
    encode_noise(here, codec)
    code = "import sys; from tests.contract import test_encode as t; t.encode_noise(*sys.argv[1:])"
    run_python("-c", code, there, codec, environment={"MALLOC_PERTURB_": "85"}, check=True)
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.parametrize("layout", [PixelLayout.NV12, PixelLayout.P010])
def test_full_range_is_coded_as_prores_is_read(tmp_path: Path, layout: PixelLayout) -> None:
    """FFmpeg decodes ProRes to the same levels as FFV1, which declares its range."""
    color = ColorInfo(primaries=1, transfer=1, matrix=1, full_range=True, range_specified=True)
    info = video_info(FrameFormat(width=64, height=48, layout=layout, color=color))
    shown = []
    for codec, name in ((Codec.FFV1, "a.mkv"), (Codec.PRORES, "b.mov")):
        path, raw = tmp_path / name, tmp_path / f"{name}.rgb"
        settings = EncodeConfig(codec=codec, quality=1 if codec is Codec.PRORES else None)
        encode_frames(path, info, REGULAR[:1], settings=settings)
        ffmpeg("-i", path, "-sws_flags", "accurate_rnd", "-f", "rawvideo", "-pix_fmt", "gray", raw)
        shown.append(np.fromfile(raw, np.uint8).astype(int))
    assert np.abs(shown[0] - shown[1]).max() <= 5
    assert np.abs(shown[0] - shown[1]).mean() <= 1.5
    matte = tmp_path / "matte.mov"
    encode_frames(matte, info, REGULAR[:1], settings=settings, kind=PictureKind.MATTE)
    luma = read_back(matte)[0].planes[0]
    assert (luma.min() // 4, luma.max() // 4) == (16, 235)


@pytest.mark.parametrize(
    ("codec", "suffix"),
    [
        (Codec.FFV1, "mkv"),
        (Codec.PRORES, "mov"),
        (Codec.VP9, "mkv"),
        (Codec.AUTO, "nut"),
        (Codec.AUTO, "y4m"),
        (Codec.AUTO, "gif"),
    ],
)
def test_hdr10_metadata_that_a_codec_lacks_is_named(codec: Codec, suffix: str) -> None:
    light = replace(P010.color, primaries=9, transfer=16, matrix=9)
    info = video_info(replace(P010, color=light), mastering_display=HDR10, content_light=LIGHT)
    container, settings = container_for(Path(f"a.{suffix}")), EncodeConfig(codec=codec)
    told = "mastering display"
    assert told in "".join(choose_encoder(settings, container, info).notices)
    matte = choose_encoder(settings, container, info, PictureKind.MATTE)
    assert told not in "".join(matte.notices)
