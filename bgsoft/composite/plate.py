"""Backgrounds that stay the same: a colour, or an image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import Samples
from bgsoft.composite.blend import Background
from bgsoft.composite.color import DEFAULT_COLOR, parse_color, planes_from_rgb, to_frame_rgb
from bgsoft.errors import ConfigError
from bgsoft.frame import FrameFormat

__all__ = ["PlateBackground", "color_plate", "cover", "image_plate", "read_image"]

_CONVERT_ROWS = 128
"""Rows converted at a time, to keep the floating-point copies small; even."""


class PlateBackground(Background):
    """A finished picture of the frame's size.

    Args:
        luma: (H, W), the frame's dtype.
        chroma: (⌈H/2⌉, ⌈W/2⌉, 2), the frame's dtype.
    """

    def __init__(self, luma: Samples, chroma: Samples) -> None:
        self._luma, self._chroma = luma, chroma

    def planes(self) -> tuple[Samples, Samples]:
        return self._luma, self._chroma


def color_plate(background: str | None, format: FrameFormat) -> PlateBackground:
    """A background of one colour.

    Args:
        background: The colour, see :func:`bgsoft.composite.color.parse_color`; None: chroma green.
        format: Format of every frame.

    Raises:
        ConfigError: It is not a colour.
    """
    rgb = np.array(parse_color(background or DEFAULT_COLOR), np.float32).reshape(1, 1, 3)
    luma, chroma = planes_from_rgb(to_frame_rgb(rgb, format.color), format)
    return PlateBackground(
        np.full(format.luma_shape, luma[0, 0]),
        np.ascontiguousarray(np.broadcast_to(chroma[0, 0], format.chroma_shape)),
    )


def image_plate(path: Path, format: FrameFormat) -> PlateBackground:
    """A background from an image file, scaled to cover the frame and cropped to its middle.

    Args:
        path: The file.
        format: Format of every frame.

    Raises:
        ConfigError: The file is missing, unreadable or not an image.
    """
    image = cover(read_image(path), format.width, format.height)
    luma: Samples = np.empty(format.luma_shape, format.dtype)
    chroma: Samples = np.empty(format.chroma_shape, format.dtype)
    for start in range(0, format.height, _CONVERT_ROWS):
        part = image[start : start + _CONVERT_ROWS, :, ::-1]  # OpenCV has blue first
        rgb = part.astype(np.float32) / np.float32(np.iinfo(image.dtype).max)
        rows = slice(start, start + _CONVERT_ROWS)
        half_rows = slice(start // 2, (start + _CONVERT_ROWS) // 2)
        luma[rows], chroma[half_rows] = planes_from_rgb(to_frame_rgb(rgb, format.color), format)
    return PlateBackground(luma, chroma)


def read_image(path: Path) -> Samples:
    """Decode an image file.

    Returns:
        (h, w, 3) uint8 or uint16, blue first, upright by its EXIF orientation; transparent parts
        are laid over black.

    Raises:
        ConfigError: The file is missing, unreadable or not an image.
    """
    try:
        if not path.is_file():
            problem = "is not a file" if path.exists() else "does not exist"
            raise ConfigError(f"--background {path} {problem}", path=path)
        data = np.fromfile(path, np.uint8)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigError(f"--background {path} cannot be read: {reason}", path=path) from exc
    # Without IMREAD_UNCHANGED OpenCV honours the orientation, but drops transparency.
    image = _decode(data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    if image is None or image.dtype not in (np.uint8, np.uint16):
        raise ConfigError(f"--background {path} is not an image that can be read", path=path)
    stored = _decode(data, cv2.IMREAD_UNCHANGED)
    if stored is not None and stored.ndim == 3 and stored.shape[2] == 4:
        alpha = _turned_alpha(stored, image)
        if alpha is not None:
            share = alpha.astype(np.float32)[..., None] / np.iinfo(image.dtype).max
            image = np.rint(image * share).astype(image.dtype)
    return image


def _decode(data: NDArray[np.uint8], flags: int) -> Samples | None:
    try:
        image: Samples | None = cv2.imdecode(data, flags)
    except cv2.error:
        return None
    return image


_TURNS: tuple[Callable[[Samples], Samples], ...] = (
    lambda picture: picture,
    lambda picture: picture[:, ::-1],
    lambda picture: picture[::-1, ::-1],
    lambda picture: picture[::-1],
    lambda picture: np.swapaxes(picture, 0, 1),
    lambda picture: np.rot90(picture, -1),
    lambda picture: np.swapaxes(picture[::-1, ::-1], 0, 1),
    lambda picture: np.rot90(picture, 1),
)
"""The eight EXIF orientations."""


def _turned_alpha(stored: Samples, upright: Samples) -> Samples | None:
    """The alpha channel of ``stored``, turned as ``upright`` was.

    OpenCV does not tell the orientation it applied, so the one that makes the pictures equal is
    looked for.
    """
    for turn in _TURNS:
        turned = turn(stored)
        if turned.shape[:2] == upright.shape[:2] and np.array_equal(turned[..., :3], upright):
            return turned[..., 3]
    return None


def cover(image: Samples, width: int, height: int) -> Samples:
    """Scale an image to cover a size, keeping its proportions, and crop it to the middle.

    Args:
        image: (h, w, 3).
        width: Wanted width, pixels.
        height: Wanted height, pixels.

    Returns:
        (height, width, 3), the same dtype.
    """
    rows, columns = image.shape[:2]
    scale = max(width / columns, height / rows)
    crop_columns = min(max(round(width / scale), 1), columns)
    crop_rows = min(max(round(height / scale), 1), rows)
    left, top = (columns - crop_columns) // 2, (rows - crop_rows) // 2
    part = image[top : top + crop_rows, left : left + crop_columns]
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    scaled: Samples = cv2.resize(part, (width, height), interpolation=method)
    return scaled
