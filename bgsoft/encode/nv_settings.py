"""Settings of NVENC, as data that is checked without the hardware.

Option names are PyNvVideoCodec's (arguments of its ``CreateEncoder``). Values and ranges are those
of the Video Codec SDK, which FFmpeg documents for ``h264_nvenc``, ``hevc_nvenc`` and
``av1_nvenc``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import (
    EncoderChoice,
    checked_quality,
    choose_codec,
    codec_label,
    kept_chroma,
    source_depth,
)
from bgsoft.encode.hdr import sei_messages
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.frame import ColorInfo
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.settings.config import Codec, EncodeConfig

GOP = 250
"""Frames from one key frame to the next, as in x264 and x265."""
_LOOKAHEAD, _MIN_LOOKAHEAD = 20, 4
_LOOKAHEAD_PIXELS = 4096 * 2304
"""Largest picture with the full look-ahead: NVENC keeps each of its pictures in memory."""
_OPTIONS = {
    "tuning_info": "high_quality",
    "rc": "vbr",
    "gop": str(GOP),
    "idrperiod": str(GOP),
    "lookahead": str(_LOOKAHEAD),
    # Strength of spatial adaptive quantisation, 1–15; default of the SDK and FFmpeg.
    "aq": "8",
    "temporalaq": "1",
}
_OPTIONAL = (
    ("lookahead", "look-ahead", "support_lookahead"),
    ("temporalaq", "temporal AQ", "support_temporal_aq"),
)
"""(option, name, capability) of features that not all GPUs have."""
_B_FRAMES_WITH_REFERENCE = 3
"""PyNvVideoCodec makes the middle one of three B frames a reference, and only of three."""
_REFERENCE_MIDDLE = 2
"""Bit of ``support_bframe_ref_mode``: the middle B frame may be a reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NvencSpec:
    """Settings of one NVENC codec."""

    quality_max: int
    """Largest ``cq``; 0 would mean automatic."""
    quality_default: int
    b_frames: int = 3
    """Number of B frames in a row that is requested."""
    option: tuple[str, str] = ("repeatspspps", "1")
    """Option that starts each key frame with its headers, in no container."""


