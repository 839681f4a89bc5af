"""Which streams NVDEC can decode, as far as can be said without decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bgsoft.errors import BackendUnavailableError
from bgsoft.media.info import VideoInfo
from bgsoft.media.source import RAW_STREAMS


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
        BackendUnavailableError: The stream is left to the CPU, whatever the GPU.
    """
    codec = _CODECS.get(info.codec)
    if codec is None:
        reason = f"{info.codec} is decoded on the CPU"
    elif info.pixel_format not in _DEPTHS:
        reason = f"{info.pixel_format} is converted on the CPU"
    elif info.interlaced:
        reason = "interlaced pictures are deinterlaced on the CPU"
    elif info.coded_width % 2:
        # PyNvVideoCodec copies as many chroma bytes per row as luma: the last Cr would be missing.
        reason = f"an odd width ({info.coded_width}) is decoded on the CPU"
    elif info.container in RAW_STREAMS or info.is_untimed:
        reason = f"timestamps that {info.container} lacks are made by the CPU decoder"
    else:
        return codec
    raise BackendUnavailableError(f"NVDEC: {reason}", stage="decode", path=info.path)


def caps_reason(caps: Mapping[str, int] | None, info: VideoInfo) -> str | None:
    """Why a GPU cannot decode a stream; None where it can, or will have to show that it can."""
    if caps is None:
        return None
    label = _CODECS[info.codec].label
    depth = _DEPTHS[info.pixel_format]
    if not caps.get("supported", 1):
        return f"this GPU does not decode {label} at {depth} bits"
    width, height = info.coded_width, info.coded_height
    size = f"{width}x{height}"
    most, least = (f"{caps[f'width_{end}']}x{caps[f'height_{end}']}" for end in ("max", "min"))
    if width > caps["width_max"] or height > caps["height_max"]:
        return f"{size} is more than {most}, its most for {label}"
    if width < caps["width_min"] or height < caps["height_min"]:
        return f"{size} is less than {least}, its least for {label}"
    if -(-width // 16) * -(-height // 16) > caps["mb_num_max"]:
        return f"{size} has more than {caps['mb_num_max']} macroblocks, its most for {label}"
    return None
