"""Picture files made by Pillow, which is no part of bgsoft."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

KINDS = {"jpeg": ".jpg", "png": ".png", "webp": ".webp", "tiff": ".tif"}
LOSSLESS: dict[str, dict[str, Any]] = {
    "jpeg": {"quality": 100, "subsampling": 0},
    "webp": {"lossless": True, "exact": True},
}


def colourful(width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """(H, W, 3) RGB, another colour in every corner, and no two neighbours alike."""
    rows, columns = np.mgrid[:height, :width]
    red, green = 4 * columns % 256, 5 * rows % 256
    return np.stack([red, green, 80 + 90 * ((rows + columns) % 2)], -1).astype(np.uint8)


@cache
def profile() -> bytes:
    """An ICC profile; it contains the time of its creation."""
    made: bytes = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return made


def save(path: Path, pixels: NDArray[Any], *, orientation: int = 1, icc: bytes = b"") -> Path:
    """Write RGB, grey or RGBA samples, stored so that the orientation turns them upright."""
    kind = {ending: name for name, ending in KINDS.items()}[path.suffix]
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    if orientation != 1:
        exif[274] = orientation
    more = {"icc_profile": icc} if icc else {}
    image.save(path, kind.upper(), exif=exif, **more, **LOSSLESS.get(kind, {}))
    return path


def encoded(image: Image.Image, kind: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **more)
    return buffer.getvalue()


def load(path: Path) -> NDArray[Any]:
    """A picture's samples as they are stored, red first."""
    with Image.open(path) as image:
        return np.asarray(image)
