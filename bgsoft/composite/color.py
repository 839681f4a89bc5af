"""Conversion of colours and RGB pictures to a frame's samples.

RGB is sRGB. Wide-gamut and HDR frames get the same colour, not the same numbers: their primaries
and transfer are applied, and white becomes HDR reference white (ITU-R BT.2408).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import ConfigError
from bgsoft.frame import UNSPECIFIED, ColorInfo, FrameFormat
from bgsoft.suggestions import did_you_mean

Floats = NDArray[np.float32]
Samples = NDArray[Any]
"""A plane of frame samples, uint8 or uint16."""

DEFAULT_COLOR = "chroma-green"
"""Colour of ``--effect color`` where none is given: it can be keyed out afterwards."""

# CSS Color Module Level 4, the most common names, and two of chroma keying.
_NAMES = {
    "aqua": 0x00FFFF, "beige": 0xF5F5DC, "black": 0x000000, "blue": 0x0000FF, "brown": 0xA52A2A,
    "coral": 0xFF7F50, "crimson": 0xDC143C, "cyan": 0x00FFFF, "darkblue": 0x00008B,
    "darkgray": 0xA9A9A9, "darkgreen": 0x006400, "darkgrey": 0xA9A9A9, "darkred": 0x8B0000,
    "darkslategray": 0x2F4F4F, "dimgray": 0x696969, "dimgrey": 0x696969, "fuchsia": 0xFF00FF,
    "gold": 0xFFD700, "gray": 0x808080, "green": 0x008000, "grey": 0x808080, "indigo": 0x4B0082,
    "ivory": 0xFFFFF0, "khaki": 0xF0E68C, "lavender": 0xE6E6FA, "lightblue": 0xADD8E6,
    "lightgray": 0xD3D3D3, "lightgreen": 0x90EE90, "lightgrey": 0xD3D3D3, "lime": 0x00FF00,
    "magenta": 0xFF00FF, "maroon": 0x800000, "midnightblue": 0x191970, "navy": 0x000080,
    "olive": 0x808000, "orange": 0xFFA500, "pink": 0xFFC0CB, "plum": 0xDDA0DD, "purple": 0x800080,
    "rebeccapurple": 0x663399, "red": 0xFF0000, "royalblue": 0x4169E1, "salmon": 0xFA8072,
    "silver": 0xC0C0C0, "skyblue": 0x87CEEB, "slategray": 0x708090, "slategrey": 0x708090,
    "steelblue": 0x4682B4, "tan": 0xD2B48C, "teal": 0x008080, "tomato": 0xFF6347,
    "turquoise": 0x40E0D0, "violet": 0xEE82EE, "wheat": 0xF5DEB3, "white": 0xFFFFFF,
    "whitesmoke": 0xF5F5F5, "yellow": 0xFFFF00,
    "chroma-green": 0x00B140, "chroma-blue": 0x0047BB,
}  # fmt: skip

_PRIMARIES_BT2020 = 9
_TRANSFER_PQ, _TRANSFER_HLG = 16, 18

# Linear RGB, BT.709 to BT.2020 primaries: ITU-R BT.2087-0, section 4.
_BT709_TO_BT2020 = np.array(
    [[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]], np.float32
)
# ITU-R BT.2408: HDR reference white is 203 cd/m² of PQ's 10,000, and 75 % HLG.
_PQ_WHITE = 203 / 10_000
_HLG_WHITE_SIGNAL = 0.75
# ITU-R BT.2100-2, table 4 (PQ) and table 5 (HLG).
_PQ_M1, _PQ_M2 = 2610 / 16384, 2523 / 4096 * 128
_PQ_C1, _PQ_C2, _PQ_C3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
_HLG_A, _HLG_B, _HLG_C = 0.17883277, 0.28466892, 0.55991073


def parse_color(text: str) -> tuple[float, float, float]:
    """Parse a colour.

    Args:
        text: ``#rgb``, ``#rrggbb`` (the ``#`` is optional with six digits) or a name, in any case:
            a common CSS one, ``chroma-green`` or ``chroma-blue``.

    Returns:
        (red, green, blue) in [0, 1], sRGB.

    Raises:
        ConfigError: It is not a colour.
    """
    word = text.strip().lower()
    if word in _NAMES:
        value = _NAMES[word]
    elif re.fullmatch(r"#[0-9a-f]{3}", word):
        value = int("".join(digit * 2 for digit in word[1:]), 16)
    elif re.fullmatch(r"#?[0-9a-f]{6}", word):
        value = int(word.removeprefix("#"), 16)
    else:
        hint = did_you_mean(word, _NAMES) if word.isascii() and word[:1].isalpha() else ""
        if not hint.startswith(";"):
            hint = "; use #rrggbb or a CSS colour name"
        raise ConfigError(f"cannot use --background {text!r}: it is not a colour{hint}")
    return (value >> 16) / 255, (value >> 8 & 255) / 255, (value & 255) / 255


def to_frame_rgb(rgb: Floats, color: ColorInfo) -> Floats:
    """Convert sRGB colours to a frame's primaries and transfer.

    Args:
        rgb: (..., 3) float32 in [0, 1], sRGB, red first.
        color: The frame's colour description.

    Returns:
        (..., 3) float32 in [0, 1], non-linear, as the frame's matrix expects it. SDR frames in
        BT.709 or unspecified primaries get ``rgb`` unchanged: players display such a signal like
        sRGB.
    """
    wide = color.primaries == _PRIMARIES_BT2020
    if not wide and not color.is_hdr:
        return rgb
    # IEC 61966-2-1.
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if wide:
        linear = linear @ _BT709_TO_BT2020.T
    linear = np.clip(linear, 0, 1)
    if color.transfer == _TRANSFER_PQ:
        power = (linear * _PQ_WHITE) ** _PQ_M1
        signal = ((_PQ_C1 + _PQ_C2 * power) / (1 + _PQ_C3 * power)) ** _PQ_M2
    elif color.transfer == _TRANSFER_HLG:
        white = (np.exp((_HLG_WHITE_SIGNAL - _HLG_C) / _HLG_A) + _HLG_B) / 12
        scene = linear * white
        bright = _HLG_A * np.log(np.maximum(12 * scene - _HLG_B, 1e-6)) + _HLG_C
        signal = np.where(scene <= 1 / 12, np.sqrt(3 * scene), bright)
    else:
        signal = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    adapted: Floats = np.asarray(signal, np.float32)
    return adapted


def unconverted(color: ColorInfo) -> tuple[str, ...]:
    """Return a notice if :func:`to_frame_rgb` lacks a frame's primaries or transfer."""
    primaries = UNSPECIFIED if color.primaries == _PRIMARIES_BT2020 else color.primaries
    transfer = UNSPECIFIED if color.is_hdr else color.transfer
    if ColorInfo(primaries=primaries, transfer=transfer).is_near_srgb:
        return ()
    return ("the background looks different: sRGB is not converted to the video's colours",)


