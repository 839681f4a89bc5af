"""Output that is written once and in order: its header is corrected before it is sent."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av

from bgsoft.closing import Closing
from bgsoft.media.containers import Container
from bgsoft.media.headers import with_pixel_aspect
from bgsoft.media.pyav import TAG_OPTIONS
from bgsoft.media.tags import Labels
from bgsoft.pipes import PipeOutput

_MORE_BYTES = 1 << 18
"""Bytes kept after a header: MPEG-TS has no header, but tables among its first packets."""


class SentFile(Closing):
    """Target of FFmpeg's muxer: a file without ``seek``.

    Args:
        target: Target: a pipe, which stays open, or the path of a file.
    """

    def __init__(self, target: PipeOutput | Path) -> None:
        self._file: BinaryIO | None = None
        if isinstance(target, PipeOutput):
            self._send: Callable[[bytes], int] = target.write
        else:
            self._file = target.open("wb")
            self._send = self._file.write
        self._begun = bytearray()
        """The header and a few bytes after it."""
        self._header_bytes: int | None = None
        """None: the header is not sent yet."""

    def write(self, data: bytes) -> int:
        """Take what the muxer has written; OSError where the target does not."""
        if self._header_bytes is None:
            self._begun += data
            return len(data)
        if len(self._begun) < self._header_bytes + _MORE_BYTES:
            self._begun += data
        self._send(data)
        return len(data)

    def send_header(self, container: Container, aspect: Fraction | None) -> None:
        """Send the header, which the muxer has written, with a pixel aspect; None: unchanged."""
        header = bytes(self._begun)
        if aspect is not None:
            header = with_pixel_aspect(header, container.muxer, aspect)
        self._begun = bytearray(header)
        self._header_bytes = len(header)
        self._send(header)

    def labels(self) -> Labels | None:
        """Return the header's contents, read back; None where it cannot be read by itself."""
        with suppress(av.FFmpegError), av.open(io.BytesIO(self._begun), **TAG_OPTIONS) as file:
            return Labels.of(file)
        return None

    def close(self) -> None:
        """Complete the file; of a pipe, its owner does that."""
        if self._file is not None:
            self._file.close()
