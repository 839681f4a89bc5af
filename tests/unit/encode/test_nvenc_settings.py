"""NVENC without NVENC: its settings, its limits, and its packets in a file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from bgsoft.cuda.video_codec import nvenc_reason, vendor_text
from bgsoft.encode.base import PictureKind
from bgsoft.encode.hdr import sei_messages
from bgsoft.encode.nv_packets import CodedPackets
from bgsoft.encode.nv_settings import choose_nvenc, fit_to_caps, tag_filter
from bgsoft.errors import BackendUnavailableError, ConfigError, EncodeError
from bgsoft.frame import ColorInfo, ContentLight, FrameFormat, MasteringDisplay, PixelLayout
from bgsoft.media.containers import container_for
from bgsoft.media.inventory import Kind
from bgsoft.media.mux import Muxer
from bgsoft.media.writer import COPY_NOTHING
from bgsoft.settings.config import Chroma, Codec, EncodeConfig
from tests.carried import caption, captions_of
from tests.outside import described_by_ffmpeg
from tests.rendering import read_back, video_info
from tests.synthetic import make_frame, read_index

HDR = ColorInfo(primaries=9, transfer=16, matrix=9, range_specified=True, chroma_location=3)
NV12 = FrameFormat(width=96, height=72)
BT709 = ColorInfo(primaries=1, transfer=1, matrix=1, range_specified=True, chroma_location=1)
P010 = FrameFormat(width=96, height=72, layout=PixelLayout.P010, color=HDR)
MP4, MKV, WEBM = (container_for(Path(f"a{end}")) for end in (".mp4", ".mkv", ".webm"))
CAPS = {
    "width_min": 145,
    "height_min": 49,
    "width_max": 4096,
    "height_max": 4096,
    "num_max_bframes": 4,
    "support_bframe_ref_mode": 3,
    "support_lookahead": 1,
    "support_temporal_aq": 1,
    "support_10bit_encode": 1,
}
DISPLAY = MasteringDisplay(
    red=(Fraction("0.708"), Fraction("0.292")),
    green=(Fraction("0.17"), Fraction("0.797")),
    blue=(Fraction("0.131"), Fraction("0.046")),
    white=(Fraction("0.3127"), Fraction("0.329")),
    min_luminance=Fraction("0.0001"),
    max_luminance=Fraction(1000),
)


def test_ten_bits_are_hevc() -> None:
    choice = choose_nvenc(EncodeConfig(), MP4, video_info(P010))
    assert (choice.codec, choice.pixel_format) == ("hevc", "P010")
    for kind, format in ((PictureKind.COLOR, NV12), (PictureKind.MATTE, P010)):
        eight = choose_nvenc(EncodeConfig(), MP4, video_info(format), kind)
        assert (eight.codec, eight.pixel_format) == ("h264", "NV12")


def test_rates_have_two_decimals() -> None:
    info = video_info(NV12, frame_rate=Fraction(30_000, 1001))
    assert choose_nvenc(EncodeConfig(), MP4, info).options["fps"] == "29.97"


@pytest.mark.parametrize("declared", [90_000, 0])
def test_rates_beyond_reason_are_those_of_the_file(tmp_path: Path, declared: int) -> None:
    info = video_info(NV12, frame_rate=Fraction(declared))
    with Muxer(tmp_path / "a.mp4", MP4, info, COPY_NOTHING) as muxer:
        assert choose_nvenc(EncodeConfig(), MP4, info).options["fps"] == "25.00"
        muxer.add_encoder("libx264", width=96, height=72, pix_fmt="yuv420p")


@pytest.mark.parametrize(
    ("size", "depth"),
    [((1920, 1080), 20), ((3840, 2160), 20), ((4096, 2304), 20), ((7680, 4320), 5)],
)
def test_pictures_beyond_4k_are_inspected_less_far_ahead(size: tuple[int, int], depth: int) -> None:
    choice = choose_nvenc(EncodeConfig(codec=Codec.HEVC), MP4, video_info(NV12))
    caps = CAPS | {"width_max": 8192, "height_max": 8192}
    assert fit_to_caps(choice, caps, *size).options["lookahead"] == str(depth)


@pytest.mark.parametrize(("asked", "preset"), [("P1", "P1"), ("p7", "P7"), (None, "P4")])
def test_presets(asked: str | None, preset: str) -> None:
    choice = choose_nvenc(EncodeConfig(speed=asked), MP4, video_info(NV12))
    assert choice.options["preset"] == preset


@pytest.mark.parametrize("asked", ["P0", "P8", "p10"])
def test_presets_beyond_its_range_are_errors(asked: str) -> None:
    with pytest.raises(ConfigError, match="P1"):
        choose_nvenc(EncodeConfig(speed=asked), MP4, video_info(NV12))


def test_a_preset_of_the_cpu_encoder_leaves_it_to_that() -> None:
    with pytest.raises(BackendUnavailableError, match="veryfast is a setting of the CPU"):
        choose_nvenc(EncodeConfig(speed="veryfast"), MP4, video_info(NV12))


def test_finer_chroma_is_left_to_the_cpu() -> None:
    info = video_info(NV12, sampling="4:2:2")
    assert choose_nvenc(EncodeConfig(), MP4, info).pixel_format == "NV12"
    assert choose_nvenc(EncodeConfig(chroma=Chroma.KEEP), MP4, video_info(NV12)).codec == "h264"
    with pytest.raises(BackendUnavailableError, match="4:2:2 is encoded on the CPU"):
        choose_nvenc(EncodeConfig(chroma=Chroma.KEEP), MP4, info)
    with pytest.raises(ConfigError, match="AV1 is 4:2:0 here"):
        choose_nvenc(EncodeConfig(chroma=Chroma.KEEP, codec=Codec.AV1), MP4, info)


@pytest.mark.parametrize(
    ("codec", "good", "bad"),
    [(Codec.H264, 51, 52), (Codec.HEVC, 1, 0), (Codec.AV1, 63, 64), (Codec.H264, 1, -1)],
)
def test_qualities(codec: Codec, good: int, bad: int) -> None:
    settings = EncodeConfig(codec=codec, quality=good)
    assert choose_nvenc(settings, MP4, video_info(NV12)).options["cq"] == str(good)
    with pytest.raises(ConfigError, match="--quality"):
        choose_nvenc(EncodeConfig(codec=codec, quality=bad), MP4, video_info(NV12))


@pytest.mark.parametrize(
    ("settings", "container", "changes", "kind", "reason"),
    [
        (EncodeConfig(codec=Codec.FFV1), MKV, {}, PictureKind.COLOR, "does not encode FFV1"),
        (EncodeConfig(), WEBM, {}, PictureKind.COLOR, "does not encode VP9"),
        (EncodeConfig(codec=Codec.VP9), WEBM, {}, PictureKind.COLOR_ALPHA, "VP9"),
        (
            EncodeConfig(),
            MP4,
            {"format": FrameFormat(width=97, height=72)},
            PictureKind.COLOR,
            "97x72 is odd",
        ),
        (
            EncodeConfig(codec=Codec.AV1),
            MP4,
            {"sample_aspect_ratio": Fraction(4, 3)},
            PictureKind.COLOR,
            "not square",
        ),
        (
            EncodeConfig(codec=Codec.AV1),
            MP4,
            {"content_light": ContentLight(max_content=1000, max_frame_average=400)},
            PictureKind.COLOR,
            "HDR10",
        ),
    ],
)
def test_what_nvenc_cannot_do_at_all(
    settings: EncodeConfig, container: Any, changes: dict[str, Any], kind: PictureKind, reason: str
) -> None:
    info = video_info(changes.pop("format", NV12), **changes)
    with pytest.raises(BackendUnavailableError, match=reason):
        choose_nvenc(settings, container, info, kind)


@pytest.mark.parametrize(
    ("caps", "b_frames", "gone", "notice"),
    [
        ({}, "3", [], ""),
        ({"support_bframe_ref_mode": 1}, "2", [], ""),
        ({"num_max_bframes": 1}, "1", [], ""),
        ({"num_max_bframes": 0}, "0", [], "B frames"),
        ({"support_lookahead": 0}, "3", ["lookahead"], "look-ahead"),
        ({"support_temporal_aq": 0}, "3", ["temporalaq"], "temporal AQ"),
    ],
)
def test_fitting_to_a_gpu(
    caps: dict[str, int], b_frames: str, gone: list[str], notice: str
) -> None:
    choice = choose_nvenc(EncodeConfig(codec=Codec.HEVC), MP4, video_info(NV12))
    fitted = fit_to_caps(choice, CAPS | caps, 1920, 1080)
    assert fitted.options["bf"] == b_frames
    assert fitted.b_frames == int(b_frames)
    assert set(choice.options) - set(fitted.options) == set(gone)
    assert notice in "".join(fitted.notices)
    assert bool(fitted.notices) == bool(notice)


@pytest.mark.parametrize(
    ("caps", "size", "format", "reason"),
    [
        ({}, (4098, 1080), NV12, "4098x1080 is outside"),
        ({}, (1920, 4098), NV12, "outside"),
        ({}, (96, 72), NV12, "outside 145x49"),
        ({"support_10bit_encode": 0}, (1920, 1080), P010, "does not encode HEVC at 10 bits"),
    ],
)
def test_gpus_that_cannot(
    caps: dict[str, int], size: tuple[int, int], format: FrameFormat, reason: str
) -> None:
    choice = choose_nvenc(EncodeConfig(), MP4, video_info(format))
    with pytest.raises(BackendUnavailableError, match=reason):
        fit_to_caps(choice, CAPS | caps, *size)


def test_errors_as_reasons() -> None:
    text = (
        "GetEncoderCaps : \nError code : {}\nError Type : nvEncOpenEncodeSessionEx failed\nat x\n"
    )
    assert nvenc_reason(Exception(text.format(2))) == "this GPU has no NVENC (status 2)"
    assert "sessions" in nvenc_reason(Exception(text.format(21)))
    assert nvenc_reason(Exception(text.format(20))) == "nvEncOpenEncodeSessionEx failed"
    assert vendor_text(Exception("\n  plain words \nmore")) == "plain words"
    assert vendor_text(ValueError()) == "ValueError"


def test_hdr10_metadata_as_sei() -> None:
    light = ContentLight(max_content=1000, max_frame_average=400)
    info = video_info(P010, mastering_display=DISPLAY, content_light=light)
    (display_type, display), (light_type, levels) = sei_messages(info)
    assert (display_type["sei_type"], light_type["sei_type"]) == (137, 144)
    assert bytes(levels) == bytes.fromhex("03e80190")
    # The payload that x265 writes for G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)
    # L(10000000,1).
    assert bytes(display) == bytes.fromhex("21349baa199608fc8a4839083d1340420098968000000001")
    assert choose_nvenc(EncodeConfig(), MP4, info).sei == sei_messages(info)
    assert choose_nvenc(EncodeConfig(), MP4, info, PictureKind.MATTE).sei == ()


def _help(name: str) -> str:
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    return subprocess.run(
        [ffmpeg, "-hide_banner", "-h", name], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC, Codec.AV1])
def test_values_are_those_ffmpeg_documents(codec: Codec) -> None:
    text = _help(f"encoder={codec}_nvenc")
    if "AVOptions" not in text:
        pytest.skip("this FFmpeg was built without NVENC")
    choice = choose_nvenc(EncodeConfig(codec=codec), MP4, video_info(NV12))
    options = choice.options
    assert re.search(rf"^\s+{options['preset'].lower()}\s", text, re.MULTILINE)
    assert re.search(rf"^\s+{options['rc']}\s", text, re.MULTILINE)
    limits = re.search(r"-cq\s.*\(from 0 to (\d+)\) \(default", text)
    assert limits is not None
    best = int(limits.group(1))
    choose_nvenc(EncodeConfig(codec=codec, quality=best), MP4, video_info(NV12))
    with pytest.raises(ConfigError):
        choose_nvenc(EncodeConfig(codec=codec, quality=best + 1), MP4, video_info(NV12))
    strengths = re.search(r"-aq-strength\s.*\(from (\d+) to (\d+)\)", text)
    assert strengths is not None
    low, high = map(int, strengths.groups())
    assert low <= int(options["aq"]) <= high
    for option in ("rc-lookahead", "temporal-aq", "b_ref_mode"):
        assert f"-{option} " in text


RATE = Fraction(25)
CODERS: dict[str, tuple[str, dict[str, str], int]] = {
    "h264": ("libx264", {"bf": "3", "x264-params": "b-pyramid=normal:b-adapt=0:keyint=8"}, 3),
    "hevc": (
        "libx265",
        {"x265-params": "log-level=none:bframes=3:b-adapt=0:keyint=8:repeat-headers=1"},
        3,
    ),
    "av1": ("libsvtav1", {"preset": "8", "crf": "10", "svtav1-params": "pred-struct=1:lp=1"}, 0),
}
COUNT = 20
PTS = [0, 3600, 5000, 9000, 14_400] + [18_000 + 1234 * step for step in range(COUNT - 5)]
"""Varying gaps."""


def coded(codec: str, count: int = COUNT) -> list[tuple[bytes, int, bool]]:
    """(access unit, number of its frame, key frame) in decoding order, as NVENC hands them out."""
    encoder, options, _ = CODERS[codec]
    context = av.CodecContext.create(encoder, "w")
    assert isinstance(context, av.VideoCodecContext)
    context.width, context.height, context.pix_fmt = 96, 72, "yuv420p"
    context.time_base, context.framerate, context.options = 1 / RATE, RATE, options
    context.thread_count = 1
    packets = []
    for index in range(count):
        frame = make_frame(index, 96, 72)
        frame.pts, frame.time_base = index, 1 / RATE
        packets += context.encode(frame)
    packets += context.encode(None)
    return [(bytes(packet), packet.pts or 0, packet.is_keyframe) for packet in packets]


def mux(
    path: Path,
    codec: str,
    pictures: Sequence[tuple[bytes, int, bool]],
    pts: Sequence[int],
    color: ColorInfo = HDR,
    full_range: bool | None = False,
    messages: Callable[[int], Sequence[tuple[str, bytes]]] = lambda _number: (),
) -> Muxer:
    aspect = (1, 1) if codec == "av1" else (4, 3)
    info = video_info(P010, sample_aspect_ratio=Fraction(*aspect))
    with Muxer(path, container_for(path), info, COPY_NOTHING) as muxer:
        packets = CodedPackets(
            muxer,
            codec,
            delay=CODERS[codec][2],
            tag_filter=tag_filter(Codec(codec), color, full_range=full_range, aspect=aspect),
        )
        for index, value in enumerate(pts):
            packets.enter(muxer.timestamp(value), 0, messages(index))
        for data, number, key_frame in pictures:
            packets.write(data, number, key_frame=key_frame)
        packets.finish()
        muxer.finish()
    return muxer


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_packets_get_their_captions(tmp_path: Path, codec: str) -> None:
    def messages(number: int) -> list[tuple[str, bytes]]:
        # ATSC A/53-4, 6.2.3: one pair of bytes, in use, between a head and an end.
        payload = b"\xb5\x00\x31GA94\x03\x41\xff" + caption(number) + b"\xff"
        return [(Kind.CAPTIONS, payload), (Kind.DOLBY_VISION, payload)]

    path = tmp_path / "out.mp4"
    muxer = mux(path, codec, coded(codec), PTS, messages=messages)
    assert captions_of(path) == [caption(number) for number in range(COUNT)]
    assert muxer.messages == {Kind.CAPTIONS: COUNT}


@pytest.mark.parametrize("extension", [".mp4", ".mkv"])
@pytest.mark.parametrize("codec", CODERS)
def test_packets_get_their_times(tmp_path: Path, codec: str, extension: str) -> None:
    path = tmp_path / f"out{extension}"
    pictures = coded(codec)
    numbers = [number for _, number, _ in pictures]
    if codec != "av1":
        assert numbers != sorted(numbers), "the stream has to be reordered"
    muxer = mux(path, codec, pictures, PTS)
    assert sorted(muxer.video_pts) == PTS
    frames = read_back(path)
    assert [read_index(frame.planes[0]) for frame in frames] == list(range(COUNT))
    wanted = [Fraction(value, 90_000) for value in PTS]
    slack = Fraction(0) if extension == ".mp4" else Fraction(1, 2000)
    pairs = zip(frames, wanted, strict=True)
    assert all(abs(frame.seconds - want) <= slack for frame, want in pairs)
    with av.open(str(path), mode="r") as container:
        times = [packet.dts for packet in container.demux(video=0) if packet.dts is not None]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("color", "full_range", "told"),
    [(HDR, False, "tv, bt2020nc/bt2020/smpte2084, topleft"), (BT709, True, "pc, bt709, left")],
)
@pytest.mark.parametrize("codec", CODERS)
def test_colour_is_written_into_stream_and_container(
    tmp_path: Path, codec: str, color: ColorInfo, full_range: bool, told: str
) -> None:
    path = tmp_path / "out.mp4"
    mux(path, codec, coded(codec), PTS, color, full_range)
    assert f"({told})" in described_by_ffmpeg(path).replace(", progressive", "")
    with av.open(str(path), mode="r") as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert context.codec_tag == {"h264": "avc1", "hevc": "hvc1", "av1": "av01"}[codec]
        if codec != "av1":
            assert stream.sample_aspect_ratio == Fraction(4, 3)
        frame = next(iter(container.decode(stream)))
        for shown in (context, frame):
            tags = (shown.color_primaries, shown.color_trc, shown.colorspace, shown.color_range)
            assert tags == (color.primaries, color.transfer, color.matrix, 1 + full_range)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("codec", CODERS)
def test_videos_of_few_frames(tmp_path: Path, codec: str, count: int) -> None:
    path = tmp_path / "out.mp4"
    mux(path, codec, coded(codec, count), PTS[:count])
    seconds = [frame.seconds for frame in read_back(path)]
    assert seconds == [Fraction(value, 90_000) for value in PTS[:count]]


def test_a_lost_frame_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match="1 frames are missing"):
        mux(tmp_path / "a.mp4", "h264", coded("h264")[:-1], PTS)


def test_a_picture_of_no_frame_is_an_error(tmp_path: Path) -> None:
    pictures = coded("h264")
    with pytest.raises(EncodeError, match="picture 18: no frame"):
        mux(tmp_path / "a.mp4", "h264", [*pictures, pictures[-1]], PTS)


def test_more_reordering_than_said_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CODERS, "h264", (*CODERS["h264"][:2], 1))
    with pytest.raises(EncodeError, match="reorders more than 1"):
        mux(tmp_path / "a.mp4", "h264", coded("h264"), PTS)


def test_a_stream_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EncodeError):
        mux(tmp_path / "a.mp4", "h264", [(b"\0" * 100, 0, True)], PTS[:1])
