"""Encodes synthetic frames the way a render does, and reads the result back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import EncoderChoice, choose_encoder
from bgsoft.encode.cpu import CpuEncoder
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.writer import COPY_NOTHING, CopyOptions
from bgsoft.report import Event
from bgsoft.settings.config import EncodeConfig
from tests.fakes import host_planes
from tests.synthetic import Plane, chroma_pictures, luma_picture

LOSSLESS: dict[str, Any] = {"codec": "h264", "quality": 0, "speed": "ultrafast"}
"""Settings of 8-bit 4:2:0 without loss, in a fifth of FFV1's time."""


def video_info(format: FrameFormat, **changes: Any) -> VideoInfo:
    """A made-up source of 25 frames a second on a 90 kHz clock."""
    values: dict[str, Any] = {
        "path": Path("source.mkv"),
        "container": "matroska,webm",
        "stream_index": 0,
        "codec": "h264",
        "pixel_format": "yuv420p",
        "coded_width": format.width,
        "coded_height": format.height,
        "format": format,
        "time_base": Fraction(1, 90_000),
        "frame_rate": Fraction(25),
        "start_pts": 0,
        "duration_seconds": None,
        "num_frames_from_header": None,
    }
    return VideoInfo(**(values | changes))


def draw(planes: Planes, format: FrameFormat, index: int) -> None:
    """Write the picture of a frame number, and a ramp that moves with it as the matte."""
    shift = (format.bit_depth - 8) + format.shift
    cb, cr = chroma_pictures(format.width, format.height)
    planes.luma[:] = luma_picture(index, format.width, format.height).astype(format.dtype) << shift
    planes.chroma[..., 0] = cb[::2, ::2].astype(format.dtype) << shift
    planes.chroma[..., 1] = cr[::2, ::2].astype(format.dtype) << shift
    planes.alpha[:] = matte_picture(index, format)


def matte_picture(index: int, format: FrameFormat) -> Plane:
    """(H, W) uint8: 0 at the left, 255 at the right; the ramp between moves with the index."""
    ramp = np.linspace(-64, 320, format.width) + 4 * (index % 16)
    row = np.clip(ramp, 0, 255).astype(np.uint8)
    return np.broadcast_to(row, format.luma_shape)


def encode_frames(
    path: Path,
    info: VideoInfo,
    pts: Sequence[int],
    *,
    settings: EncodeConfig | None = None,
    kind: PictureKind = PictureKind.COLOR,
    choice: EncoderChoice | None = None,
    draw_frame: Callable[[Planes, FrameFormat, int], None] = draw,
    last_duration: int = 0,
    threads: int = 2,
    copied: CopyOptions = COPY_NOTHING,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> Muxer:
    """Encode one drawn frame for each timestamp, all through a single ring slot.

    The slot is overwritten as soon as ``encode`` returns, as the pipeline does.

    Returns:
        The finished muxer.
    """
    container = container_for(path)
    format = info.format
    if choice is None:
        choice = choose_encoder(settings or EncodeConfig(), container, info, kind, threads)
    with Muxer(path, container, info, copied, on_event=on_event) as muxer:
        encoder = CpuEncoder(muxer, choice)
        planes = host_planes(format)
        for index, value in enumerate(pts):
            draw_frame(planes, format, index)
            following = pts[index + 1] if index + 1 < len(pts) else value + last_duration
            encoder.encode(
                Frame(planes, format, index, value, info.time_base, duration=following - value)
            )
            for plane in (planes.luma, planes.chroma, planes.alpha):
                plane[:] = 0x5A
        assert encoder.frames == len(pts)
        encoder.finish()
        muxer.finish()
        encoder.close()
    return muxer


@dataclass(frozen=True)
class Decoded:
    seconds: Fraction
    planes: list[Plane]
    """Coded planes: luma, Cb, Cr, perhaps alpha."""
    bits: int
    frame: VideoFrame


def read_back(path: Path, count: int | None = None) -> list[Decoded]:
    """Return the frames of a file's video, or the first ``count``, VP9's alpha included."""
    with av.open(str(path), mode="r") as container:
        stream = container.streams.video[0]
        decoder = stream.codec_context
        if stream.codec.canonical_name == "vp9":
            # FFmpeg's own VP9 decoder leaves the alpha channel out.
            decoder = av.CodecContext.create("libvpx-vp9", "r")
        tick = stream.time_base
        assert tick is not None
        result = []
        for packet in container.demux(stream):
            for frame in decoder.decode(packet if packet.size else None):
                assert isinstance(frame, VideoFrame)
                assert frame.pts is not None
                planes = [np.array(view) for view in _views(frame)]
                bits = frame.format.components[0].bits
                result.append(Decoded(frame.pts * tick, planes, bits, frame))
                if len(result) == count:
                    return result
        return result


def _views(frame: VideoFrame) -> Iterator[Plane]:
    dtype = np.uint8 if frame.format.components[0].bits <= 8 else np.uint16
    for plane in frame.planes:
        rows = np.frombuffer(memoryview(plane), dtype).reshape(plane.height, -1)
        yield rows[:, : plane.width]


def psnr(a: Plane, b: Plane, bits: int) -> float:
    """Peak signal-to-noise ratio of two planes, dB; 99 where they are equal."""
    error = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    return 99.0 if error == 0 else 10 * float(np.log10(((1 << bits) - 1) ** 2 / error))
