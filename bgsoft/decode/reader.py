"""One stream's decoded frames in presentation order, over damaged parts too."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from fractions import Fraction
from typing import Generic, Protocol, TypeVar

import av
from av.container import InputContainer
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bgsoft.errors import OpenError
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import TimedDecoder
from bgsoft.media.pyav import exact
from bgsoft.media.source import RAW_STREAMS, open_input

_MAX_READ_ERRORS = 64
"""Read errors in a row, without a packet between them, after which a file is given up."""
_SEEK_BACK_SECONDS = (0, 2, 10, 40)
"""How far before the wanted time to seek, one after the other, until an intact key frame from
before it comes out. Containers seek by decoding time, and MPEG-TS does not know its key frames."""
NOT_SEEKABLE = (*RAW_STREAMS, "gif")
"""Demuxers without an index and timestamps: a start is found by decoding."""


class DecodedPicture(Protocol):
    """A decoded picture of any decoder, with its timestamps from the demuxer."""

    @property
    def key_frame(self) -> bool: ...
    @property
    def is_corrupt(self) -> bool: ...  # patched over damaged data
    @property
    def pts(self) -> int | None: ...
    @property
    def dts(self) -> int | None: ...
    @property
    def duration(self) -> int: ...  # 0: unknown


P = TypeVar("P", bound=DecodedPicture)


class StreamReader(ABC, Generic[P]):
    """Reads one stream of a file; a subclass decodes its packets.

    The first picture is the first that FFmpeg's decoder shows. It keeps back what an edit list
    hides, and what lacks its references where a stream begins inside a group of pictures.
    """

    def __init__(self, info: VideoInfo) -> None:
        self._info = info
        self._container: InputContainer | None = None
        self.corrupt_packets = 0
        """Packets that the demuxer or the decoder rejected."""
        self.read_error: str | None = None
        """Why reading ended before the end of the file; None where it did not."""

    def frames(self, from_pts: int | None = None) -> Generator[P, None, None]:
        """Decode to the end of the file; counts start anew.

        Args:
            from_pts: Frames from here on are wanted; earlier ones may come out as well. None: all.

        Raises:
            OpenError: The file has changed since it was probed.
        """
        self.corrupt_packets = 0
        self.read_error = None
        try:
            yield from self._read(from_pts)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _read(self, from_pts: int | None, *, threaded: bool = True) -> Iterator[P]:
        """Decode from an intact key frame at or before a pts, or from the file's beginning."""
        info, pts = self._info, from_pts
        if pts is None or info.container in NOT_SEEKABLE:
            return self._decode(None, threaded=threaded)
        errors = self.corrupt_packets
        for seconds in _SEEK_BACK_SECONDS:
            position = pts - round(seconds / info.time_base)
            if seconds and info.start_pts is not None and position <= info.start_pts:
                break
            frames = self._decode(position, threaded=threaded)
            for frame in frames:
                if frame.pts is None:
                    continue
                if frame.pts > pts:
                    break
                if frame.key_frame and not frame.is_corrupt:
                    return itertools.chain((frame,), frames)
            self.corrupt_packets = errors
        return self._decode(None, threaded=threaded)

    @abstractmethod
    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[P]:
        """Decode from a pts (None: the beginning) to the end; nothing where seeking fails."""

    def _open(self, position: int | None) -> VideoStream | None:
        """Open the file, at a pts; None where it cannot seek there."""
        self.close()
        path = self._info.path
        self._container = container = open_input(path)
        index = self._info.stream_index
        stream = container.streams[index] if index < len(container.streams) else None
        if not isinstance(stream, VideoStream) or stream.codec_context is None:
            raise OpenError(f"{path} has changed while it was read", path=path)
        if position is not None:
            try:
                container.seek(position, stream=stream, backward=True)
            except av.FFmpegError:
                return None
        return stream

    def _packets(self, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
        """All packets of the open stream; read errors are counted and skipped."""
        assert self._container is not None
        container = self._container
        errors_in_a_row = 0
        while errors_in_a_row < _MAX_READ_ERRORS:
            try:
                for packet in container.demux(stream):
                    # Empty packets (AVI's repeated frames, PyAV's last one) would end the decoder.
                    if packet.size:
                        errors_in_a_row = 0
                        yield packet
                return
            except (av.FFmpegError, IndexError) as exc:
                # IndexError is PyAV's answer where a damaged MPEG-TS shows new streams midway.
                self.corrupt_packets += 1
                errors_in_a_row += 1
                error = str(exc)
        self.read_error = error


class FrameReader(StreamReader[VideoFrame]):
    """Decodes one stream of a file with FFmpeg's decoders."""

    def __init__(self, info: VideoInfo, threads: int = 0) -> None:
        super().__init__(info)
        self._threads = threads
        self._pending: set[int] = set()
        self._codec: VideoCodecContext | None = None

    @property
    def pixel_aspect(self) -> Fraction:
        """Width over height of the last frames' pixels, by the codec's header; 1 where it has none.

        A container may differ: only a change of it means something.
        """
        known = None if self._codec is None else exact(self._codec.sample_aspect_ratio)
        return known or Fraction(1)

    def _read(self, from_pts: int | None, *, threaded: bool = True) -> Iterator[VideoFrame]:
        last: int | None = None
        for frame in super()._read(from_pts, threaded=threaded):
            last = frame.pts
            yield frame
        if last is not None and self._threads != 1 and max(self._pending, default=last) > last:
            yield from self._tail(last)

    def _tail(self, last: int) -> Iterator[VideoFrame]:
        """The frames after ``last`` that the decoder kept back.

        With frame threads, an error while the decoder is drained hides the frames behind it: PyAV
        cannot go on reading then. Without threads an error belongs to its packet, and draining
        has none.
        """
        counted = self.corrupt_packets
        for frame in super()._read(last, threaded=False):
            if frame.pts is None or frame.pts <= last:
                self.corrupt_packets = counted  # met before, on the first pass
            else:
                yield frame

    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[VideoFrame]:
        stream = self._open(position)
        if stream is None:
            return
        self._codec = stream.codec_context
        stream.codec_context.thread_type = "AUTO" if threaded else "NONE"
        stream.codec_context.thread_count = self._threads if threaded else 1
        pending = self._pending = set()
        decoder = TimedDecoder(stream.codec_context, self._info.container)
        for packet in itertools.chain(self._packets(stream), (None,)):
            stamp = None if packet is None or packet.is_discard else packet.pts
            if stamp is not None and not decoder.untimed:
                pending.add(stamp)
            try:
                frames = decoder.decode(packet)
            except av.FFmpegError:
                self.corrupt_packets += 1
                continue
            for frame in frames:
                pending.discard(frame.pts)
                yield frame
