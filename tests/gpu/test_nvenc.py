"""NVENC: the files it makes, and its refusal where there is none."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from bgsoft.encode.base import PictureKind
from bgsoft.encode.nv_settings import choose_nvenc
from bgsoft.errors import BackendUnavailableError
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.writer import COPY_NOTHING
from bgsoft.settings.config import Codec, EncodeConfig
from tests.fakes import host_planes
from tests.gpu.video_device import device_frame, to_host
from tests.rendering import draw, matte_picture, psnr, read_back, video_info
from tests.synthetic import read_index

pytestmark = pytest.mark.gpu

BT709 = ColorInfo(primaries=1, transfer=1, matrix=1, range_specified=True, chroma_location=1)
PQ = ColorInfo(primaries=9, transfer=16, matrix=9, range_specified=True, chroma_location=1)
NV12 = FrameFormat(width=256, height=192, color=BT709)
P010 = FrameFormat(width=256, height=192, color=PQ, layout=PixelLayout.P010)
PTS = [0, 3600, 5000, 9000, 14_400] + [18_000 + 1234 * step for step in range(55)]


@pytest.fixture(scope="module")
def device(gpu: Any) -> Any:
    return gpu


def caps_or_skip(device: Any, codec: str) -> Any:
    from bgsoft.cuda.video_codec import encoder_caps

    try:
        return encoder_caps(device.number, codec)
    except BackendUnavailableError as exc:
        pytest.skip(str(exc))


def encode(
    device: Any, path: Path, format: FrameFormat, codec: Codec, kind: PictureKind
) -> tuple[Muxer, Any]:
    import cupy

    from bgsoft.cuda.device import device_planes
    from bgsoft.encode.nvenc import NvencEncoder

    info = video_info(format)
    choice = choose_nvenc(EncodeConfig(codec=codec), container_for(path), info, kind)
    host, target = host_planes(format, 0), device_planes(format, 0)
    with Muxer(path, container_for(path), info, COPY_NOTHING) as muxer:
        encoder = NvencEncoder(muxer, choice, device=device)
        for index, pts in enumerate(PTS):
            draw(host, format, index)
            for source, plane in (
                (host.luma, target.luma),
                (host.chroma, target.chroma),
                (host.alpha, target.alpha),
            ):
                plane.set(source)
            cupy.cuda.Device().synchronize()
            frame = device_frame(target, format, index)
            frame.pts = pts
            encoder.encode(frame)
        encoder.finish()
        muxer.finish()
        encoder.close()
    return muxer, encoder


@pytest.mark.parametrize(
    ("codec", "format"),
    [(Codec.H264, NV12), (Codec.HEVC, NV12), (Codec.HEVC, P010), (Codec.AV1, NV12)],
    ids=["h264", "hevc", "hevc10", "av1"],
)
def test_frames_come_back(device: Any, tmp_path: Path, codec: Codec, format: FrameFormat) -> None:
    caps_or_skip(device, codec.value)
    path = tmp_path / "out.mp4"
    muxer, encoder = encode(device, path, format, codec, PictureKind.COLOR)
    assert encoder.frames == len(PTS)
    assert sorted(muxer.video_pts) == PTS
    frames = read_back(path)
    assert [frame.seconds for frame in frames] == [Fraction(pts, 90_000) for pts in PTS]
    for index, frame in enumerate(frames):
        assert read_index(frame.planes[0], frame.bits - 8) == index
    with av.open(str(path), mode="r") as container:
        context = container.streams.video[0].codec_context
        color = format.color
        tags = (context.color_primaries, context.color_trc, context.colorspace)
        assert tags == (color.primaries, color.transfer, color.matrix)
        assert context.color_range == 1


def test_the_matte(device: Any, tmp_path: Path) -> None:
    caps_or_skip(device, "h264")
    path = tmp_path / "matte.mp4"
    encode(device, path, P010, Codec.H264, PictureKind.MATTE)
    for index, frame in enumerate(read_back(path)):
        expected = np.round(16 + matte_picture(index, P010) * (219 / 255)).astype(np.uint8)
        assert psnr(frame.planes[0], expected, 8) > 35


def test_a_gpu_without_nvenc_says_so(device: Any, tmp_path: Path) -> None:
    from bgsoft.cuda.video_codec import encoder_caps
    from bgsoft.encode.nvenc import NvencEncoder

    reason = ""
    try:
        encoder_caps(device.number, "h264")
    except BackendUnavailableError as exc:
        reason = str(exc)
    if not reason:
        pytest.skip("this GPU has NVENC")
    assert reason.startswith("NVENC: this GPU has no NVENC")
    info = video_info(NV12)
    path = tmp_path / "out.mp4"
    choice = choose_nvenc(EncodeConfig(), container_for(path), info)
    with Muxer(path, container_for(path), info, COPY_NOTHING) as muxer:
        with pytest.raises(BackendUnavailableError):
            NvencEncoder(muxer, choice, device=device)
        # Nothing has been added: the CPU encoder can have the same muxer.
        muxer.add_encoder("libx264", width=256, height=192, pix_fmt="yuv420p")


@pytest.mark.parametrize("full_range", [False, True])
def test_matte_kernel(device: Any, full_range: bool) -> None:
    import cupy

    from bgsoft.ops.loader import kernel

    format = FrameFormat(width=16, height=16, color=ColorInfo(full_range=full_range))
    alpha = cupy.arange(256, dtype=cupy.uint8)
    luma = cupy.empty_like(alpha)
    black, white = format.luma_range
    args = (alpha, luma, np.int32(256), np.int32(black), np.int32(white))
    kernel("surface", "matte_luma")((1,), (256,), args)
    expected = np.round(black + np.arange(256) * ((white - black) / 255))
    assert np.array_equal(to_host(luma), expected)
