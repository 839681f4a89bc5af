"""What NVDEC can decode, as far as it can be told without decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bgsoft.errors import BackendUnavailableError
from bgsoft.media.info import VideoInfo
from bgsoft.media.source import RAW_STREAMS

__all__ = ["NvCodec", "caps_reason", "nv_codec", "stream_reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvCodec:
    """How a codec is fed to NVDEC."""

    name: str
    """In PyNvVideoCodec's ``cudaVideoCodec``."""
    label: str
    filters: str
    """FFmpeg bitstream filters that make what the parser takes: Annex B with parameter sets before
    each key frame, so that decoding can start at any of them."""


_CODECS = {
    "h264": NvCodec(name="H264", label="H.264", filters="h264_mp4toannexb,dump_extra=freq=k"),
    "hevc": NvCodec(name="HEVC", label="HEVC", filters="hevc_mp4toannexb,dump_extra=freq=k"),
    "vp9": NvCodec(name="VP9", label="VP9", filters="null"),
    "av1": NvCodec(name="AV1", label="AV1", filters="null"),
}
_DEPTHS = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10}
"""Pixel formats whose samples arrive as the pipeline has them."""


def nv_codec(info: VideoInfo) -> NvCodec:
    """How the stream's codec is fed.

    Raises:
        BackendUnavailableError: It is none of those.
    """
    reason = stream_reason(info)
    if reason is not None:
        raise BackendUnavailableError(f"NVDEC: {reason}", stage="decode", path=info.path)
    return _CODECS[info.codec]


def stream_reason(info: VideoInfo) -> str | None:
    """Why a stream is left to the CPU, whatever the GPU; None where it is not."""
    if info.codec not in _CODECS:
        return f"{info.codec} is decoded on the CPU"
    if info.pixel_format not in _DEPTHS:
        return f"{info.pixel_format} is converted on the CPU"
    if info.interlaced:
        return "interlaced pictures are deinterlaced on the CPU"
    if info.coded_width % 2:
        # PyNvVideoCodec copies as many chroma bytes per row as luma: the last Cr would be missing.
        return f"an odd width ({info.coded_width}) is decoded on the CPU"
    if info.container in RAW_STREAMS or info.is_untimed:
        return f"timestamps that {info.container} lacks are made by the CPU decoder"
    return None


def caps_reason(caps: Mapping[str, int] | None, info: VideoInfo) -> str | None:
    """Why a GPU cannot decode a stream; None where it can, or will have to show that it can.

    Args:
        caps: Of :func:`bgsoft.cuda.video_codec.decoder_caps`, for the stream's codec and depth.
        info: The stream.
    """
    if caps is None:
        return None
    label = _CODECS[info.codec].label
    depth = _DEPTHS[info.pixel_format]
    if not caps.get("supported", 1):
        return f"this GPU does not decode {label} at {depth} bits"
    width, height = info.coded_width, info.coded_height
    size = f"{width}x{height}"
    if width > caps["width_max"] or height > caps["height_max"]:
        return f"{size} is more than {caps['width_max']}x{caps['height_max']}, its most for {label}"
    if width < caps["width_min"] or height < caps["height_min"]:
        least = f"{caps['width_min']}x{caps['height_min']}"
        return f"{size} is less than {least}, its least for {label}"
    if -(-width // 16) * -(-height // 16) > caps["mb_num_max"]:
        return f"{size} has more than {caps['mb_num_max']} macroblocks, its most for {label}"
    return None
