"""Backgrounds that need no filter: a colour, an image, a darker frame."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np

from bgsoft.composite.background import Background
from bgsoft.composite.color import (
    DEFAULT_COLOR,
    Samples,
    parse_color,
    planes_from_rgb,
    to_frame_rgb,
    unconverted,
)
from bgsoft.decode.stills import Still, in_srgb, read_still
from bgsoft.errors import ConfigError, MediaError, errors_as, os_errors_as
from bgsoft.frame import FrameFormat
from bgsoft.media.opencv import decode_picture
from bgsoft.media.source import read_head
from bgsoft.media.stills import still_kind
from bgsoft.ops.placement import Placement

_CONVERT_ROWS = 128
"""Rows converted at a time, to keep the floating-point copies small; even."""


def color_background(
    placement: Placement, background: str | None, format: FrameFormat
) -> Background:
    """Return a background of one colour.

    Args:
        placement: Device of the frames, or the host.
        background: The colour, see :func:`bgsoft.composite.color.parse_color`; None: chroma green.
        format: Format of every frame.

    Raises:
        ConfigError: It is not a colour.
    """
    rgb = np.array(parse_color(background or DEFAULT_COLOR), np.float32).reshape(1, 1, 3)
    luma, chroma = planes_from_rgb(to_frame_rgb(rgb, format.color), format)
    planes = np.broadcast_to(luma, format.luma_shape), np.broadcast_to(chroma, format.chroma_shape)
    plate = Background("blend_plate", *map(placement.array, planes))
    plate.notices = unconverted(format.color)
    return plate


def image_background(
    placement: Placement, path: Path, format: FrameFormat, aspect: Fraction = Fraction(1)
) -> Background:
    """Return a background from an image file, scaled to cover the frame and cropped to its middle.

    Args:
        placement: Device of the frames, or the host.
        path: The file; its pixels are square.
        format: Format of every frame.
        aspect: Width of the frame's pixels over their height.

    Raises:
        ConfigError: The file is missing, unreadable or not an image.
    """
    image = read_image(path)
    planes = image_planes(image.pixels, format, aspect)
    background = Background("blend_plate", *map(placement.array, planes))
    own = tuple(f"--background {path}: {text}" for text in image.notices)
    background.notices = own + unconverted(format.color)
    return background


def image_planes(
    image: Samples, format: FrameFormat, aspect: Fraction = Fraction(1)
) -> tuple[Samples, Samples]:
    """Convert an image, (h, w, 3), to luma (H, W) and chroma (⌈H/2⌉, ⌈W/2⌉, 2) of a frame."""
    image = cover(image, format.width, format.height, aspect)
    luma = np.empty(format.luma_shape, format.dtype)
    chroma = np.empty(format.chroma_shape, format.dtype)
    for start in range(0, format.height, _CONVERT_ROWS):
        part = image[start : start + _CONVERT_ROWS, :, ::-1]  # OpenCV has blue first
        rgb = part.astype(np.float32) / np.float32(np.iinfo(image.dtype).max)
        rows = slice(start, start + _CONVERT_ROWS)
        half_rows = slice(start // 2, (start + _CONVERT_ROWS) // 2)
        luma[rows], chroma[half_rows] = planes_from_rgb(to_frame_rgb(rgb, format.color), format)
    return luma, chroma


def read_image(path: Path) -> Still:
    """Decode an image file, in sRGB; transparent parts are blended with black.

    Raises:
        ConfigError: The file is missing, unreadable or not an image.
    """
    with (
        os_errors_as(ConfigError, f"cannot read --background {path}", path=path),
        errors_as((MediaError,), ConfigError, "--background", path=path),
    ):
        if not path.is_file():
            problem = "it is not a file" if path.exists() else "it does not exist"
            raise ConfigError(f"cannot read --background {path}: {problem}", path=path)
        if still_kind(read_head(path)) is not None:
            still = in_srgb(read_still(path))
            if not still.color.is_near_srgb:
                text = "HDR or wide colours are taken for sRGB"
                still = still._replace(notices=(*still.notices, text))
            return still
        data = np.fromfile(path, np.uint8)
    image = decode_picture(data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    if image is None or image.dtype not in (np.uint8, np.uint16):
        problem = "it is not a supported image, or too large"
        raise ConfigError(f"cannot read --background {path}: {problem}", path=path)
    return Still(image, profile=b"")


def cover(image: Samples, width: int, height: int, aspect: Fraction = Fraction(1)) -> Samples:
    """Scale an image to cover a size, keeping its proportions, and crop it to the middle.

    Args:
        image: (h, w, 3).
        width: Wanted width, pixels.
        height: Wanted height, pixels.
        aspect: Width of the wanted pixels over their height; the image's are square.

    Returns:
        (height, width, 3), the same dtype.
    """
    rows, columns = image.shape[:2]
    wide = width * float(aspect)
    scale = max(wide / columns, height / rows)
    crop_columns = min(max(round(wide / scale), 1), columns)
    crop_rows = min(max(round(height / scale), 1), rows)
    left, top = (columns - crop_columns) // 2, (rows - crop_rows) // 2
    part = image[top : top + crop_rows, left : left + crop_columns]
    method = cv2.INTER_AREA if scale < min(1, aspect) else cv2.INTER_CUBIC
    scaled: Samples = cv2.resize(part, (width, height), interpolation=method)
    return scaled


def dim_background(placement: Placement, format: FrameFormat, percent: float) -> Background:
    """Return the frame's own picture with a part of its light removed.

    Luma moves towards black and chroma towards neutral in proportion, which keeps hue and
    saturation: ``sample + (towards − sample) · percent / 100``, rounded to code values, by tables.

    Args:
        placement: Device of the frames, or the host.
        format: Format of every frame.
        percent: Removed light, 0–100.
    """
    codes = np.arange(1 << format.bit_depth)
    keep = 1 - percent / 100
    tables = []
    for towards in (format.luma_range[0], format.chroma_neutral):
        darker = np.rint(codes * keep + (towards >> format.shift) * (1 - keep)).astype(np.int64)
        tables.append(placement.array(darker << format.shift, format.dtype))
    return Background("blend_mapped", *tables)
