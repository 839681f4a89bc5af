"""The inventory of data that an input carries in addition to pictures, sound and text.

Each kind is carried over, applied to the pictures, or named in a notice; `bgsoft compare` lists the
kinds of both files. Messages come with single pictures, and their packets are read for them
(:mod:`bgsoft.media.messages`). All else is declared by the container, or by the first pictures.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum

from bgsoft.media.declared import Declared
from bgsoft.settings.encode import Codec


class Kind(StrEnum):
    """Kinds of messages with a picture, as notices name them."""

    CAPTIONS = "closed captions"
    """CTA-708 and CTA-608, as in ATSC A/53."""
    ACTIVE_FORMAT = "active format (AFD)"
    HDR10_PLUS = "HDR10+"
    HDR_VIVID = "HDR Vivid"
    DOLBY_VISION = "Dolby Vision"
    LCEVC = "LCEVC enhancement"
    TIMECODES = "timecodes in the pictures"
    USER_DATA = "user data in the pictures"


_ALWAYS = frozenset({Kind.CAPTIONS, Kind.ACTIVE_FORMAT})
CARRIED: dict[Codec, frozenset[Kind]] = {
    Codec.H264: _ALWAYS,
    Codec.HEVC: _ALWAYS | {Kind.HDR10_PLUS, Kind.HDR_VIVID},
}
"""Kinds that are passed on, by the codec that is written. Dolby Vision and LCEVC describe the
source's coding. Timecodes and user data may be wrong for a part of the video."""

_APPLIED = frozenset(
    {"DISPLAYMATRIX", "FILM_GRAIN_PARAMS", "MASTERING_DISPLAY_METADATA", "CONTENT_LIGHT_LEVEL"}
)
"""Side data that are applied to pictures, or that encoders are given."""
_UNASKED = frozenset({"MOTION_VECTORS", "VIDEO_ENC_PARAMS", "STEREO3D"})
"""Side data that are not reported here: the decoder's own, and those with a notice of their own."""
_IN_PACKETS = {
    "A53_CC": Kind.CAPTIONS,
    "AFD": Kind.ACTIVE_FORMAT,
    "DYNAMIC_HDR_PLUS": Kind.HDR10_PLUS,
    "DYNAMIC_HDR_VIVID": Kind.HDR_VIVID,
    "LCEVC": Kind.LCEVC,
    "SEI_UNREGISTERED": Kind.USER_DATA,
}
"""Side data that are read from the packets of codecs whose messages are known."""
_NAMES = {
    "AMBIENT_VIEWING_ENVIRONMENT": "ambient viewing environment",
    "EXIF": "EXIF",
    "DOVI_METADATA": Kind.DOLBY_VISION,
    "DOVI_RPU_BUFFER": Kind.DOLBY_VISION,
    "GOP_TIMECODE": Kind.TIMECODES,
    "ICC_PROFILE": "colour profile",
    "PANSCAN": "pan and scan",
    "S12M_TIMECODE": Kind.TIMECODES,
    "SPHERICAL": "360° projection",
    "VIEW_ID": "other views",
}
_GOP_FLAGS = 1 << 24 | 1 << 12
"""The drop flag and the marker of a time code (ISO/IEC 13818-2, 6.2.2.6)."""
STEREO = "stereo 3D"
"""Name of the metadata that Matroska keeps as a tag."""
_NO_BASE_PROFILE = 5
"""The Dolby Vision profile whose pictures have no usual colours."""


def named_kinds(
    declared: Declared, data: Mapping[str, bytes], size: tuple[int, int], *, reads_packets: bool
) -> Iterator[str]:
    """The kinds of a stream that no output has, as notices name them; each once.

    Args:
        declared: Declarations of its container.
        data: Side data of its first pictures.
        size: (width, height) of a picture as stored, pixels.
        reads_packets: Its messages are read from packets.
    """
    names: dict[str, None] = {}
    if declared.projection is not None:
        names[_NAMES["SPHERICAL"]] = None
    if declared.dolby_vision is not None:
        names[Kind.DOLBY_VISION] = None
    for kind, content in data.items():
        if kind in _APPLIED | _UNASKED or (reads_packets and kind in _IN_PACKETS):
            continue
        if not _says_nothing(kind, content, size):
            usual = kind.lower().replace("_", " ")
            names[_IN_PACKETS.get(kind) or _NAMES.get(kind, usual)] = None
    yield from map(str, names)


def colors_are_lost(declared: Declared) -> bool:
    """Return whether the pictures have wrong colours without the Dolby Vision metadata."""
    return declared.dolby_vision == _NO_BASE_PROFILE


def _says_nothing(kind: str, content: bytes, size: tuple[int, int]) -> bool:
    """Return whether data are there in any file of their kind of container, and tell nothing."""
    if kind == "GOP_TIMECODE":  # MPEG-2 always has one, which usually begins at zero
        return not int.from_bytes(content, sys.byteorder) & ~_GOP_FLAGS
    if kind == "PANSCAN":  # AVPanScan: an id, then width and height in sixteenths of a pixel
        _, width, height = struct.unpack_from("=3i", content)
        return (width, height) == (size[0] * 16, size[1] * 16) or not width or not height
    return False
