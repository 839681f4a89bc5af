"""Reads one stream's pictures with an NVDEC session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import av

from bgsoft.decode.nv_session import NvPicture, NvSession
from bgsoft.decode.reader import StreamReader
from bgsoft.media.info import VideoInfo

__all__ = ["NvReader"]


class NvReader(StreamReader[NvPicture]):
    """Decodes one stream of a file on the device; opening and seeking are the CPU reader's.

    A picture has to be used before the next one is asked for: see
    :class:`~bgsoft.decode.nv_session.NvPicture`.

    Args:
        info: The stream, as probed.
        session: Decodes its codec.
    """

    def __init__(self, info: VideoInfo, session: NvSession) -> None:
        super().__init__(info)
        self._session = session

    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[NvPicture]:
        pictures = self._decode_stored(position)
        start = self._info.start_pts
        if position is not None or start is None:
            return pictures
        # NVDEC shows leading pictures whose references were cut away; FFmpeg does not.
        return itertools.dropwhile(lambda p: p.pts is not None and p.pts < start, pictures)

    def _decode_stored(self, position: int | None) -> Iterator[NvPicture]:
        """Decode all that NVDEC shows."""
        container, stream = self._open()
        if position is not None:
            try:
                container.seek(position, stream=stream, backward=True)
            except av.FFmpegError:
                return
        session = self._session
        session.restart(stream)
        counted = session.corrupt_packets
        for packet in self._packets(container, stream):
            yield from session.decode(packet)
            self.corrupt_packets += session.corrupt_packets - counted
            counted = session.corrupt_packets
        yield from session.drain()
        self.corrupt_packets += session.corrupt_packets - counted
