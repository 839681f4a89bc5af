"""Completes a written file: header fields that FFmpeg's muxer cannot write, and what it lost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from av.container import OutputContainer
from av.stream import Disposition

from bgsoft.media.containers import Container
from bgsoft.media.headers import (
    disable_track,
    replace_frames,
    write_languages,
    write_pixel_aspect,
)
from bgsoft.media.source import open_input
from bgsoft.media.tags import Labels, is_picture

if TYPE_CHECKING:
    from bgsoft.media.sent import SentFile


class Completion:
    """Description of an output whose trailer is about to be written.

    Args:
        output: The output.
        container: Its kind.
        file: Its path.
        sent: Where it is sent in order; None: it is a file that can be changed.
    """

    def __init__(
        self, output: OutputContainer, container: Container, file: Path, sent: SentFile | None
    ) -> None:
        self._container, self._file, self._sent = container, file, sent
        self._wanted = Labels.of(output)
        self._languages = [stream.metadata.get("language", "") for stream in output.streams]
        self._enabled = _wrongly_enabled(output) if container.edit_lists else None

    def correct(self, aspect: Fraction | None) -> None:
        """Correct the header of the finished file.

        Args:
            aspect: Pixel aspect, for which the header has room; None: unchanged.
        """
        if self._container.muxer == "mov":
            write_languages(self._file, self._languages)
        if self._container.muxer == "webp":
            replace_frames(self._file)
        if self._enabled is not None:
            disable_track(self._file, self._enabled)
        if self._sent is not None:
            self._sent.close()
        elif aspect is not None:
            with self._file.open("r+b") as file:
                write_pixel_aspect(file, aspect)

    def lost(self) -> list[str]:
        """Return the labels that the finished file lacks, in words for a message."""
        kept = self._kept()
        return [] if kept is None else self._wanted.lost_in(kept)

    def _kept(self) -> Labels | None:
        """Return the labels of the finished file; None where it cannot be read back."""
        if self._sent is not None:
            return self._sent.labels()
        if not self._container.reads_back:
            return Labels(tags={}, tracks={}, pictures=0)
        # No decoder is let near it: decoding its first picture takes 10 ms and more.
        with open_input(self._file, codec_whitelist="none") as kept:
            return Labels.of(kept)


def _wrongly_enabled(output: OutputContainer) -> int | None:
    """Return the subtitle track that FFmpeg's muxer enables though none is the default."""
    tracks = [stream for stream in output.streams if not is_picture(stream)]
    subtitles = [stream for stream in tracks if stream.type == "subtitle"]
    if not subtitles or any(each.disposition & Disposition.default for each in subtitles):
        return None
    return tracks.index(subtitles[0])
