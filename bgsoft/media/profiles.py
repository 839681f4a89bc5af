"""Colour profiles (ICC.1) of pictures: those that an output cannot keep are applied, by LittleCMS.

Samples of RGB keep the profile that they came with, where the output has a place for it. All
others are converted to sRGB.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from bgsoft.media.planes import Plane

_SPACE = slice(16, 20)
"""Colour space in a profile's header (ICC.1:2022, 7.2.6)."""
RGB, GRAY, CMYK = b"RGB ", b"GRAY", b"CMYK"
_STEPS = 9
"""Samples each way of the grid on which a profile is compared with sRGB."""
_SAME = 2
"""Largest difference from sRGB, of 255: sRGB is written in many ways."""


def profile_space(profile: bytes) -> bytes:
    """The kind of samples that a profile is for; empty where there is none."""
    return profile[_SPACE]


def cmyk_to_srgb(data: bytes, profile: bytes) -> Plane:
    """Decode a JPEG or TIFF file of CMYK samples, and convert them by their profile.

    Returns:
        (H, W, 3) uint8, blue first: JPEG as stored, TIFF upright.

    Raises:
        ValueError: The profile cannot be used.
    """
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        converted = _converter(profile, "CMYK")(image)
    return cv2.cvtColor(np.asarray(converted), cv2.COLOR_RGB2BGR)


def lab_to_srgb(data: bytes) -> Plane:
    """Decode a TIFF file of L*a*b* samples, relative to D50 as Photoshop writes them.

    Returns:
        (H, W, 3) uint8, blue first, upright.

    Raises:
        ValueError: Pillow cannot read it; it reads 8 bits.
    """
    from PIL import Image, ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    try:
        with Image.open(io.BytesIO(data)) as image:
            converted = _converter(profile, "LAB")(image)
    except OSError as exc:
        raise ValueError(str(exc)) from exc
    return cv2.cvtColor(np.asarray(converted), cv2.COLOR_RGB2BGR)


def gray_to_srgb(pixels: Plane, profile: bytes) -> Plane:
    """Convert grey samples, in one channel or in equal ones, by their profile.

    Args:
        pixels: uint8 or uint16; an alpha channel in the fourth place stays.
        profile: Of :data:`GRAY`.

    Raises:
        ValueError: The profile cannot be used.
    """
    steps = np.arange(256, dtype=np.uint8)[None]
    table = np.asarray(_convert(steps, profile, "L"))[0, :, 1]
    if pixels.dtype == np.uint16:
        table = np.interp(np.arange(1 << 16) / 257, steps[0], table * 257.0)
    color = pixels if pixels.ndim == 2 else pixels[..., :3]
    shown: Plane = np.rint(table).astype(pixels.dtype)[color]
    return shown if color.shape == pixels.shape else np.dstack([shown, pixels[..., 3:]])


def rgb_to_srgb(pixels: Plane, profile: bytes) -> Plane:
    """Convert (H, W, 3) uint8, blue first, by their profile.

    Raises:
        ValueError: The profile cannot be used.
    """
    return _convert(pixels[..., ::-1], profile, "RGB")[..., ::-1].copy()


@lru_cache(maxsize=4)
def is_srgb(profile: bytes) -> bool:
    """Return whether RGB samples of a profile look as those without one do.

    Raises:
        ValueError: The profile cannot be used.
    """
    levels = np.linspace(0, 255, _STEPS).astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(1, -1, 3)
    off = np.abs(_convert(grid, profile, "RGB").astype(int) - grid)
    return bool(off.max() <= _SAME)


def _convert(samples: Plane, profile: bytes, mode: str) -> Plane:
    from PIL import Image

    return np.asarray(_converter(profile, mode)(Image.fromarray(np.ascontiguousarray(samples))))


@lru_cache(maxsize=4)
def _converter(profile: bytes, mode: str) -> Any:
    """Make a converter of Pillow's images to sRGB, by the intent that the profile asks for."""
    from PIL import ImageCms

    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        intent = ImageCms.Intent(ImageCms.getDefaultIntent(opened))
        flags = ImageCms.Flags.BLACKPOINTCOMPENSATION
        if mode == "L":  # 256 samples, which the quicker tables would bring 10 of 255 off
            flags |= ImageCms.Flags.NOOPTIMIZE
        made = ImageCms.buildTransform(
            opened, ImageCms.createProfile("sRGB"), mode, "RGB", intent, flags
        )
    except (OSError, TypeError, ImageCms.PyCMSError) as exc:
        raise ValueError(str(exc)) from exc
    return made.apply
