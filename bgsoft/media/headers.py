"""Header fields that FFmpeg's muxers do not write through PyAV.

They are set in the finished file, or in what a pipe has not been sent yet.

QuickTime: the languages of its tracks. FFmpeg's muxer knows the Macintosh's own list of languages
only. The format also takes the three letters of ISO 639-2, five bits each (QuickTime File Format,
"Language code values"), which is what its demuxer reads and MP4 has.

QuickTime and MP4: a subtitle track that is not to be shown unless asked for. FFmpeg's muxer enables
the first where none is.

Matroska and WebM: the pixel aspect. FFmpeg's muxer writes the size at which a picture is shown from
a field of its stream that PyAV cannot set. So the video track gets a name with spare bytes at its
end. In the finished header the display size takes these bytes, and nothing else in the file moves.

WebP: the flag that a frame of an animation replaces the one before. FFmpeg's muxer leaves it out,
so earlier frames would show through transparent samples.
"""

from __future__ import annotations

import io
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

_CODE = "[a-z]{3}"
_HEADER_BYTES = 8
_FIELD = {0: 28, 1: 40}
"""Offset of the language in a media header (``mdhd``), by its version; bytes from the box's start.
"""
_RIFF_BYTES, _FRAME_FLAGS = 12, 23
"""Where WebP's first chunk begins; offset of the flags in a frame's chunk."""
_DO_NOT_BLEND = b"\x02"


def write_languages(path: Path, languages: Sequence[str]) -> None:
    """Set the languages of a complete QuickTime file's tracks.

    Args:
        path: The file, its movie header before the data.
        languages: Language of each track; one that is not a code of three letters is not written.
    """
    with path.open("r+b") as file:
        at, movie, tracks = _tracks(file)
        for track, language in zip(tracks, languages, strict=False):
            media = next(box for kind, box in _boxes(movie, track) if kind == b"mdia")
            begin = next(box[0] for kind, box in _boxes(movie, media) if kind == b"mdhd")
            if re.fullmatch(_CODE, language):
                first, second, third = (ord(letter) - 0x60 for letter in language)
                file.seek(at + begin + _FIELD[movie[begin + _HEADER_BYTES]])
                file.write((first << 10 | second << 5 | third).to_bytes(2, "big"))


def disable_track(path: Path, number: int) -> None:
    """Clear the enabled flag of a track; the file is as for :func:`write_languages`."""
    with path.open("r+b") as file:
        at, movie, tracks = _tracks(file)
        track = next(itertools.islice(tracks, number, None))
        begin = next(box[0] for kind, box in _boxes(movie, track) if kind == b"tkhd")
        flags = begin + _HEADER_BYTES + 3
        file.seek(at + flags)
        file.write(bytes([movie[flags] & ~1]))


def replace_frames(path: Path) -> None:
    """Let each frame of a finished WebP animation replace the one before (RFC 9649, 2.7.1.1)."""
    with path.open("r+b") as file:
        at = _RIFF_BYTES
        file.seek(at)
        while header := file.read(_HEADER_BYTES):
            if header[:4] == b"ANMF":
                file.seek(at + _FRAME_FLAGS)
                file.write(_DO_NOT_BLEND)
            size = int.from_bytes(header[4:], "little")
            at += _HEADER_BYTES + size + size % 2
            file.seek(at)


def _tracks(file: BinaryIO) -> tuple[int, bytes, Iterator[tuple[int, int]]]:
    """Return where a file's movie header begins, the header, and its tracks' places in that."""
    at = 0
    while len(header := file.read(_HEADER_BYTES)) == _HEADER_BYTES and header[4:] != b"moov":
        at += int.from_bytes(header[:4], "big")
        file.seek(at)
    movie = header + file.read(int.from_bytes(header[:4], "big") - _HEADER_BYTES)
    return at, movie, (box for kind, box in _boxes(movie, (0, len(movie))) if kind == b"trak")


def _boxes(data: bytes, parent: tuple[int, int]) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """(kind, (begin, end)) of the boxes inside another."""
    begin, end = parent[0] + _HEADER_BYTES, parent[1]
    while begin < end:
        size = int.from_bytes(data[begin : begin + 4], "big")
        yield data[begin + 4 : begin + _HEADER_BYTES], (begin, begin + size)
        begin += max(size, _HEADER_BYTES)


ROOM = " " * 32
"""Required end of the first track's name."""

