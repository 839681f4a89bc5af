"""Properties and colour profiles of picture files.

The files are untrusted: their sizes are checked before anything is decoded. A file that has been
cut off is an error, not a picture that is grey below.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from bgsoft.errors import OpenError, UnsupportedFormatError, os_errors_as
from bgsoft.frame import ColorInfo
from bgsoft.media.containers import STILL_NAMES
from bgsoft.media.identifying import PICTURE_TAGS
from bgsoft.media.pillow import coded_kind, open_coded
from bgsoft.media.source import read_head
from bgsoft.records import dataclass

_MAX_PIXELS = 1 << 27
"""A picture of 108 million takes 2.3 GB of memory."""
_MAX_FILE_BYTES = 1 << 31
# TIFF 6.0 and EXIF.
_WIDTH_TAG, _HEIGHT_TAG, _BITS_TAG, _ORIENTATION_TAG = 256, 257, 258, 274
_SUBFILE_TAG, _EXTRA_SAMPLES_TAG, _PROFILE_TAG = 254, 338, 34675
_SAMPLES_TAG = 262  # PhotometricInterpretation
_WHITE_IS_ZERO, _SEPARATED, _CIELAB = 0, 5, 8  # kinds of samples there; separated is CMYK
_CHANNELS_TAG, _SUB_DIRECTORIES_TAG = 277, 330
_SRGB = ColorInfo(primaries=1, transfer=13, matrix=1, range_specified=True)
"""As video. In JPEG's YCbCr (BT.601, full range) swscale makes a photograph's red and blue 0.8 of
255 darker, and its green 0.6 lighter; so it is 0.2 and 0.1."""
_BMP_HEADERS = tuple(size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124))
_EXIF = b"Exif\0\0"
_XMP_TEXT = b"XML:com.adobe.xmp"
_XMP_SEGMENTS = (b"http://ns.adobe.com/xap/1.0/", b"http://ns.adobe.com/xmp/extension/")
_JPEG_PROFILE = b"ICC_PROFILE\0"
_JPEG_PART = 65_519
"""Most of a profile in one segment of a JPEG file (ICC.1:2010, B.4)."""


CODED = ("avif", "heif")
"""Kinds with a video codec's pictures in the boxes of MP4."""


class _BrokenError(Exception):
    """A file is damaged; the message states the damage."""


@dataclass(slots=True)
class StillFacts:
    """Facts in a file about its picture, before that is decoded."""

    kind: str = ""
    """One of :data:`bgsoft.media.containers.STILL_NAMES`."""
    width: int = 0
    height: int = 0
    """Stored height, pixels."""
    orientation: int = 1
    """EXIF's orientation; from 5 on, width and height are swapped."""
    bits: int = 8
    """Bits of a sample."""
    profile: bytes = b""
    """ICC profile of the colours; empty: there is none."""
    metadata: dict[str, None] = field(default_factory=dict)
    """Names of its other metadata: EXIF's tags, XMP, comments. None is copied."""
    is_cmyk: bool = False
    is_lab: bool = False
    """It has L*a*b* samples (TIFF)."""
    color: tuple[int, int] = (0, 0)
    """Declared primaries and transfer (ITU-T H.273); 0: none are declared."""
    has_side_alpha: bool = False
    """Whether it is a PNG file with transparent values, or a TIFF file of grey and alpha. OpenCV
    leaves out the transparency of some of these."""
    is_premultiplied: bool = False
    """Whether the colours of a TIFF file are multiplied by alpha."""
    has_spare_channel: bool = False
    """Whether the channel after the colours of a TIFF file is not alpha."""
    is_inverted: bool = False
    """Whether 0 is white, in a grey TIFF file."""
    is_thumbnail: bool = False
    """Whether the first page of a TIFF file is a smaller version of another."""
    animated: bool = False
    has_more_pages: bool = False
    """After the first, which is the picture; of TIFF files."""

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), upright."""
        swaps = self.orientation in (5, 6, 7, 8)
        return (self.height, self.width) if swaps else (self.width, self.height)

    @property
    def video_color(self) -> ColorInfo:
        """Colour description of its frame; sRGB's where a profile describes the colours."""
        primaries, transfer = self.color
        matrix = 9 if primaries == 9 else 1
        labelled = replace(_SRGB, primaries=primaries, transfer=transfer, matrix=matrix)
        return _SRGB if self.profile or labelled.is_near_srgb else labelled


def still_kind(head: bytes) -> str | None:
    """The kind of still that a file's first bytes tell; None: none that is read."""
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    if head.startswith((b"II*\0", b"MM\0*")):
        return "tiff"
    if head.startswith(b"BM") and head[6:10] == bytes(4) and head[14:18] in _BMP_HEADERS:
        return "bmp"
    return coded_kind(head)


