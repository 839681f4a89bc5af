"""Reads FFmpeg's frame side data: display matrix and HDR10 metadata.

PyAV hands these out as raw bytes: C structs of libavutil, whose layouts are part of its public
interface (``display.h``, ``mastering_display_metadata.h``). All fields are native 32-bit integers.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from av.frame import Frame
from av.sidedata.sidedata import SideData

from bgsoft.frame import ContentLight, MasteringDisplay
from bgsoft.media.info import Orientation

__all__ = [
    "frame_content_light",
    "frame_mastering_display",
    "frame_orientation",
    "orientation_from_matrix",
]

_TOLERANCE_DEGREES = 1.0


def _raw(frame: Frame, kind: str) -> bytes | None:
    """Bytes of one kind of side data, named as in PyAV's ``av.sidedata.sidedata.Type``."""
    try:
        data = frame.side_data.get(kind)
    except ValueError:  # PyAV reads no frame's data that has a kind it does not know, e.g. EXIF
        return None
    return bytes(data) if isinstance(data, SideData) else None


def orientation_from_matrix(matrix: tuple[int, ...]) -> tuple[Orientation, float]:
    """Split a display matrix into a mirroring, a quarter turn and what is left over.

    FFmpeg multiplies row vectors, ``(x, y) @ [[a, b], [c, d]]``, with y pointing down; a and b are
    elements 0 and 1, c and d elements 3 and 4. A picture that is first mirrored left to right and
    then turned clockwise by t has ``(c, d) = (−sin t, cos t)`` in either case, and a negative
    determinant only if mirrored.

    Args:
        matrix: Nine elements, row by row; the scale does not matter here.

    Returns:
        The orientation, and the degrees (−45–45) by which the true angle is larger.
    """
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    determinant = a * d - b * c
    if determinant == 0:
        return Orientation(), 0.0
    degrees = math.degrees(math.atan2(-c, d))
    quarters = round(degrees / 90)
    turned = Orientation(mirror=determinant < 0, rotation=quarters % 4 * 90)
    return turned, degrees - quarters * 90


def frame_orientation(frame: Frame) -> tuple[Orientation, str | None]:
    """How a frame must be turned to stand upright.

    Returns:
        The orientation, and a notice where it is not exact.
    """
    raw = _raw(frame, "DISPLAYMATRIX")
    if raw is None or len(raw) < 36:
        return Orientation(), None
    orientation, rest = orientation_from_matrix(struct.unpack("=9i", raw[:36]))
    if abs(rest) <= _TOLERANCE_DEGREES:
        return orientation, None
    return orientation, (
        f"rotation of {orientation.rotation + rest:.0f}° rounded to {orientation.rotation}°"
    )


def frame_mastering_display(frame: Frame) -> MasteringDisplay | None:
    """HDR10 mastering display of a frame; None where absent or incomplete."""
    raw = _raw(frame, "MASTERING_DISPLAY_METADATA")
    # Ten rationals (red, green, blue, white: x and y; minimum, maximum), two flags.
    if raw is None or len(raw) < 88:
        return None
    numbers = struct.unpack("=22i", raw[:88])
    has_primaries, has_luminance = numbers[20:]
    if not (has_primaries and has_luminance) or 0 in numbers[1:20:2]:
        return None
    values = [Fraction(numbers[i], numbers[i + 1]) for i in range(0, 20, 2)]
    return MasteringDisplay(
        red=(values[0], values[1]),
        green=(values[2], values[3]),
        blue=(values[4], values[5]),
        white=(values[6], values[7]),
        min_luminance=values[8],
        max_luminance=values[9],
    )


def frame_content_light(frame: Frame) -> ContentLight | None:
    """HDR10 content light level of a frame; None where absent or all zero."""
    raw = _raw(frame, "CONTENT_LIGHT_LEVEL")
    if raw is None or len(raw) < 8:
        return None
    max_content, max_frame_average = struct.unpack("=2I", raw[:8])
    if max_content == 0 and max_frame_average == 0:
        return None
    return ContentLight(max_content=max_content, max_frame_average=max_frame_average)
