"""Deinterlacing on the CPU with FFmpeg's bwdif filter, one frame out for each frame in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction

from av.error import BlockingIOError as WouldBlockError
from av.error import EOFError as EndOfStreamError
from av.filter import Graph
from av.video.frame import VideoFrame

__all__ = ["Deinterlacer"]


class Deinterlacer:
    """Deinterlaces a stream's interlaced frames and passes the others.

    bwdif looks one frame ahead, so a frame comes out when the next one goes in. Each leaves with
    the pts, duration and damage mark of the frame that it was made from; the filter's own time
    base, half as long, does not show.

    Args:
        time_base: Of the frames.
    """

    def __init__(self, time_base: Fraction) -> None:
        self._time_base = time_base
        self._graph: Graph | None = None
        self._shape: tuple[int, int, str] | None = None
        self._waiting: deque[VideoFrame] = deque()

    def push(self, frame: VideoFrame) -> Iterator[tuple[VideoFrame, VideoFrame]]:
        """Put a frame in.

        Yields:
            (picture, origin): the frames that are now finished, in order: the picture to show, and
            the frame whose pts, duration and damage mark it has.
        """
        shape = (frame.width, frame.height, frame.format.name)
        if shape != self._shape:
            yield from self.flush()
            self._graph = self._build(frame)
            self._shape = shape
        assert self._graph is not None
        self._waiting.append(frame)
        self._graph.vpush(frame)
        yield from self._pull()

    def flush(self) -> Iterator[tuple[VideoFrame, VideoFrame]]:
        """End the stream; yields like :meth:`push`. Frames may follow: they start a new one."""
        graph, self._graph, self._shape = self._graph, None, None
        if graph is not None:
            graph.vpush(None)
            yield from self._pull(graph)
        # The filter gives a frame for each; should it ever keep one back, it is shown as it is.
        while self._waiting:
            frame = self._waiting.popleft()
            yield frame, frame

    def _build(self, frame: VideoFrame) -> Graph:
        graph = Graph()
        source = graph.add_buffer(
            width=frame.width,
            height=frame.height,
            format=frame.format,
            time_base=self._time_base,
        )
        # One frame per frame, field order from the frame, progressive frames untouched.
        bwdif = graph.add("bwdif", mode="send_frame", parity="auto", deint="interlaced")
        sink = graph.add("buffersink")
        graph.link_nodes(source, bwdif, sink)
        graph.configure()
        return graph

    def _pull(self, graph: Graph | None = None) -> Iterator[tuple[VideoFrame, VideoFrame]]:
        graph = graph or self._graph
        assert graph is not None
        while self._waiting:
            try:
                picture = graph.vpull()
            except (WouldBlockError, EndOfStreamError):
                return
            yield picture, self._waiting.popleft()
