"""HDR10 static metadata in each encoder's own notation."""

from __future__ import annotations

import struct
from fractions import Fraction

from bgsoft.encode.base import PictureKind
from bgsoft.frame import MasteringDisplay
from bgsoft.media.info import VideoInfo
from bgsoft.settings.config import Codec

# SMPTE ST 2086 as coded in H.264 and H.265 (ITU-T H.265, D.3.28): chromaticities in units of
# 0.00002, luminances in units of 0.0001 cd/m².
_CHROMATICITY_UNITS = 50_000
_LUMINANCE_UNITS = 10_000
_SEI_MASTERING_DISPLAY = 137
_SEI_CONTENT_LIGHT = 144

_KEYS = {
    Codec.HEVC: ("master-display", "max-cll"),
    Codec.H264: ("mastering-display", "cll"),
    Codec.AV1: ("mastering-display", "content-light"),
}
"""Names of the two parameters in x265, x264 and SVT-AV1."""
HDR_CODECS = frozenset(_KEYS)


def hdr_parameters(codec: Codec, info: VideoInfo) -> str:
    """Return ``key=value:…`` for the encoder's parameter option; empty without metadata."""
    if codec not in _KEYS:
        return ""
    parts: list[str] = []
    display_key, light_key = _KEYS[codec]
    display, light = info.mastering_display, info.content_light
    if display:
        points, levels = _numbers(display)
        if codec is Codec.AV1:  # decimal fractions and cd/m²
            texts = [f"{float(value):.5f}" for value in points]
            limits = [f"{float(value):.4f}" for value in levels]
        else:
            texts = [str(round(value * _CHROMATICITY_UNITS)) for value in points]
            limits = [str(round(value * _LUMINANCE_UNITS)) for value in levels]
        named = zip(("G", "B", "R", "WP"), texts[::2], texts[1::2], strict=True)
        colors = "".join(f"{name}({x},{y})" for name, x, y in named)
        parts.append(f"{display_key}={colors}L({','.join(limits)})")
    if light:
        parts.append(f"{light_key}={light.max_content},{light.max_frame_average}")
    return ":".join(parts)


def hdr_notices(label: str, info: VideoInfo, kind: PictureKind) -> list[str]:
    """Return the notice that an output, which has no place for the metadata here, lacks them."""
    if kind is PictureKind.MATTE or not (info.mastering_display or info.content_light):
        return []
    return [f"{label} is written without HDR10's mastering display and content light"]


def sei_messages(info: VideoInfo) -> tuple[tuple[dict[str, int], list[int]], ...]:
    """Return HDR10 metadata as SEI payloads (ITU-T H.265, D.2.28 and D.2.35; as in H.264).

    Returns:
        (type, bytes) of each message, as PyNvVideoCodec takes it.
    """
    payloads: dict[int, bytes] = {}
    if info.mastering_display is not None:
        points, levels = _numbers(info.mastering_display)
        coded = [round(value * _CHROMATICITY_UNITS) for value in points]
        limits = [round(value * _LUMINANCE_UNITS) for value in levels]
        payloads[_SEI_MASTERING_DISPLAY] = struct.pack(">8H2I", *coded, *limits)
    light = info.content_light
    if light is not None:
        levels_cd = (light.max_content, light.max_frame_average)
        payloads[_SEI_CONTENT_LIGHT] = struct.pack(">2H", *levels_cd)
    return tuple(({"sei_type": kind}, list(payload)) for kind, payload in payloads.items())


def _numbers(display: MasteringDisplay) -> tuple[list[Fraction], list[Fraction]]:
    """Return eight chromaticities, green first, and the highest and the lowest luminance."""
    points = (display.green, display.blue, display.red, display.white)
    return (
        [value for point in points for value in point],
        [display.max_luminance, display.min_luminance],
    )