def planes_from_rgb(rgb: Floats, format: FrameFormat) -> tuple[Samples, Samples]:
    """Convert non-linear RGB to luma and 4:2:0 chroma.

    Luma and colour difference signals and their quantisation follow ITU-T H.273, 8.3, equations
    for ``MatrixCoefficients`` other than 0, 8 and above 10. A chroma sample is the mean of its
    2×2 pixels.

    Args:
        rgb: (h, w, 3) float32 in [0, 1], red first, in the frame's primaries and transfer
            (:func:`to_frame_rgb`), of any size.
        format: The frame's format.

    Returns:
        Luma (h, w) and chroma (⌈h/2⌉, ⌈w/2⌉, 2) as the frame stores them.
    """
    kr, kb = format.color.kr_kb(format.height)
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    cb = _mean_2x2((blue - luma) / (2 * (1 - kb)))
    cr = _mean_2x2((red - luma) / (2 * (1 - kr)))
    black, white = format.luma_range
    chroma = np.stack((cb, cr), axis=-1)
    return (
        _quantise(black + (white - black) * luma, format),
        _quantise(format.chroma_neutral + 2 * format.chroma_amplitude * chroma, format),
    )


def _mean_2x2(plane: Floats) -> Floats:
    rows, columns = plane.shape
    padded = np.pad(plane, ((0, rows % 2), (0, columns % 2)), mode="edge")
    pairs = padded[::2] + padded[1::2]
    mean: Floats = ((pairs[:, ::2] + pairs[:, 1::2]) / 4).astype(np.float32)
    return mean


def _quantise(values: Floats, format: FrameFormat) -> Samples:
    """Round stored sample values to whole code values inside the sample's range."""
    codes = np.rint(values / (1 << format.shift))
    codes = np.clip(codes, 0, (1 << format.bit_depth) - 1)
    samples: Samples = codes.astype(format.dtype) << format.shift
    return samples