def read_file(path: Path) -> tuple[StillFacts, bytes]:
    """A picture file's contents, and what they say of the picture.

    Raises:
        OpenError: It cannot be read, is damaged or cut off.
        UnsupportedFormatError: It is none of the kinds that are read, is too large, or moves.
    """
    kind = still_kind(read_head(path))
    if kind is None:
        text = f"cannot read {path}: it is none of {', '.join(STILL_NAMES.values())}"
        raise UnsupportedFormatError(text, path=path)
    with os_errors_as(OpenError, f"cannot read {path}", path=path):
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UnsupportedFormatError(
                f"cannot read {path}: it is too large for a picture", path=path
            )
        data = path.read_bytes()
    try:
        facts = _coded(path, data, kind) if kind in CODED else _FACTS[kind](data)
    except (_BrokenError, struct.error, IndexError, ValueError, zlib.error) as exc:
        reason = f": {exc}" if isinstance(exc, _BrokenError) else ""
        raise OpenError(f"cannot read {path}: it is damaged or cut off{reason}", path=path) from exc
    facts.kind = kind
    _check(path, facts)
    return facts, data


def _coded(path: Path, data: bytes, kind: str) -> StillFacts:
    """AVIF and HEIF, which are read by libraries."""
    try:
        picture = open_coded(data, kind)
    except UnsupportedFormatError as exc:
        raise UnsupportedFormatError(f"cannot read {path}: {exc}", path=path) from exc
    width, height = picture.image.size
    facts = StillFacts(
        width=width,
        height=height,
        bits=picture.bits,
        profile=picture.profile,
        color=picture.color,
        animated=picture.frames > 1,
    )
    _read_exif(facts, (picture.image.info.get("exif") or b"").removeprefix(_EXIF))
    facts.orientation = picture.orientation
    if picture.image.info.get("xmp"):
        facts.metadata["XMP"] = None
    return facts


def _check(path: Path, facts: StillFacts) -> None:
    size = f"{facts.width}x{facts.height}"
    if facts.width < 1 or facts.height < 1:
        raise OpenError(f"cannot read {path}: it is damaged: its size is {size}", path=path)
    if facts.width * facts.height > _MAX_PIXELS:
        text = f"cannot read {path}: its {size} pixels exceed the limit of {_MAX_PIXELS}"
        raise UnsupportedFormatError(text, path=path)
    if facts.is_thumbnail:
        text = "it begins with a thumbnail, as camera raw does; develop it to TIFF or JPEG first"
        raise UnsupportedFormatError(f"cannot read {path}: {text}", path=path)
    if facts.animated:
        text = f"cannot read {path}: it is an animated picture; convert it to a video first"
        raise UnsupportedFormatError(text, path=path)


def _bmp(data: bytes) -> StillFacts:
    """Read the header of a BMP file, whose length decides its form."""
    if data[14:18] == _BMP_HEADERS[0]:
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
    return StillFacts(width=width, height=abs(height))


def _png(data: bytes) -> StillFacts:
    """PNG (ISO/IEC 15948): chunks up to ``IEND``, each with a checksum."""
    facts, at, name = StillFacts(), 8, b""
    while name != b"IEND":
        (length,) = struct.unpack_from(">I", data, at)
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        if checksum != zlib.crc32(body, zlib.crc32(name)):
            raise _BrokenError(f"wrong checksum of its {name.decode('latin-1')} chunk")
        if at == 8:
            if name != b"IHDR":
                raise _BrokenError("it has no header")
            facts.width, facts.height, facts.bits = struct.unpack_from(">IIB", body)
            if facts.width * facts.height > _MAX_PIXELS:
                return facts
        elif name == b"iCCP":
            packed = body[body.index(b"\0") + 2 :]
            facts.profile = zlib.decompressobj().decompress(packed, _MAX_PROFILE)
        elif name == b"cICP":
            facts.color = body[0], body[1]
        elif name == b"tRNS":
            facts.has_side_alpha = True
        elif name == b"eXIf":
            _read_exif(facts, body)
        elif name in (b"tEXt", b"zTXt", b"iTXt"):
            keyword = body.partition(b"\0")[0]
            text = "XMP" if keyword == _XMP_TEXT else keyword.decode("latin-1")
            facts.metadata[text] = None
        elif name == b"tIME":
            facts.metadata["date"] = None
        facts.animated |= name == b"acTL"
        at += 12 + length
    return facts


