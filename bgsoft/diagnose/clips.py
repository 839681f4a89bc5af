"""Synthesised clips for the checks: a figure that moves in front of a textured wall."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from bgsoft.frame import ColorInfo, Frame, FrameFormat, PixelLayout
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.rendering.host import host_planes

Picture = NDArray[np.uint8]

TIME_BASE = Fraction(1, 90_000)
_FRAME_TICKS = 3600
"""25 frames a second on a 90 kHz clock."""
_BT709 = 1
_LIMITED = 1
"""FFmpeg's AVColorRange."""
_SKIN, _HAIR, _SHIRT = (225, 175, 150), (70, 45, 35), (60, 80, 150)
_PERIOD = 50
"""Frames for one swing of the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSpec:
    """Properties of one clip."""

    name: str
    """File name; the suffix chooses the container."""
    encoder: str = "libx264"
    pixel_format: str = "yuv420p"
    width: int = 640
    height: int = 360
    frames: int = 50
    variable_rate: bool = False
    """Whether frames are shown for 20 to 100 ms."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the encoder."""

    @property
    def pts(self) -> list[int]:
        """Pts of every frame in :data:`TIME_BASE` units; whole milliseconds."""
        if not self.variable_rate:
            return [_FRAME_TICKS * index for index in range(self.frames)]
        steps = [_FRAME_TICKS // 2, _FRAME_TICKS, _FRAME_TICKS * 5 // 2]
        pts = [0]
        while len(pts) < self.frames:
            pts.append(pts[-1] + steps[len(pts) % len(steps)])
        return pts


_X264 = {"preset": "ultrafast", "crf": "16", "threads": "1"}
_X265 = {"preset": "ultrafast", "crf": "18", "x265-params": "log-level=none:pools=1"}
CLIPS = (
    ClipSpec(name="h264.mp4", options=_X264),
    ClipSpec(
        name="h264-bframes-vfr.mp4",
        options={"preset": "veryfast", "crf": "16", "threads": "1", "bf": "3", "g": "20"},
        variable_rate=True,
    ),
    ClipSpec(name="hevc.mp4", encoder="libx265", options=_X265),
    ClipSpec(name="hevc10.mp4", encoder="libx265", pixel_format="yuv420p10le", options=_X265),
    ClipSpec(
        name="vp9.webm",
        encoder="libvpx-vp9",
        options={"deadline": "realtime", "cpu-used": "8", "crf": "24", "b": "0", "threads": "1"},
    ),
    ClipSpec(
        name="av1.mp4",
        encoder="libsvtav1",
        options={"preset": "12", "crf": "24", "svtav1-params": "lp=1"},
    ),
)
"""A clip for each kind of stream that NVDEC decodes."""


@functools.lru_cache(maxsize=4)
def _wall(width: int, height: int) -> Picture:
    """Draw a wall, (H, W, 3) RGB: a gradient, shelves and some fixed grain."""
    rng = np.random.default_rng(5)
    coarse = rng.integers(60, 200, (6, 10, 3)).astype(np.uint8)
    wall = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    for shelf in range(1, 5):  # straight edges show where a blur begins
        y = height * shelf // 5
        cv2.line(wall, (0, y), (width, y), (40, 40, 50), max(1, height // 120))
    grain = rng.normal(0, 4, wall.shape)
    grained: Picture = np.clip(wall + grain, 0, 255).astype(np.uint8)
    return grained


def draw_picture(index: int, width: int, height: int) -> Picture:
    """Draw (H, W, 3) RGB: head and shoulders that swing slowly, different for every index."""
    picture = _wall(width, height).copy()
    swing = np.sin(2 * np.pi * index / _PERIOD) + index / 400

    def at(x: float, y: float) -> tuple[int, int]:
        return round(width * 0.5 + height * (x + 0.1 * swing)), round(height * y)

    def ellipse(x: float, y: float, rx: float, ry: float, color: tuple[int, int, int]) -> None:
        axes = (round(height * rx), round(height * ry))
        cv2.ellipse(picture, at(x, y), axes, 0, 0, 360, color, -1, cv2.LINE_AA)

    ellipse(0, 1.12, 0.46, 0.42, _SHIRT)
    ellipse(0, 0.70, 0.085, 0.16, (205, 155, 130))
    ellipse(0, 0.40, 0.185, 0.24, _HAIR)
    ellipse(0, 0.46, 0.15, 0.21, _SKIN)
    for side in (-1, 1):
        ellipse(side * 0.06, 0.43, 0.026, 0.014, (250, 250, 250))
        ellipse(side * 0.06, 0.43, 0.012, 0.013, (40, 30, 30))
        ellipse(side * 0.06, 0.395, 0.034, 0.007, _HAIR)
    ellipse(0, 0.50, 0.018, 0.03, (205, 150, 125))
    ellipse(0, 0.575, 0.05, 0.014, (170, 80, 80))
    return picture


def _video_frame(index: int, width: int, height: int, pixel_format: str) -> VideoFrame:
    rgb = VideoFrame.from_ndarray(draw_picture(index, width, height), format="rgb24")
    return rgb.reformat(
        format=pixel_format, src_color_range=2, dst_color_range=_LIMITED, dst_colorspace="ITU709"
    )


def write_clip(folder: Path, spec: ClipSpec) -> Path:
    """Encode a clip into a folder, unless it exists; raises PyAV's errors."""
    path = folder / spec.name
    if path.exists():
        return path
    partial = path.with_name(f"partial-{path.name}")
    with av.open(str(partial), "w") as output:
        stream = output.add_stream(spec.encoder, rate=25, options=dict(spec.options))
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = spec.width, spec.height, spec.pixel_format
        stream.time_base = stream.codec_context.time_base = TIME_BASE
        context = stream.codec_context
        context.color_range = _LIMITED
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        times = [*spec.pts, spec.pts[-1] + _FRAME_TICKS]
        for index, (begin, end) in enumerate(pairwise(times)):
            frame = _video_frame(index, spec.width, spec.height, spec.pixel_format)
            frame.pts, frame.time_base, frame.duration = begin, TIME_BASE, end - begin
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return partial.rename(path)


def draw_frame(
    index: int, width: int, height: int, layout: PixelLayout = PixelLayout.NV12
) -> Frame:
    """Draw a picture as a frame on the host; width and height must be even."""
    format = FrameFormat(
        width=width,
        height=height,
        layout=layout,
        color=ColorInfo(primaries=1, transfer=1, matrix=1, range_specified=True),
    )
    source = _video_frame(index, width, height, "yuv420p" if format.shift == 0 else "yuv420p10le")
    planes = host_planes(format, 0)
    targets = (planes.luma, planes.chroma[..., 0], planes.chroma[..., 1])
    for plane, target in zip(source.planes, targets, strict=True):
        rows = np.frombuffer(memoryview(plane), format.dtype).reshape(plane.height, -1)
        np.left_shift(rows[:, : plane.width], format.shift, out=target)
    return Frame(
        planes=planes,
        format=format,
        index=index,
        pts=_FRAME_TICKS * index,
        time_base=TIME_BASE,
        duration=_FRAME_TICKS,
    )


def stream_info(format: FrameFormat) -> VideoInfo:
    """Return the description of a file of such frames, for encoders without an input file."""
    return VideoInfo(
        path=Path("selftest.mkv"),
        container="matroska,webm",
        stream_index=0,
        codec="h264",
        pixel_format="yuv420p" if format.bit_depth == 8 else "yuv420p10le",
        coded_width=format.width,
        coded_height=format.height,
        format=format,
        time_base=TIME_BASE,
        frame_rate=Fraction(25),
        start_pts=0,
        duration_seconds=None,
        num_frames_from_header=None,
    )
