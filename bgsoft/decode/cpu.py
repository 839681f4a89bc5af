"""Decoding on the CPU by FFmpeg's libraries, through PyAV."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
from av.error import BlockingIOError as WouldBlockError
from av.error import EOFError as EndOfStreamError
from av.filter import Graph
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.convert import PlaneWriter
from bgsoft.decode.stream import StreamDecoder
from bgsoft.frame import ColorInfo, Frame
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import TimedDecoder, first_specified, probe
from bgsoft.media.pyav import exact
from bgsoft.media.swscale import Coding
from bgsoft.records import NamedTuple
from bgsoft.resources import Resources

if TYPE_CHECKING:
    from bgsoft.decode.stills import StillDecoder

_MAX_THREADS = 8


class _Kind(NamedTuple):
    """Properties that all pictures of a stream share, unless it changes."""

    size: tuple[int, int]
    """Width and height as stored."""
    pixel_format: str
    coding: Coding
    light: ColorInfo
    """Primaries and transfer."""
    rotation: int
    """Clockwise degrees, as frames say; mirrored upside down counts as none."""


class CpuDecoder(StreamDecoder[VideoFrame]):
    """Decoder of a file's video stream, into ring slots on the host.

    Raises:
        OpenError: The file cannot be opened or has no decodable video.
        UnsupportedFormatError: It is not a video, or no decoder exists for it.
    """

    def __init__(
        self, path: Path, settings: DecodeSettings | None = None, *, info: VideoInfo | None = None
    ) -> None:
        super().__init__(info or probe(path), settings)
        self._writer = PlaneWriter(self.info)
        self._pending: set[int] = set()
        self._codec: VideoCodecContext | None = None
        self.aspects: dict[tuple[int, int], Fraction] = {}
        """Pixel aspect relative to the first, by picture size, for sizes that the stream changes
        to."""

    def _write(self, picture: VideoFrame, frame: Frame) -> None:
        aspect = self.aspects.get((picture.width, picture.height))
        self._writer.write(picture, frame.planes, aspect)
        if self._settings.keeps_chroma:
            frame.original = self._writer.original(picture, frame.planes, aspect)

    def _shown(self, from_pts: int | None) -> Iterator[VideoFrame]:
        """Return the pictures, deinterlaced where needed."""
        deinterlacer: _Deinterlacer | None = None
        last: _Kind | None = None
        for frame in self.pictures(from_pts):
            kind = self._kind(frame)
            if last is None:
                last, first_aspect = self._probed(kind), self._pixel_aspect
            if kind.rotation == 0 or kind.rotation % 90:  # the frame says none, or is damaged
                kind = kind._replace(rotation=last.rotation)
            if kind != last:
                if kind.size != last.size:
                    self.aspects[kind.size] = self._pixel_aspect / first_aspect
                self._report_change(last, kind, frame.pts)
                last = kind
            if deinterlacer is None and (frame.interlaced_frame or self.info.parity):
                deinterlacer = _Deinterlacer(self.info.time_base, self.info.parity)
            if deinterlacer is None:
                yield frame
            else:
                yield from deinterlacer.push(frame)
        if deinterlacer is not None:
            yield from deinterlacer.flush()

    @property
    def _pixel_aspect(self) -> Fraction:
        """Width over height of the last frames' pixels, by the codec's header; 1 where unset.

        The container may say otherwise: only changes of this value count.
        """
        known = None if self._codec is None else exact(self._codec.sample_aspect_ratio)
        return known or Fraction(1)

    def _kind(self, frame: VideoFrame) -> _Kind:
        """Return what a frame has in common with the last one, unless the stream changes."""
        color = self.info.format.color
        return _Kind(
            size=(frame.width, frame.height),
            pixel_format=frame.format.name.replace("yuvj", "yuv"),
            coding=self._writer.coding.of_picture(frame),
            light=ColorInfo(
                primaries=first_specified(frame.color_primaries, color.primaries),
                transfer=first_specified(frame.color_trc, color.transfer),
            ),
            rotation=-frame.rotation % 360,
        )

    def _probed(self, first: _Kind) -> _Kind:
        """Return the first frame's kind with what was probed of it, perhaps in another part."""
        info, color, turn = self.info, self.info.format.color, self.info.orientation
        return first._replace(
            size=(info.coded_width, info.coded_height),
            pixel_format=info.pixel_format.replace("yuvj", "yuv"),
            coding=first.coding if first.coding.matrix is None else self._writer.coding,
            light=ColorInfo(primaries=color.primaries, transfer=color.transfer),
            rotation=(turn.rotation + 180 * turn.mirror) % 360,
        )

    def _report_change(self, last: _Kind, kind: _Kind, pts: int | None) -> None:
        """Report what changes from one frame to the next, and what is done about it."""
        own = self._probed(kind)
        messages = []
        if kind.size != last.size:
            self.stats.irregular = True
            text = "picture size changes to {}x{}".format(*kind.size)
            fitted = "fitted into {}x{}".format(*own.size)
            messages.append(text if kind.size == own.size else f"{text}: {fitted}")
        if kind.rotation != last.rotation:
            messages.append(f"rotation changes to {kind.rotation}°: frames are turned as the first")
        if kind.pixel_format != last.pixel_format:
            text = f"pixel format changes to {kind.pixel_format}"
            is_own = kind.pixel_format == own.pixel_format
            messages.append(text if is_own else f"{text}: converted")
        if kind.coding != last.coding:
            text = "range or matrix of the colours changes"
            messages.append(text if kind.coding == own.coding else f"{text}: converted")
        if not kind.light.looks_like(last.light):
            text = "primaries or transfer (HDR) of the colours change"
            is_own = kind.light.looks_like(own.light)
            messages.append(text if is_own else f"{text}: they look wrong from here on")
        for message in messages:
            self._report("notice", message, pts)

    def _read(self, from_pts: int | None, *, threaded: bool = True) -> Iterator[VideoFrame]:
        last: int | None = None
        for frame in super()._read(from_pts, threaded=threaded):
            last = frame.pts
            yield frame
        if last is None or self._settings.threads == 1:
            return
        hidden = sum(stamp > last for stamp in self._pending)
        read_once = self.info.pipe is not None or self._restarted  # else a time is one place
        if hidden and read_once:
            self._report("fault", f"cannot decode {hidden} pictures at the end", last)
        if not hidden or read_once:
            return
        # With frame threads, an error while the decoder is drained hides the frames behind it,
        # and PyAV cannot read on. Without threads an error belongs to its packet, and draining
        # raises none.
        counted = self.stats.corrupt_packets
        for frame in super()._read(last, threaded=False):
            if frame.pts is None or frame.pts <= last:
                self.stats.corrupt_packets = counted  # counted on the first pass
            else:
                yield frame

    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[VideoFrame]:
        stream = self._open(position)
        if stream is None:
            return
        self._codec = stream.codec_context
        stream.codec_context.copy_opaque = True
        stream.codec_context.thread_type = "AUTO" if threaded else "NONE"
        stream.codec_context.thread_count = self._settings.threads if threaded else 1
        pending = self._pending = set()
        decoder = TimedDecoder(stream.codec_context, self.info.container)
        for packet in itertools.chain(self._packets(stream), (None,)):
            stamp = None if packet is None or packet.is_discard else packet.pts
            if stamp is not None and not decoder.untimed:
                pending.add(stamp)
            try:
                frames = decoder.decode(packet)
            except av.FFmpegError:
                self.stats.corrupt_packets += 1
                continue
            for frame in frames:
                pending.discard(frame.pts)
                yield frame


