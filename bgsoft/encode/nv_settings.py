"""How NVENC is set up: all of it as data, checked without the hardware.

Option names are PyNvVideoCodec's (its ``CreateEncoder`` takes them as text); values and ranges are
those of the Video Codec SDK, the same that FFmpeg documents for ``h264_nvenc``, ``hevc_nvenc`` and
``av1_nvenc``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import checked_quality, choose_codec, codec_label, source_depth
from bgsoft.encode.hdr import sei_messages
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.frame import ColorInfo
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.settings.config import Codec, EncodeConfig

GOP = 250
"""Frames from one key frame to the next, as x264 and x265 have it."""
_LOOKAHEAD = 20
_LOOKAHEAD_PIXELS = 4096 * 2304
"""Picture size up to which the look-ahead is whole: NVENC holds each picture of it in memory."""
_LEAST_LOOKAHEAD = 4
_AQ_STRENGTH = 8
"""Strength of spatial adaptive quantisation, 1–15; the SDK's and FFmpeg's middle."""
_B_FRAMES_WITH_REFERENCE = 3
"""PyNvVideoCodec makes the middle one of three a reference, and only of three."""
_B_FRAMES = 2
_PRESETS = tuple(f"P{number}" for number in range(1, 8))
_DEFAULT_PRESET = "P4"
_REFERENCE_MIDDLE = 2
"""Bit of ``support_bframe_ref_mode``: the middle B frame may be a reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NvencSpec:
    """One codec of NVENC's."""

    quality_max: int
    """Largest ``cq``; 0 would mean automatic."""
    quality_default: int
    b_frames: int
    """Most B frames in a row that are asked for."""


