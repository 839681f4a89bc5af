"""Pillow's decoders, for pictures that OpenCV does not read, or not in all its builds.

Pillow is loaded where such a picture is met.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

from bgsoft.errors import UnsupportedFormatError
from bgsoft.records import NamedTuple

if TYPE_CHECKING:
    from bgsoft.media.planes import Plane

_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "avif"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis"), "heif"),
}
"""Kinds of pictures by the brands of ISO/IEC 23000-22 and 23008-12; those of HEIF's sequences are
left out."""
_EITHER = (b"mif1", b"miaf")
"""Brands that leave the codec open."""
_ORIENTATION = 0x112


def coded_kind(head: bytes) -> str | None:
    """``avif`` or ``heif``, by a file's first bytes; None: it is neither."""
    if head[4:8] != b"ftyp":
        return None
    size = min(struct.unpack_from(">I", head)[0], len(head))
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))]
    if brands[0] not in (*_BRANDS, *_EITHER):
        return None
    return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), None)


class CodedPicture(NamedTuple):
    """A picture whose file is open, not decoded yet."""

    is_heif: bool
    image: Any
    """Pillow's image, or an object with the same methods."""
    orientation: int
    """EXIF's, of the decoded picture."""
    profile: bytes
    bits: int
    """Bits of a stored sample."""
    color: tuple[int, int]
    """Primaries and transfer (ITU-T H.273) that it declares; 0: it declares none."""
    frames: int

    def pixels(self) -> Plane:
        """Decode it: (H, W, 3) or (H, W, 4) uint8 or uint16, blue first.

        Raises:
            ValueError: It is damaged.
        """
        import cv2
        import numpy as np

        image, codes = self.image, {"RGB": cv2.COLOR_RGB2BGR, "RGBA": cv2.COLOR_RGBA2BGRA}
        try:
            if self.is_heif:
                return np.asarray(image)
            mode = "RGBA" if image.has_transparency_data else "RGB"
            return cv2.cvtColor(np.asarray(image.convert(mode)), codes[mode])
        except (OSError, EOFError, SyntaxError, RuntimeError) as exc:
            raise ValueError(str(exc)) from exc


def open_coded(data: bytes, kind: str) -> CodedPicture:
    """Open an AVIF or HEIF picture.

    Raises:
        UnsupportedFormatError: The library for HEIF is not installed.
        ValueError: It is damaged.
    """
    return _open_heif(data) if kind == "heif" else _open_avif(data)


def _open_avif(data: bytes) -> CodedPicture:
    from PIL import Image, features

    if not features.check("avif"):
        raise UnsupportedFormatError(
            "the installed Pillow lacks AVIF; install pillow 11.3 or later"
        )
    try:
        image = Image.open(io.BytesIO(data), formats=["AVIF"])
    except (OSError, SyntaxError, Image.DecompressionBombError) as exc:
        raise ValueError(str(exc)) from exc
    profile = image.info.get("icc_profile") or b""
    # ISO/IEC 23008-12, 6.5.6, and ISO/IEC 14496-12, 12.1.5: Pillow tells neither.
    pixi, nclx = data.find(b"pixi"), data.find(b"colrnclx")
    bits = data[pixi + 9] if 0 <= pixi < len(data) - 9 else 8
    color = (data[nclx + 9], data[nclx + 11]) if 0 <= nclx < len(data) - 11 else (0, 0)
    frames = getattr(image, "n_frames", 1)
    orientation = image.getexif().get(_ORIENTATION, 1)
    return CodedPicture(False, image, orientation, profile, bits, color, frames)


def _open_heif(data: bytes) -> CodedPicture:
    try:
        import pillow_heif
    except ImportError:
        text = "HEIC photographs need pillow-heif: pip install 'bgsoft[heif]'"
        raise UnsupportedFormatError(text) from None
    try:
        image = pillow_heif.open_heif(io.BytesIO(data), convert_hdr_to_8bit=False, bgr_mode=True)
    except (OSError, EOFError, SyntaxError, RuntimeError) as exc:
        raise ValueError(str(exc)) from exc
    info = image.info
    nclx = info.get("nclx_profile") or {}
    color = nclx.get("color_primaries", 0), nclx.get("transfer_characteristics", 0)
    profile = info.get("icc_profile") or b""
    # libheif turns the picture by itself.
    return CodedPicture(True, image, 1, profile, info["bit_depth"], color, 1)