SEGMENT = b"\x18\x53\x80\x67"
TRACKS = b"\x16\x54\xae\x6b"
TRACK_ENTRY = b"\xae"
VIDEO = b"\xe0"
"""Matroska's elements (RFC 9559), one inside the other."""
_NAME = b"\x53\x6e"
_PIXEL_WIDTH, _PIXEL_HEIGHT = b"\xb0", b"\xba"
_DISPLAY_WIDTH, _DISPLAY_HEIGHT, _DISPLAY_UNIT = b"\x54\xb0", b"\x54\xba", b"\x54\xb2"
_ASPECT_UNIT = 3
_CRC32 = b"\xbf"
_VOID = b"\xec"
_HEAD_BYTES = 12
"""Longest identifier and size of an element."""


def write_pixel_aspect(file: BinaryIO, aspect: Fraction) -> None:
    """Set the pixel aspect of a header's first track, whose name ends with :data:`ROOM`.

    Args:
        file: A complete file, or its header; open for reading and writing.
        aspect: Width of a pixel over its height.
    """
    at = 0
    while True:
        file.seek(at)
        kind, begin, end = _head(file.read(_HEAD_BYTES), 0)
        if kind == TRACKS:
            break
        at += begin if kind == SEGMENT else end
    file.seek(at + begin)
    tracks = file.read(end - begin)
    file.seek(at + begin)
    file.write(_with_aspect(tracks, aspect))


def with_pixel_aspect(header: bytes, muxer: str, aspect: Fraction) -> bytes:
    """A header of Matroska's, WebM's or YUV4MPEG's that is not sent yet, with a pixel aspect."""
    if muxer == "yuv4mpegpipe":
        told = f" A{aspect.numerator}:{aspect.denominator}".encode()
        return re.sub(rb" A\d+:\d+", told, header, count=1)
    file = io.BytesIO(header)
    write_pixel_aspect(file, aspect)
    return file.getvalue()


def _with_aspect(tracks: bytes, aspect: Fraction) -> bytes:
    """The track list with the aspect in its first entry, exactly as long."""
    entries = list(elements(tracks))
    entry = next(content for kind, content in entries if kind == TRACK_ENTRY)
    written = b""
    for kind, content in elements(entry):
        if kind == _NAME:
            content = content.decode().removesuffix(ROOM).encode()
            if not content:
                continue
        elif kind == VIDEO:
            content += _display_size(content, aspect)
        written += _element(kind, content)
    written += _element(_VOID, bytes(len(entry) - len(written) - 9), 8)
    tracks = tracks.replace(entry, written, 1)
    if entries[0][0] == _CRC32:
        checked = tracks[6:]
        tracks = _element(_CRC32, zlib.crc32(checked).to_bytes(4, "little")) + checked
    return tracks


def _display_size(video: bytes, aspect: Fraction) -> bytes:
    """The elements that hold the display size: in pixels where it is whole, else as a ratio."""
    stored = {kind: int.from_bytes(content, "big") for kind, content in elements(video)}
    height = Fraction(stored[_PIXEL_HEIGHT])
    width = stored[_PIXEL_WIDTH] * aspect
    unit = 0
    if width.denominator > 1:
        ratio = width / height
        width, height, unit = Fraction(ratio.numerator), Fraction(ratio.denominator), _ASPECT_UNIT
    sizes = ((_DISPLAY_WIDTH, width), (_DISPLAY_HEIGHT, height), (_DISPLAY_UNIT, unit))
    return b"".join(_element(kind, int(value).to_bytes(4, "big")) for kind, value in sizes)


def elements(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(identifier, content) of the elements side by side in some bytes."""
    at = 0
    while at < len(data):
        kind, begin, end = _head(data, at)
        yield kind, data[begin:end]
        at = end


def _head(data: bytes, at: int) -> tuple[bytes, int, int]:
    """(identifier, begin and end of the content) of the element that starts at a place."""
    size_at = at + 9 - data[at].bit_length()
    begin = size_at + 9 - data[size_at].bit_length()
    size = int.from_bytes(data[size_at:begin], "big") & ((1 << 7 * (begin - size_at)) - 1)
    return data[at:size_at], begin, begin + size


def _element(kind: bytes, content: bytes, length: int = 0) -> bytes:
    """An element; its size takes ``length`` bytes, or as few as it can."""
    length = length or next(n for n in range(1, 9) if len(content) < (1 << 7 * n) - 1)
    return kind + (len(content) | 1 << 7 * length).to_bytes(length, "big") + content