_SPECS = {
    Codec.H264: _NvencSpec(quality_max=51, quality_default=20, b_frames=3),
    Codec.HEVC: _NvencSpec(quality_max=51, quality_default=22, b_frames=3),
    # AV1 shows reordered frames by hidden ones, which leave NVENC in packets of their own.
    Codec.AV1: _NvencSpec(quality_max=63, quality_default=28, b_frames=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencChoice:
    """NVENC's codec and all its settings."""

    codec: Codec
    """PyNvVideoCodec and FFmpeg call it the same."""
    kind: PictureKind
    """Which planes are encoded: COLOR or MATTE."""
    bit_depth: int
    """Of the coded samples: 8 or 10."""
    b_frames: int
    options: dict[str, str] = field(default_factory=dict)
    """For ``CreateEncoder``, without what belongs to the device."""
    tag_filter: str = "null"
    """FFmpeg bitstream filter that writes the colour description into key frames."""
    sei: tuple[tuple[dict[str, int], list[int]], ...] = ()
    """HDR10 metadata for each key frame, as PyNvVideoCodec takes it."""
    notices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return codec_label(self.codec)

    @property
    def surface_format(self) -> str:
        """PyNvVideoCodec's name of the input format."""
        return "NV12" if self.bit_depth == 8 else "P010"


def choose_nvenc(
    settings: EncodeConfig,
    container: Container,
    info: VideoInfo,
    kind: PictureKind = PictureKind.COLOR,
) -> NvencChoice:
    """NVENC's settings for a render.

    Raises:
        BackendUnavailableError: NVENC has no way to encode this, whatever the GPU.
        ConfigError: A setting is out of NVENC's range.
        UnsupportedFormatError: The container cannot hold the codec asked for.
    """
    picture = info.format
    codec = choose_codec(settings, container, picture, kind)
    if codec not in _SPECS:
        raise _unavailable(f"it does not encode {codec.upper()}")
    if kind is PictureKind.COLOR_ALPHA:
        raise _unavailable("it has no alpha channel here")
    if picture.width % 2 or picture.height % 2:
        raise _unavailable(f"{picture.width}x{picture.height} is odd; it codes 4:2:0 only")
    spec = _SPECS[codec]
    hdr = kind is not PictureKind.MATTE and bool(info.mastering_display or info.content_light)
    if codec is Codec.AV1:
        if hdr:
            raise _unavailable("HDR10 metadata in AV1 is written by the CPU encoder")
        if info.sample_aspect_ratio != 1:
            raise _unavailable("AV1 with pixels that are not square is left to the CPU encoder")
    color = ColorInfo() if kind is PictureKind.MATTE else picture.color
    quality = spec.quality_default
    if settings.quality is not None:
        name = f"{codec_label(codec)} (NVENC)"
        quality = checked_quality(settings.quality, name, 1, spec.quality_max)
    options = {
        "codec": str(codec),
        "preset": _preset(settings.speed),
        "tuning_info": "high_quality",
        "rc": "vbr",
        "cq": str(quality),
        "gop": str(GOP),
        "idrperiod": str(GOP),
        "lookahead": str(_LOOKAHEAD),
        "aq": str(_AQ_STRENGTH),
        "temporalaq": "1",
        # For rate control only; two decimals are what PyNvVideoCodec reads.
        "fps": f"{float(info.nominal_rate):.2f}",
    }
    if codec is Codec.AV1:
        options["use_ivf_container"] = "0"
    else:
        options["repeatspspps"] = "1"
    return NvencChoice(
        codec=codec,
        kind=kind,
        bit_depth=source_depth(picture, kind),
        b_frames=spec.b_frames,
        options=options,
        tag_filter=tag_filter(
            codec,
            color,
            full_range=picture.color.full_range if picture.color.range_specified else None,
            aspect=(info.sample_aspect_ratio.numerator, info.sample_aspect_ratio.denominator),
        ),
        sei=sei_messages(info) if hdr else (),
    )


def _unavailable(reason: str) -> BackendUnavailableError:
    return BackendUnavailableError(f"NVENC: {reason}", stage="encode")


def _preset(asked: str | None) -> str:
    if asked is None:
        return _DEFAULT_PRESET
    if asked.upper() in _PRESETS:
        return asked.upper()
    if re.fullmatch(r"[pP]\d+", asked):
        raise ConfigError(f"--speed of NVENC must be P1 (fastest) to P7, not {asked!r}")
    raise _unavailable(f"--speed {asked} belongs to the CPU encoder; NVENC has P1 to P7")


def fit_to_caps(
    choice: NvencChoice, caps: Mapping[str, int], width: int, height: int
) -> NvencChoice:
    """The settings without what this GPU's NVENC lacks.

    Raises:
        BackendUnavailableError: The picture's size or depth is beyond it.
    """
    size = f"{width}x{height}"
    if not caps.get("width_min", 0) <= width <= caps.get("width_max", width) or not (
        caps.get("height_min", 0) <= height <= caps.get("height_max", height)
    ):
        raise _unavailable(
            f"{size} is outside {caps.get('width_min', 0)}x{caps.get('height_min', 0)} to "
            f"{caps.get('width_max')}x{caps.get('height_max')}, its sizes for {choice.label}"
        )
    if choice.bit_depth == 10 and not caps.get("support_10bit_encode", 0):
        raise _unavailable(f"this GPU does not encode {choice.label} at 10 bits")
    options = dict(choice.options)
    missing: list[str] = []
    b_frames = min(choice.b_frames, caps.get("num_max_bframes", 0))
    if b_frames == _B_FRAMES_WITH_REFERENCE and not (
        caps.get("support_bframe_ref_mode", 0) & _REFERENCE_MIDDLE
    ):
        b_frames = _B_FRAMES
    if choice.b_frames and not b_frames:
        missing.append("B frames")
    options["bf"] = str(b_frames)
    for option, name, capability in (
        ("lookahead", "look-ahead", "support_lookahead"),
        ("temporalaq", "temporal AQ", "support_temporal_aq"),
    ):
        if not caps.get(capability, 0):
            del options[option]
            missing.append(name)
    if "lookahead" in options:
        depth = _LOOKAHEAD * _LOOKAHEAD_PIXELS // (width * height)
        options["lookahead"] = str(min(_LOOKAHEAD, max(_LEAST_LOOKAHEAD, depth)))
    notices = list(choice.notices)
    if missing:
        notices.append(f"this GPU encodes {choice.label} without {', '.join(missing)}")
    return replace(choice, b_frames=b_frames, options=options, notices=tuple(notices))


_METADATA_FILTERS = {Codec.H264: "h264_metadata", Codec.HEVC: "hevc_metadata"}
_AV1_CHROMA_POSITION = {1: 1, 3: 2}
"""AVChromaLocation to AV1's chroma_sample_position (AV1 specification, 6.4.2)."""


def tag_filter(
    codec: Codec, color: ColorInfo, *, full_range: bool | None, aspect: tuple[int, int] = (1, 1)
) -> str:
    """FFmpeg's bitstream filter that writes the colour description into a stream's headers.

    PyNvVideoCodec itself can name BT.601 and BT.709 only, and says full range with both.

    Args:
        codec: H.264, HEVC or AV1.
        color: What the samples mean.
        full_range: None where it is not said.
        aspect: Pixel width and height; not for AV1.
    """
    values: dict[str, str] = {}
    av1 = codec is Codec.AV1
    described = (color.primaries, color.transfer, color.matrix) != (2, 2, 2)
    if described:
        values["color_primaries" if av1 else "colour_primaries"] = str(color.primaries)
        values["transfer_characteristics"] = str(color.transfer)
        values["matrix_coefficients"] = str(color.matrix)
    if full_range is not None:
        values["color_range" if av1 else "video_full_range_flag"] = str(int(full_range))
    if av1:
        if color.chroma_location in _AV1_CHROMA_POSITION:
            position = _AV1_CHROMA_POSITION[color.chroma_location]
            values["chroma_sample_position"] = str(position)
    else:
        if color.chroma_location:
            values["chroma_sample_loc_type"] = str(color.chroma_location - 1)
        if aspect != (1, 1):
            values["sample_aspect_ratio"] = f"{aspect[0]}/{aspect[1]}"
    if not values:
        return "null"
    name = "av1_metadata" if av1 else _METADATA_FILTERS[codec]
    return f"{name}=" + ":".join(f"{key}={value}" for key, value in values.items())