_SPECS = {
    Codec.H264: _NvencSpec(quality_max=51, quality_default=20),
    Codec.HEVC: _NvencSpec(quality_max=51, quality_default=22),
    # AV1 shows reordered frames by hidden ones, which leave NVENC in packets of their own.
    Codec.AV1: _NvencSpec(
        quality_max=63, quality_default=28, b_frames=0, option=("use_ivf_container", "0")
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencChoice(EncoderChoice):
    """An NVENC codec with all its settings; the kind is COLOR or MATTE."""

    b_frames: int
    tag_filter: str
    """FFmpeg bitstream filter that writes the colour description into key frames."""
    sei: tuple[tuple[dict[str, int], list[int]], ...] = ()
    """HDR10 metadata for each key frame, as PyNvVideoCodec takes it."""


def choose_nvenc(
    settings: EncodeConfig,
    container: Container,
    info: VideoInfo,
    kind: PictureKind = PictureKind.COLOR,
) -> NvencChoice:
    """Return NVENC's settings for a render.

    Raises:
        BackendUnavailableError: NVENC cannot encode this, whatever the GPU.
        ConfigError: A setting is out of NVENC's range.
        UnsupportedFormatError: The container cannot hold the requested codec.
    """
    picture = info.format
    codec = choose_codec(settings, container, picture, kind)
    matte = kind is PictureKind.MATTE
    hdr = not matte and bool(info.mastering_display or info.content_light)
    _check_codable(codec, info, kind, hdr=hdr)
    if kept_chroma(settings, container, info, kind):
        raise _unavailable(f"{info.sampling} is encoded on the CPU; NVENC codes 4:2:0 here")
    if settings.encoder_option:  # PyNvVideoCodec ignores unknown options
        raise _unavailable("--encoder-option applies to FFmpeg's encoders only")
    spec = _SPECS[codec]
    quality = spec.quality_default
    if settings.quality is not None:
        name = f"{codec_label(codec)} (NVENC)"
        quality = checked_quality(settings.quality, name, 1, spec.quality_max)
    depth = source_depth(picture, kind)
    return NvencChoice(
        codec=codec,
        encoder=f"{codec}_nvenc",
        kind=kind,
        pixel_format="NV12" if depth == 8 else "P010",
        bit_depth=depth,
        b_frames=spec.b_frames,
        options={
            "codec": str(codec),
            "preset": _preset(settings.speed),
            "cq": str(quality),
            # For rate control only; PyNvVideoCodec reads two decimals.
            "fps": f"{float(info.nominal_rate):.2f}",
            **_OPTIONS,
            spec.option[0]: spec.option[1],
        },
        tag_filter=tag_filter(
            codec,
            ColorInfo() if matte else picture.color,
            full_range=picture.color.full_range if picture.color.range_specified else None,
            aspect=(info.sample_aspect_ratio.numerator, info.sample_aspect_ratio.denominator),
        ),
        sei=sei_messages(info) if hdr else (),
    )


def _check_codable(codec: Codec, info: VideoInfo, kind: PictureKind, *, hdr: bool) -> None:
    """Raise BackendUnavailableError for anything that NVENC cannot encode, whatever the GPU."""
    picture = info.format
    if codec not in _SPECS:
        raise _unavailable(f"it does not encode {codec.upper()}")
    if kind is PictureKind.COLOR_ALPHA:
        raise _unavailable("it has no alpha channel here")
    if picture.width % 2 or picture.height % 2:
        raise _unavailable(f"{picture.width}x{picture.height} is odd; NVENC codes 4:2:0 only")
    if codec is Codec.AV1 and hdr:
        raise _unavailable("only the CPU encoder writes HDR10 metadata in AV1")
    if codec is Codec.AV1 and info.sample_aspect_ratio != 1:
        raise _unavailable("only the CPU encoder writes AV1 with pixels that are not square")


def _unavailable(reason: str) -> BackendUnavailableError:
    return BackendUnavailableError(f"NVENC: {reason}", stage="encode")


def _preset(asked: str | None) -> str:
    preset = (asked or "P4").upper()
    if re.fullmatch("P[1-7]", preset):
        return preset
    if re.fullmatch(r"P\d+", preset):
        raise ConfigError(f"--speed of NVENC must be P1 (fastest) to P7, not {asked!r}")
    raise _unavailable(f"--speed {asked} is a setting of the CPU encoder; NVENC has P1 to P7")


def fit_to_caps(
    choice: NvencChoice, caps: Mapping[str, int], width: int, height: int
) -> NvencChoice:
    """Drop features that this GPU's NVENC lacks from the settings.

    Raises:
        BackendUnavailableError: The picture's size or depth is not supported.
    """
    label = codec_label(choice.codec)
    least = (caps.get("width_min", 0), caps.get("height_min", 0))
    most = (caps.get("width_max", width), caps.get("height_max", height))
    if not (least[0] <= width <= most[0] and least[1] <= height <= most[1]):
        raise _unavailable(
            f"{width}x{height} is outside {least[0]}x{least[1]} to {most[0]}x{most[1]}, "
            f"its sizes for {label}"
        )
    if choice.bit_depth == 10 and not caps.get("support_10bit_encode", 0):
        raise _unavailable(f"this GPU does not encode {label} at 10 bits")
    options = dict(choice.options)
    missing: list[str] = []
    b_frames = min(choice.b_frames, caps.get("num_max_bframes", 0))
    reference = caps.get("support_bframe_ref_mode", 0) & _REFERENCE_MIDDLE
    if b_frames == _B_FRAMES_WITH_REFERENCE and not reference:
        b_frames -= 1
    if choice.b_frames and not b_frames:
        missing.append("B frames")
    options["bf"] = str(b_frames)
    for option, name, capability in _OPTIONAL:
        if not caps.get(capability, 0):
            del options[option]
            missing.append(name)
    if "lookahead" in options:
        depth = _LOOKAHEAD * _LOOKAHEAD_PIXELS // (width * height)
        options["lookahead"] = str(min(_LOOKAHEAD, max(_MIN_LOOKAHEAD, depth)))
    notices = choice.notices
    if missing:
        notices += (f"this GPU encodes {label} without {', '.join(missing)}",)
    return replace(choice, b_frames=b_frames, options=options, notices=notices)


_METADATA_FILTERS = {
    Codec.H264: "h264_metadata",
    Codec.HEVC: "hevc_metadata",
    Codec.AV1: "av1_metadata",
}
_AV1_CHROMA_POSITION = {1: "1", 3: "2"}
"""AVChromaLocation to AV1's chroma_sample_position (AV1 specification, 6.4.2)."""


def tag_filter(
    codec: Codec, color: ColorInfo, *, full_range: bool | None, aspect: tuple[int, int] = (1, 1)
) -> str:
    """Return FFmpeg's bitstream filter that writes the colour description into stream headers.

    PyNvVideoCodec itself can only name BT.601 and BT.709, and marks both as full range.

    Args:
        codec: H.264, HEVC or AV1.
        color: Colour description of the samples.
        full_range: None: unspecified.
        aspect: Pixel width and height; not for AV1.
    """
    values: dict[str, str] = {}
    av1 = codec is Codec.AV1
    if (color.primaries, color.transfer, color.matrix) != (2, 2, 2):
        values["color_primaries" if av1 else "colour_primaries"] = str(color.primaries)
        values["transfer_characteristics"] = str(color.transfer)
        values["matrix_coefficients"] = str(color.matrix)
    if full_range is not None:
        values["color_range" if av1 else "video_full_range_flag"] = str(int(full_range))
    if av1:
        if color.chroma_location in _AV1_CHROMA_POSITION:
            values["chroma_sample_position"] = _AV1_CHROMA_POSITION[color.chroma_location]
    else:
        if color.chroma_location:
            values["chroma_sample_loc_type"] = str(color.chroma_location - 1)
        if aspect != (1, 1):
            values["sample_aspect_ratio"] = f"{aspect[0]}/{aspect[1]}"
    if not values:
        return "null"
    return f"{_METADATA_FILTERS[codec]}=" + ":".join(
        f"{key}={value}" for key, value in values.items()
    )
