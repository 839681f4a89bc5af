"""Decoding of picture files: a single one, or a sequence as if it were a video."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from av.video.frame import VideoFrame

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.convert import PlaneWriter
from bgsoft.decode.stream import StreamDecoder
from bgsoft.errors import OpenError, UnsupportedFormatError
from bgsoft.frame import Frame, OriginalStill
from bgsoft.media.info import VideoInfo
from bgsoft.media.opencv import decode_picture
from bgsoft.media.planes import Plane
from bgsoft.media.stills import read_file
from bgsoft.records import NamedTuple

# EXIF's orientations 2 to 8: whether rows and columns change places, then what is reversed.
_TURNS = {
    2: (False, 1),
    3: (False, -1),
    4: (False, 0),
    5: (True, None),
    6: (True, 1),
    7: (True, -1),
    8: (True, 0),
}


class Still(NamedTuple):
    """A picture."""

    pixels: Plane
    """(H, W, 3) uint8 or uint16, blue first, upright; transparent parts are laid over black."""
    profile: bytes
    """As in :class:`StillFacts`."""
    transparent: bool
    """It had an alpha channel."""


class StillPicture(NamedTuple):
    """A still of a sequence; see :class:`bgsoft.decode.stream.DecodedPicture`."""

    still: Still
    pts: int
    dts: int | None = None
    duration: int = 1
    key_frame: bool = True
    is_corrupt: bool = False
    opaque: None = None


class StillDecoder(StreamDecoder[StillPicture]):
    """Decodes picture files into ring slots on the host.

    Every file is a frame: one that cannot be read ends the render, since a sequence without it
    would be another.

    Args:
        info: From :func:`bgsoft.media.sequence.probe_stills`.
        settings: The part of a sequence to decode.
    """

    def __init__(self, info: VideoInfo, settings: DecodeSettings | None = None) -> None:
        super().__init__(info, settings)
        self._writer = PlaneWriter(info)
        self._told: set[str] = set()

    def _read(self, from_pts: int | None, *, threaded: bool = True) -> Iterator[StillPicture]:
        return self._decode(from_pts, threaded=threaded)

    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[StillPicture]:
        for number, path in enumerate(self.info.stills):
            if number >= (position or 0):
                yield StillPicture(read_still(path), number)

    def _write(self, picture: StillPicture, frame: Frame) -> None:
        still, format, planes = picture.still, self.info.format, frame.planes
        pixels = still.pixels
        size = pixels.shape[1], pixels.shape[0]
        if still.transparent:
            self._tell("transparent parts are laid over black", picture.pts)
        if size != (format.width, format.height):
            self.stats.irregular = True
            text = f"picture size changes to {size[0]}x{size[1]}: fitted into"
            self._tell(f"{text} {format.width}x{format.height}", picture.pts)
        name = "bgr24" if pixels.dtype == np.uint8 else "bgr48le"
        shown = VideoFrame.from_ndarray(pixels, format=name)
        self._writer.write(shown, planes)
        if self._settings.keeps_chroma:
            frame.original = self._writer.original(shown, planes)
        elif name == self.info.pixel_format and pixels.shape[:2] == format.luma_shape:
            frame.original = OriginalStill(
                pixels=pixels,
                luma=planes.luma.copy(),
                chroma=planes.chroma.copy(),
                profile=still.profile,
            )

    def _tell(self, message: str, pts: int) -> None:
        """Report what is the same for many pictures once."""
        if message not in self._told:
            self._told.add(message)
            self._report("notice", message, pts)


def read_still(path: Path) -> Still:
    """Decode a picture file.

    Raises:
        OpenError: It cannot be read, is damaged or cut off.
        UnsupportedFormatError: It is none of the kinds that are read, is too large, or moves.
    """
    facts, data = read_file(path)
    # Of all flags the only one that leaves depth, alpha and orientation alone.
    pixels = decode_picture(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise OpenError(f"{path} is damaged: its picture cannot be decoded", path=path)
    if pixels.dtype not in (np.uint8, np.uint16):
        text = f"{path} has samples of {pixels.dtype}: only 8 and 16 bits are read"
        raise UnsupportedFormatError(text, path=path)
    transparent = pixels.ndim == 3 and pixels.shape[2] == 4
    # OpenCV turns TIFF files by itself, and lays those of 8 bits over black.
    is_tiff = facts.kind == "tiff"
    if is_tiff and transparent and pixels.dtype == np.uint8:
        pixels = np.ascontiguousarray(pixels[..., :3])
    upright = _upright(_opaque(pixels), 1 if is_tiff else facts.orientation)
    return Still(upright, facts.profile, transparent)


def _opaque(pixels: Plane) -> Plane:
    """Three channels of any number, transparent parts laid over black."""
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR)
    if pixels.shape[2] == 3:
        return pixels
    largest = np.iinfo(pixels.dtype).max
    color = np.ascontiguousarray(pixels[..., :3])
    partial = pixels[..., 3] != largest
    if partial.any():
        share = pixels[..., 3][partial].astype(np.float32)[:, None] / largest
        color[partial] = np.rint(color[partial] * share).astype(pixels.dtype)
    return color


def _upright(pixels: Plane, orientation: int) -> Plane:
    transpose, flip = _TURNS.get(orientation, (False, None))
    if transpose:
        pixels = cv2.transpose(pixels)
    return pixels if flip is None else cv2.flip(pixels, flip)
