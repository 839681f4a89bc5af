"""HDR10 static metadata in each encoder's own notation."""

from __future__ import annotations

from fractions import Fraction

from bgsoft.config import Codec
from bgsoft.frame import MasteringDisplay
from bgsoft.media.info import VideoInfo

__all__ = ["hdr_parameters"]

# SMPTE ST 2086 as coded in H.264 and H.265 (ITU-T H.265, D.3.28): chromaticities in units of
# 0.00002, luminances in units of 0.0001 cd/m².
_CHROMATICITY_UNITS = 50_000
_LUMINANCE_UNITS = 10_000


def hdr_parameters(codec: Codec, info: VideoInfo) -> str:
    """``key=value:…`` for the encoder's parameter option; "" where there is nothing to say.

    Args:
        codec: H.264, HEVC or AV1; others carry none.
        info: Where the metadata comes from.
    """
    parts: list[str] = []
    display, light = info.mastering_display, info.content_light
    if codec is Codec.HEVC:
        if display:
            parts.append(f"master-display={_coded(display)}")
        if light:
            parts.append(f"max-cll={light.max_content},{light.max_frame_average}")
    elif codec is Codec.H264:
        if display:
            parts.append(f"mastering-display={_coded(display)}")
        if light:
            parts.append(f"cll={light.max_content},{light.max_frame_average}")
    elif codec is Codec.AV1:
        if display:
            parts.append(f"mastering-display={_plain(display)}")
        if light:
            parts.append(f"content-light={light.max_content},{light.max_frame_average}")
    return ":".join(parts)


def _coded(display: MasteringDisplay) -> str:
    """x264's and x265's notation: integers in the units of the bit stream."""

    def point(xy: tuple[Fraction, Fraction]) -> str:
        return ",".join(str(round(value * _CHROMATICITY_UNITS)) for value in xy)

    high = round(display.max_luminance * _LUMINANCE_UNITS)
    low = round(display.min_luminance * _LUMINANCE_UNITS)
    return (
        f"G({point(display.green)})B({point(display.blue)})R({point(display.red)})"
        f"WP({point(display.white)})L({high},{low})"
    )


def _plain(display: MasteringDisplay) -> str:
    """SVT-AV1's notation: decimal fractions and cd/m²."""

    def point(xy: tuple[Fraction, Fraction]) -> str:
        return ",".join(f"{float(value):.5f}" for value in xy)

    return (
        f"G({point(display.green)})B({point(display.blue)})R({point(display.red)})"
        f"WP({point(display.white)})"
        f"L({float(display.max_luminance):.4f},{float(display.min_luminance):.4f})"
    )