def _jpeg(data: bytes) -> StillFacts:
    """JPEG (ITU-T T.81): segments up to the picture, which an end marker follows."""
    facts, at = StillFacts(), 2
    parts: dict[int, bytes] = {}
    while True:
        if data[at] != 0xFF:
            raise _BrokenError("invalid JPEG marker")
        marker = data[at + 1]
        if marker == 0xFF:  # fill bytes
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        body = data[at + 4 : at + 2 + length]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            facts.height, facts.width, channels = struct.unpack_from(">HHB", body, 1)
            facts.is_cmyk = channels == 4
        elif marker == 0xE1 and body.startswith(_EXIF):
            _read_exif(facts, body[len(_EXIF) :])
        elif marker == 0xE1 and body.startswith(_XMP_SEGMENTS):
            facts.metadata["XMP"] = None
        elif marker in (0xED, 0xFE):
            facts.metadata["comment" if marker == 0xFE else "IPTC"] = None
        elif marker == 0xE2 and body.startswith(_JPEG_PROFILE):
            parts[body[len(_JPEG_PROFILE)]] = body[len(_JPEG_PROFILE) + 2 :]
        at += 2 + length
        if marker == 0xDA:
            break
    if data.find(b"\xff\xd9", at) < 0:
        raise _BrokenError("its end is missing")
    facts.profile = b"".join(parts[number] for number in sorted(parts))
    return facts


