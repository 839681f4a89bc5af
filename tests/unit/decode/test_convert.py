"""Copying of decoded frames into slots, in cases that no clip has."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from av.filter import Graph
from av.video.frame import VideoFrame

from bgsoft.decode.convert import PlaneWriter, fitted_size
from bgsoft.errors import DecodeError
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.media.info import Orientation, VideoInfo
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
    with pytest.raises(DecodeError, match="cannot convert pixel format"):
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


def _filled(frame: VideoFrame) -> list[np.ndarray]:
    """Noise in every plane; returns the chroma."""
    bits = frame.format.components[0].bits
    rng = np.random.default_rng(frame.width)
    chroma = []
    for plane in frame.planes:
        rows = np.frombuffer(memoryview(plane), np.uint8 if bits == 8 else np.uint16)
        rows[:] = rng.integers(0, 1 << bits, rows.size)
        chroma.append(rows.reshape(plane.height, -1)[:, : plane.width])
    return chroma[1:3]


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("size", [(64, 48), (5, 7), (1, 1)])
@pytest.mark.parametrize(
    ("pixels", "sampling", "turned"),
    [
        ("yuv422p", "4:2:2", "4:4:0"),
        ("yuv440p", "4:4:0", "4:2:2"),
        ("yuv444p10le", "4:4:4", "4:4:4"),
        ("yuva422p10le", "4:2:2", "4:4:0"),
        ("yuvj444p", "4:4:4", "4:4:4"),
    ],
)
def test_chroma_that_is_finer_goes_along_as_it_is(
    pixels: str, sampling: str, turned: str, size: tuple[int, int], turn: int
) -> None:
    aside = turn in (90, 270)
    layout = PixelLayout.P010 if "10" in pixels else PixelLayout.NV12
    width, height = size[::-1] if aside else size
    info = video_info(
        FrameFormat(
            width=width,
            height=height,
            layout=layout,
            color=ColorInfo(full_range=pixels.startswith("yuvj")),
        ),
        pixel_format=pixels,
        sampling=turned if aside else sampling,
        coded_width=size[0],
        coded_height=size[1],
        orientation=Orientation(rotation=turn),
    )
    frame = VideoFrame(*size, pixels)
    chroma = _filled(frame)
    planes, writer = host_planes(info.format), PlaneWriter(info)
    writer.write(frame, planes)
    original = writer.original(frame, planes)
    for channel, plane in enumerate(chroma):
        np.testing.assert_array_equal(original.fine[..., channel], np.rot90(plane, -turn // 90))
    np.testing.assert_array_equal(original.chroma, planes.chroma)
    planes.chroma[:] = 0
    assert original.chroma.any(), "a copy"


@pytest.mark.parametrize("pixels", ["uyvy422", "yuv422p12le", "gray"])
def test_other_formats_are_converted_to_the_finer_one(pixels: str) -> None:
    layout = PixelLayout.P010 if "12" in pixels else PixelLayout.NV12
    format = FrameFormat(width=96, height=72, layout=layout)
    info = video_info(format, pixel_format=pixels, sampling="4:2:2")
    planes, writer = host_planes(format), PlaneWriter(info)
    frame = make_frame(37, 96, 72, "yuv422p" if pixels == "uyvy422" else pixels)
    frame = frame.reformat(format=pixels)
    writer.write(frame, planes)
    fine = writer.original(frame, planes).fine
    assert fine.shape == (72, 48, 2)
    unit = 4 if layout is PixelLayout.P010 else 1
    for channel, picture in enumerate(chroma_pictures(96, 72)):
        wanted = np.full_like(picture, 128) if pixels == "gray" else picture
        np.testing.assert_array_equal(fine[..., channel], unit * wanted[:, ::2].astype(int))


@pytest.mark.parametrize("sampling", ["4:2:2", "4:4:4"])
def test_finer_chroma_lies_between_the_bars_too(sampling: str) -> None:
    info = _info(97, 71)
    info = replace(info, sampling=sampling)
    planes, writer = host_planes(info.format), PlaneWriter(info)
    frame = make_frame(3, 40, 70, f"yuv{sampling.replace(':', '')}p")
    writer.write(frame, planes)
    fine = writer.original(frame, planes).fine
    across = 1 if sampling == "4:4:4" else 2
    assert fine.shape == (71, -(-97 // across), 2)
    assert (fine[:, : 26 // across] == 128).all()
    assert (fine[:, -26 // across :] == 128).all()
    coarse = planes.chroma.repeat(2, 0)[:71].repeat(2 // across, 1)[:, : fine.shape[1]]
    assert np.abs(coarse.astype(int) - fine).mean() < 2
