"""Decoding of picture files, single or as a sequence that is treated as a video."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from av.video.frame import VideoFrame

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.convert import PlaneWriter
from bgsoft.decode.stream import StreamDecoder
from bgsoft.errors import OpenError, UnsupportedFormatError, translated
from bgsoft.frame import ColorInfo, Frame, OriginalStill
from bgsoft.media.info import VideoInfo
from bgsoft.media.opencv import decode_picture
from bgsoft.media.pillow import open_coded
from bgsoft.media.planes import Plane
from bgsoft.media.probe import ALPHA_DROPPED
from bgsoft.media.profiles import (
    CMYK,
    GRAY,
    RGB,
    cmyk_to_srgb,
    gray_to_srgb,
    is_srgb,
    lab_to_srgb,
    profile_space,
    rgb_to_srgb,
)
from bgsoft.media.stills import CODED, StillFacts, read_file
from bgsoft.records import NamedTuple

# EXIF's orientations 2 to 8 → whether to transpose, and the flip that follows.
_TURNS = {
    2: (False, 1),
    3: (False, -1),
    4: (False, 0),
    5: (True, None),
    6: (True, 1),
    7: (True, -1),
    8: (True, 0),
}


UNUSABLE = "colour profile left out: it cannot be used"


class Still(NamedTuple):
    """A decoded picture."""

    pixels: Plane
    """(H, W, 3) uint8 or uint16, blue first, upright; transparent parts are blended with black."""
    profile: bytes
    """ICC profile of the RGB samples; empty: there is none."""
    notices: tuple[str, ...] = ()
    """Changes to the picture, and parts that were left out."""
    color: ColorInfo = ColorInfo()
    """Colour description of its frame, without the profile."""


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
    """Decoder of picture files, into ring slots on the host.

    Every file is a frame. A file that cannot be read ends the render, since the sequence would be
    incomplete.

    Args:
        info: From :func:`bgsoft.media.sequence.probe_stills`.
        settings: The part of a sequence to decode.
    """

    def __init__(self, info: VideoInfo, settings: DecodeSettings | None = None) -> None:
        super().__init__(info, settings)
        self._writer = PlaneWriter(info)
        self._reported: set[str] = set()

    def _read(self, from_pts: int | None, *, threaded: bool = True) -> Iterator[StillPicture]:
        return self._decode(from_pts, threaded=threaded)

    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[StillPicture]:
        for number, path in enumerate(self.info.stills):
            if number >= (position or 0):
                yield StillPicture(read_still(path), number)

    def _write(self, picture: StillPicture, frame: Frame) -> None:
        still, format, planes = picture.still, self.info.format, frame.planes
        size = still.pixels.shape[1], still.pixels.shape[0]
        fits = size == (format.width, format.height)
        is_kept = fits and not self._settings.keeps_chroma
        if not (is_kept and self._settings.keeps_profile):
            still = in_srgb(still)
        for notice in still.notices:
            self._notice_once(notice, picture.pts)
        if still.color != format.color:
            text = "HDR or wide colours differ from the first picture's: taken for those"
            self._notice_once(text, picture.pts)
        pixels, name = still.pixels, self.info.pixel_format
        if name == "bgr48le" and pixels.dtype == np.uint8:
            pixels = pixels.astype(np.uint16) * 257
        elif name == "bgr24" and pixels.dtype == np.uint16:
            text = "16-bit samples reduced to 8 bits, as in the first picture"
            self._notice_once(text, picture.pts)
            pixels = cv2.convertScaleAbs(pixels, alpha=1 / 257)
        if not fits:
            self.stats.irregular = True
            text = f"picture size changes to {size[0]}x{size[1]}: fitted into"
            self._notice_once(f"{text} {format.width}x{format.height}", picture.pts)
        shown = VideoFrame.from_ndarray(pixels, format=name)
        self._writer.write(shown, planes)
        if self._settings.keeps_chroma:
            frame.original = self._writer.original(shown, planes)
        elif is_kept:
            frame.original = OriginalStill(
                pixels=pixels,
                luma=planes.luma.copy(),
                chroma=planes.chroma.copy(),
                profile=still.profile,
            )

    def _notice_once(self, message: str, pts: int) -> None:
        """Report a notice once, also where it applies to many pictures."""
        if message not in self._reported:
            self._reported.add(message)
            self._report("notice", message, pts)


def read_still(path: Path) -> Still:
    """Decode a picture file.

    Raises:
        OpenError: It cannot be read, is damaged or truncated.
        UnsupportedFormatError: Its kind is not supported, it is too large, or it is animated.
    """
    facts, pixels, notices = read_samples(path)
    if facts.has_spare_channel:
        notices.append("channel after the colours left out: it is not alpha")
        pixels = pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels[..., :3])
    elif facts.has_side_alpha and (pixels.ndim == 2 or pixels.shape[2] < 4):
        notices.append(ALPHA_DROPPED)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        if (pixels[..., 3] != np.iinfo(pixels.dtype).max).any():
            notices.append("transparent parts are laid over black")
        # OpenCV blends 8 bits itself.
        if facts.kind == "tiff" and (facts.is_premultiplied or pixels.dtype == np.uint8):
            pixels = np.ascontiguousarray(pixels[..., :3])
    profile = facts.profile
    if profile and profile_space(profile) != RGB:
        if not facts.is_cmyk or profile_space(profile) != CMYK:
            pixels = _from_gray(pixels, profile, notices)
        profile = b""
    return Still(_opaque(pixels), profile, tuple(notices), facts.video_color)


def read_samples(path: Path) -> tuple[StillFacts, Plane, list[str]]:
    """Decode all channels of a picture file.

    Returns:
        Facts in the file; (H, W) or (H, W, channels) uint8 or uint16, blue first, upright; notices.

    Raises:
        OpenError, UnsupportedFormatError: As :func:`read_still`.
    """
    facts, data = read_file(path)
    notices: list[str] = []
    pixels, orientation = _stored(path, facts, data, notices)
    if pixels.dtype not in (np.uint8, np.uint16):
        text = (
            f"cannot read {path}: its samples are {pixels.dtype}; only 8 and 16 bits are supported"
        )
        raise UnsupportedFormatError(text, path=path)
    return facts, _upright(pixels, orientation), notices


def _stored(path: Path, facts: StillFacts, data: bytes, notices: list[str]) -> tuple[Plane, int]:
    """Return a picture as stored, and its orientation."""
    # OpenCV and Pillow turn TIFF files.
    orientation = 1 if facts.kind == "tiff" else facts.orientation
    text = f"cannot read {path}: it is damaged, or of a kind that is not supported"
    damaged = OpenError(text, path=path)
    if facts.kind in CODED:
        with translated(ValueError, to=lambda _: damaged):
            pixels = open_coded(data, facts.kind).pixels()
        if facts.bits > 8 and pixels.dtype == np.uint8:
            notices.append(f"{facts.bits}-bit samples reduced to 8 bits")
        return pixels, orientation
    if facts.is_cmyk and profile_space(facts.profile) == CMYK:
        try:
            return cmyk_to_srgb(data, facts.profile), orientation
        except ValueError:
            notices.append(UNUSABLE)
    if facts.is_lab:
        try:
            pixels = lab_to_srgb(data)
            facts.profile = b""  # of samples that are in sRGB now
            return pixels, orientation
        except ValueError:
            notices.append("L*a*b* samples that Pillow cannot read: the colours may look wrong")
    # The only flag that preserves depth, alpha and orientation.
    decoded = decode_picture(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if decoded is None:
        raise damaged
    if facts.is_inverted and decoded.dtype == np.uint16:  # OpenCV inverts 8 bits itself
        decoded = ~decoded
    return decoded, orientation


def _from_gray(pixels: Plane, profile: bytes, notices: list[str]) -> Plane:
    """Convert grey samples by their profile; report a profile of any other samples than RGB."""
    space = profile_space(profile)
    gray = pixels.ndim == 2 or np.array_equal(pixels[..., 0], pixels[..., 1])
    if space != GRAY or not gray:
        name = space.decode("ascii", "replace").strip()
        notices.append(f"colour profile left out: it is for {name} samples")
        return pixels
    try:
        return gray_to_srgb(pixels, profile)
    except ValueError:
        notices.append(UNUSABLE)
        return pixels


def in_srgb(still: Still) -> Still:
    """Convert a still to sRGB by its profile; add a notice where that fails."""
    if not still.profile:
        return still
    try:
        if is_srgb(still.profile):
            return still
        if still.pixels.dtype == np.uint8:
            return still._replace(pixels=rgb_to_srgb(still.pixels, still.profile), profile=b"")
        left_out = "colour profile left out: 16-bit samples are not converted"
    except ValueError:
        left_out = UNUSABLE
    return still._replace(profile=b"", notices=(*still.notices, left_out))


def _opaque(pixels: Plane) -> Plane:
    """Convert any number of channels to three; transparent parts are blended with black."""
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
