"""Copying of decoded frames into slots, where no clip shows the case."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from av.filter import Graph
from av.video.frame import VideoFrame

from bgsoft.decode.convert import PlaneWriter, fitted_size
from bgsoft.errors import DecodeError
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.media.info import VideoInfo
from tests.fakes import host_planes
from tests.rendering import video_info
from tests.synthetic import chroma_pictures, luma_picture, make_frame


def _info(width: int, height: int, layout: PixelLayout = PixelLayout.NV12) -> VideoInfo:
    return video_info(FrameFormat(width=width, height=height, layout=layout))


def _upside_down(frame: VideoFrame) -> VideoFrame:
    """Through FFmpeg's vflip, which turns the line size negative and copies nothing."""
    graph = Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25)
    )
    graph.link_nodes(source, graph.add("vflip"), graph.add("buffersink"))
    graph.configure()
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    graph.vpush(frame)
    return graph.vpull()


def test_rows_stored_from_the_bottom_up() -> None:
    frame = _upside_down(make_frame(37, 96, 72))
    assert frame.planes[0].line_size < 0
    info = _info(96, 72)
    planes = host_planes(info.format)
    PlaneWriter(info).write(frame, planes)
    np.testing.assert_array_equal(planes.luma, luma_picture(37, 96, 72)[::-1])
    cb, cr = chroma_pictures(96, 72)
    np.testing.assert_array_equal(planes.chroma[..., 0], cb[::2, ::2][::-1])
    np.testing.assert_array_equal(planes.chroma[..., 1], cr[::2, ::2][::-1])


@pytest.mark.parametrize("height", [1, 2, 3, 8, 9])
def test_pairs_of_422_chroma_rows_are_averaged(height: int) -> None:
    info = _info(6, height)
    frame = VideoFrame(6, height, "yuv422p")
    rows = np.random.default_rng(height).integers(0, 256, (3, height, 6), np.uint8)
    for plane, source in zip(frame.planes, rows, strict=True):
        target = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, -1)
        target[:, : plane.width] = source[:, : plane.width]
    planes = host_planes(info.format)
    PlaneWriter(info).write(frame, planes)
    np.testing.assert_array_equal(planes.luma, rows[0])
    for channel in (0, 1):
        source = rows[channel + 1, :, :3].astype(float)
        for row in range((height + 1) // 2):
            mean = source[2 * row : 2 * row + 2].mean(axis=0)
            assert np.abs(planes.chroma[row, :, channel] - mean).max() <= 0.5


def test_a_format_without_a_conversion_is_a_decode_error() -> None:
    info = _info(16, 16)
    with pytest.raises(DecodeError, match="cannot be converted"):
        PlaneWriter(info).write(VideoFrame(16, 16, "rgb96le"), host_planes(info.format))


@pytest.mark.parametrize(
    ("size", "into", "pixel_aspect", "fitted"),
    [
        ((1280, 720), (1920, 1080), 1, (1920, 1080)),
        ((720, 1280), (1920, 1080), 1, (608, 1080)),
        ((1440, 1080), (1920, 1080), Fraction(4, 3), (1920, 1080)),
        ((1920, 1080), (1440, 1080), Fraction(3, 4), (1440, 1080)),
        ((720, 576), (1920, 1080), Fraction(16, 15), (1440, 1080)),
        ((1920, 1079), (1920, 1080), 1, (1920, 1080)),
        ((4000, 2), (97, 71), 1, (97, 2)),
        ((2, 4000), (97, 71), 1, (2, 71)),
    ],
)
def test_a_picture_of_another_size_keeps_its_shape(
    size: tuple[int, int], into: tuple[int, int], pixel_aspect: Fraction, fitted: tuple[int, int]
) -> None:
    assert fitted_size(size, into, Fraction(pixel_aspect)) == fitted


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", [(40, 90), (90, 40), (51, 33)])
def test_bars_are_black(layout: PixelLayout, size: tuple[int, int]) -> None:
    info = _info(97, 71, layout)
    planes = host_planes(info.format)
    PlaneWriter(info).write(make_frame(3, *size), planes)
    black, _ = info.format.luma_range
    corner = planes.luma[0, 0], planes.luma[-1, -1]
    if size != (51, 33):
        assert corner == (black, black)
        assert np.all(planes.chroma[[0, -1], [0, -1]] == info.format.chroma_neutral)
    assert planes.luma[35, 48] > black