def _webp(data: bytes) -> StillFacts:
    """WebP (RFC 9649): chunks in a RIFF file, which says how long it is."""
    facts, at = StillFacts(), 12
    (length,) = struct.unpack_from("<I", data, 4)
    if len(data) < length + 8:
        raise _BrokenError("its end is missing")
    while at + 8 <= length + 8:
        name, (size,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        body = data[at + 8 : at + 8 + size]
        if name == b"VP8X":
            facts.animated = bool(body[0] & 2)
            facts.width = 1 + int.from_bytes(body[4:7], "little")
            facts.height = 1 + int.from_bytes(body[7:10], "little")
        elif name == b"VP8 " and not facts.width:
            facts.width, facts.height = (x & 0x3FFF for x in struct.unpack_from("<HH", body, 6))
        elif name == b"VP8L" and not facts.width:
            (bits,) = struct.unpack_from("<I", body, 1)
            facts.width, facts.height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        elif name == b"ICCP":
            facts.profile = body
        elif name == b"EXIF":
            _read_exif(facts, body.removeprefix(_EXIF))
        elif name == b"XMP ":
            facts.metadata["XMP"] = None
        at += 8 + size + size % 2
    return facts


def _tiff(data: bytes) -> StillFacts:
    tags = dict(_tiff_tags(data))
    has_more_pages = _has_more_pages(data)

    def number(tag: int, default: int) -> int:
        return int.from_bytes(tags[tag][:4], _byte_order(data)) if tag in tags else default

    return StillFacts(
        width=number(_WIDTH_TAG, 0),
        height=number(_HEIGHT_TAG, 0),
        orientation=number(_ORIENTATION_TAG, 1),
        bits=int.from_bytes(tags.get(_BITS_TAG, b"\1")[:2], _byte_order(data)),
        profile=tags.get(_PROFILE_TAG, b""),
        metadata=_metadata(tags),
        is_cmyk=number(_SAMPLES_TAG, 0) == _SEPARATED,
        is_lab=number(_SAMPLES_TAG, 0) == _CIELAB,
        has_side_alpha=number(_CHANNELS_TAG, 1) == 2,
        is_premultiplied=number(_EXTRA_SAMPLES_TAG, 2) == 1,
        has_spare_channel=number(_EXTRA_SAMPLES_TAG, 2) == 0,
        is_inverted=number(_SAMPLES_TAG, 1) == _WHITE_IS_ZERO,
        is_thumbnail=number(_SUBFILE_TAG, 0) & 1 == 1
        and (has_more_pages or _SUB_DIRECTORIES_TAG in tags),
        has_more_pages=has_more_pages,
    )


def _has_more_pages(data: bytes) -> bool:
    """Return whether another page follows; a smaller version of the first does not count."""
    order = _byte_order(data)
    try:
        start = int.from_bytes(data[4:8], order)
        at = start + 2 + 12 * int.from_bytes(data[start : start + 2], order)
        second = int.from_bytes(data[at : at + 4], order)
        kind = dict(_tiff_tags(data, second)).get(_SUBFILE_TAG, b"") if second else b"\1\1\1\1"
    except (struct.error, IndexError):  # the first can be read all the same
        return False
    return not int.from_bytes(kind[:4], order) & 1


_MAX_PROFILE = 16 << 20
_FACTS: dict[str, Callable[[bytes], StillFacts]] = {
    "jpeg": _jpeg,
    "png": _png,
    "webp": _webp,
    "tiff": _tiff,
    "bmp": _bmp,
}


def _read_exif(facts: StillFacts, exif: bytes) -> None:
    """Note EXIF's orientation, which is 1 (upright) where it says none or cannot be read."""
    try:
        tags = dict(_tiff_tags(exif))
    except (struct.error, IndexError):
        return
    facts.orientation = int.from_bytes(tags.get(_ORIENTATION_TAG, b"\1"), _byte_order(exif))
    facts.metadata |= _metadata(tags)


def _metadata(tags: Iterable[int]) -> dict[str, None]:
    return {PICTURE_TAGS[tag]: None for tag in tags if tag in PICTURE_TAGS}


def _byte_order(data: bytes) -> Literal["little", "big"]:
    return "little" if data.startswith(b"II") else "big"


def _tiff_tags(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The tags of a TIFF file's directory, with their bytes (TIFF 6.0, section 2); 0: the first."""
    order = "<" if _byte_order(data) == "little" else ">"
    start = start or struct.unpack_from(f"{order}I", data, 4)[0]
    (count,) = struct.unpack_from(f"{order}H", data, start)
    for at in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", data, at)
        length = number * {3: 2, 4: 4}.get(kind, 1)
        place = at + 8 if length <= 4 else struct.unpack_from(f"{order}I", data, at + 8)[0]
        yield tag, data[place : place + length]


def with_profile(data: bytes, profile: bytes) -> bytes:
    """A file just encoded, with a colour profile."""
    kind = still_kind(data)
    if kind == "png":
        return _with_png_chunk(data, b"iCCPicc\0\0" + zlib.compress(profile))
    if kind == "jpeg":
        parts = [profile[at : at + _JPEG_PART] for at in range(0, len(profile), _JPEG_PART)]
        segments = b""
        for number, part in enumerate(parts, 1):
            body = _JPEG_PROFILE + bytes((number, len(parts))) + part
            segments += b"\xff\xe2" + struct.pack(">H", len(body) + 2) + body
        after = 4 + int.from_bytes(data[4:6], "big") if data[2:4] == b"\xff\xe0" else 2
        return data[:after] + segments + data[after:]
    if kind == "webp":
        return _webp_with_profile(data, profile)
    return _with_tiff_tag(data, _PROFILE_TAG, 7, len(profile), profile)


def with_color(data: bytes, primaries: int, transfer: int) -> bytes:
    """A PNG file just encoded, with a label of its R'G'B' (ITU-T H.273), of full range."""
    return _with_png_chunk(data, b"cICP" + bytes((primaries, transfer, 0, 1)))


def _with_png_chunk(data: bytes, body: bytes) -> bytes:
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:33] + chunk + data[33:]  # after the signature and IHDR


def with_alpha(data: bytes) -> bytes:
    """A file with four channels just encoded, the last of which is straight alpha.

    OpenCV's TIFF files do not say so.
    """
    if still_kind(data) != "tiff":
        return data
    return _with_tiff_tag(data, _EXTRA_SAMPLES_TAG, 3, 1, (2).to_bytes(2, _byte_order(data)))


def _with_tiff_tag(data: bytes, tag: int, kind: int, number: int, value: bytes) -> bytes:
    """Return a TIFF file with one more tag; its directory is written again, at the end."""
    order = "<" if _byte_order(data) == "little" else ">"
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    first, end = start + 2, start + 2 + 12 * count
    entries = [data[at : at + 12] for at in range(first, end, 12)]
    data += b"\0" * (len(data) % 2)
    place = value.ljust(4, b"\0")
    if len(value) > 4:
        place = struct.pack(f"{order}I", len(data))
        data += value + b"\0" * (len(value) % 2)
    entries.append(struct.pack(f"{order}HHI", tag, kind, number) + place)
    entries.sort(key=lambda entry: struct.unpack_from(f"{order}H", entry))
    where = struct.pack(f"{order}I", len(data))
    directory = struct.pack(f"{order}H", count + 1) + b"".join(entries) + data[end : end + 4]
    return data[:4] + where + data[8:] + directory


def _webp_with_profile(data: bytes, profile: bytes) -> bytes:
    facts, body = _webp(data), data[12:]
    flags = 0x20
    if body.startswith(b"VP8X"):
        flags |= body[8]
        body = body[18:]
    elif body.startswith(b"VP8L"):
        flags |= body[12] & 0x10  # the bit of alpha lies where VP8X has it
    sizes = (x.to_bytes(3, "little") for x in (facts.width - 1, facts.height - 1))
    extended = b"VP8X" + struct.pack("<II", 10, flags) + b"".join(sizes)
    icc = b"ICCP" + struct.pack("<I", len(profile)) + profile + b"\0" * (len(profile) % 2)
    whole = b"WEBP" + extended + icc + body
    return b"RIFF" + struct.pack("<I", len(whole)) + whole
