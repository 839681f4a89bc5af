"""Languages of QuickTime tracks.

FFmpeg's muxer knows the Macintosh's own list of languages only. The format also takes the three
letters of ISO 639-2, five bits each (QuickTime File Format, "Language code values"), which is what
its demuxer reads and MP4 has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["write_languages"]

_CODE = re.compile("[a-z]{3}")
_HEADER_BYTES = 8
_FIELD = {0: 28, 1: 40}
"""Where a media header (``mdhd``) has its language, by its version; bytes from the box's start."""


def write_languages(path: Path, languages: Sequence[str]) -> None:
    """Set the languages of a complete QuickTime file's tracks.

    Args:
        path: The file, its movie header before the data.
        languages: Of each track; what is no code of three letters is left as it is.

    Raises:
        OSError: The file cannot be read or written.
    """
    with path.open("r+b") as file:
        at = 0
        while len(header := file.read(_HEADER_BYTES)) == _HEADER_BYTES and header[4:] != b"moov":
            at += int.from_bytes(header[:4], "big")
            file.seek(at)
        movie = header + file.read(int.from_bytes(header[:4], "big") - _HEADER_BYTES)
        tracks = (box for kind, box in _boxes(movie, (0, len(movie))) if kind == b"trak")
        for track, language in zip(tracks, languages, strict=False):
            media = next(box for kind, box in _boxes(movie, track) if kind == b"mdia")
            begin = next(box[0] for kind, box in _boxes(movie, media) if kind == b"mdhd")
            if _CODE.fullmatch(language):
                first, second, third = (ord(letter) - 0x60 for letter in language)
                file.seek(at + begin + _FIELD[movie[begin + _HEADER_BYTES]])
                file.write((first << 10 | second << 5 | third).to_bytes(2, "big"))


def _boxes(data: bytes, parent: tuple[int, int]) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """(kind, (begin, end)) of the boxes inside another."""
    begin, end = parent[0] + _HEADER_BYTES, parent[1]
    while begin < end:
        size = int.from_bytes(data[begin : begin + 4], "big")
        yield data[begin + 4 : begin + _HEADER_BYTES], (begin, begin + size)
        begin += max(size, _HEADER_BYTES)