def open_decoder(
    path: Path, settings: DecodeSettings, info: VideoInfo | None, resources: Resources
) -> CpuDecoder | StillDecoder:
    """Open the decoder of a render, with threads for the available cores."""
    if info is not None and info.stills:
        from bgsoft.decode.stills import StillDecoder

        return StillDecoder(info, settings)
    return CpuDecoder(path, replace(settings, threads=decoder_threads(resources)), info=info)


def decoder_threads(resources: Resources) -> int:
    """Return the number of threads of a render's decoder."""
    # Encoder and picture stages need all cores: with FFmpeg's own number of threads (cores + 1)
    # a render of 1080p on two cores took 2.5 % longer.
    return max(1, min(_MAX_THREADS, resources.cores // 2))


class _Deinterlacer:
    """Deinterlaces interlaced frames by FFmpeg's bwdif, and passes the others on.

    Each input frame gives one output frame, when the next one is pushed: bwdif reads one frame
    ahead. Frames keep their pts and duration; the filter's time base, half as long, is not used.

    Args:
        time_base: That of the frames.
        parity: See :attr:`bgsoft.media.info.VideoInfo.parity`.
    """

    def __init__(self, time_base: Fraction, parity: str | None) -> None:
        self._time_base = time_base
        self._fields = {"parity": parity or "auto", "deint": "all" if parity else "interlaced"}
        self._graph: Graph | None = None
        self._shape: tuple[int, int, str] | None = None
        self._waiting: deque[VideoFrame] = deque()

    def push(self, frame: VideoFrame) -> Iterator[VideoFrame]:
        """Push a frame; yield the frames that are now finished, in order."""
        shape = (frame.width, frame.height, frame.format.name)
        if self._graph is None or shape != self._shape:
            yield from self.flush()
            self._graph = self._build(frame)
            self._shape = shape
        self._waiting.append(frame)
        self._graph.vpush(frame)
        yield from self._pull(self._graph)

    def flush(self) -> Iterator[VideoFrame]:
        """End the stream, and yield the rest like :meth:`push`. More frames start a new one."""
        graph, self._graph = self._graph, None
        if graph is not None:
            graph.vpush(None)
            yield from self._pull(graph)
        # The filter returns a frame for each; one that it kept back would be passed on unfiltered.
        while self._waiting:
            yield self._waiting.popleft()

    def _build(self, frame: VideoFrame) -> Graph:
        graph = Graph()
        source = graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=self._time_base
        )
        # One frame per frame.
        bwdif = graph.add("bwdif", mode="send_frame", **self._fields)
        graph.link_nodes(source, bwdif, graph.add("buffersink")).configure()
        return graph

    def _pull(self, graph: Graph) -> Iterator[VideoFrame]:
        while self._waiting:
            try:
                picture = graph.vpull()
            except (WouldBlockError, EndOfStreamError):
                return
            origin = self._waiting.popleft()
            picture.time_base = self._time_base
            picture.pts, picture.dts = origin.pts, origin.dts
            picture.duration = origin.duration
            yield picture
