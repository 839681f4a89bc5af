"""Input that can be read once: a pipe.

Its first bytes are kept until the render begins. So the probe, the choice of a decoder and the
tracks can each open it. Then one demuxer reads it from its beginning, and passes packets to the
decoder and to the copied tracks.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import av
from av.container import InputContainer
from av.packet import Packet

from bgsoft.closing import Closing
from bgsoft.errors import DecodeError, OpenError, RenderCancelledError, os_errors_as
from bgsoft.pipes import DEV_STDIN, POLL_MS, widen

MAX_HEAD_BYTES = 512 << 20
"""Bytes of a pipe's beginning that are kept: three raw pictures of 8K are 300 MB."""
MAX_WAITING_BYTES = 64 << 20
"""Packets that wait for the decoder, or for the copied tracks: far more than encoders are late by,
as compressed video and sound come in step."""
MAX_READ_ERRORS = 64
"""Read errors in a row, without a packet between them, after which an input is given up."""
_MAX_READ_BYTES = 1 << 20
_ITEM_BYTES = 512
"""Memory of a packet in addition to its data."""


class PipeInput(Closing):
    """The bytes of a pipe, which several may read from its beginning until one goes on alone.

    Args:
        path: :data:`bgsoft.pipes.DEV_STDIN` or a named pipe; its writer is waited for with the
            first read.
        cancel: Set it to end all reading.

    Raises:
        OpenError: It cannot be opened.
    """

    def __init__(self, path: Path, cancel: threading.Event) -> None:
        self.path = path
        self.waits = 0
        """A number that grows while no data arrives."""
        self.packets: PipePackets | None = None
        """The reading that is rendered, once it is begun."""
        self.beginning = threading.Lock()
        """Lock of the start of :attr:`packets`."""
        self._cancel = cancel
        self._stopped = threading.Event()
        self._head = bytearray()
        self._received = 0
        self._keeps = True
        self._lock = threading.Lock()
        with os_errors_as(OpenError, f"{path} cannot be read", path=path):
            flags = os.O_RDONLY | os.O_NONBLOCK
            self._fd = os.dup(0) if path == DEV_STDIN else os.open(path, flags)
        widen(self._fd)
        self._ready = select.poll()
        self._ready.register(self._fd, select.POLLIN)

    def head(self, size: int) -> bytes:
        """The first bytes; fewer where there are no more."""
        reader, data = self.reader(), b""
        while len(data) < size and (more := reader.read(size - len(data))):
            data += more
        return data

    def reader(self) -> PipeReader:
        """A reader of its own, from the beginning."""
        return PipeReader(self)

    def read_at(self, at: int, size: int) -> bytes:
        """Up to ``size`` bytes from a place on; none at the end.

        Raises:
            OpenError: They are gone, or the beginning would be more than is kept.
            RenderCancelledError: The render ends.
        """
        with self._lock:
            if at < len(self._head):
                return bytes(memoryview(self._head)[at : at + size])
            if at < self._received:
                raise OpenError(
                    f"cannot read {self.path}: its beginning is no longer in memory", path=self.path
                )
            if not self._keeps:
                self._head = bytearray()
            data = self._receive(size)
            self._received += len(data)
            if not self._keeps:
                return data
            if len(self._head) + len(data) > MAX_HEAD_BYTES:
                limit = f"{MAX_HEAD_BYTES >> 20} MB"
                text = f"its first {limit} contain no video; write it to a file"
                raise OpenError(f"cannot read {self.path}: {text}", path=self.path)
            self._head += data
            return data

    def _receive(self, size: int) -> bytes:
        while True:
            if self._stopped.is_set() or self._cancel.is_set():
                raise RenderCancelledError("interrupted")
            if not self._ready.poll(POLL_MS):
                self.waits += 1
                continue
            try:
                return os.read(self._fd, min(size, _MAX_READ_BYTES))
            except BlockingIOError:
                self.waits += 1

    def go_on(self) -> None:
        """Keep no more: only the reading that is rendered goes on."""
        self._keeps = False

    def stop(self) -> None:
        """End all reading, from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Close the pipe: its writer sees that."""
        self.stop()
        with self._lock:  # nobody is inside a read
            descriptor, self._fd = self._fd, -1
        if self.packets is not None:
            self.packets.close()
        if descriptor >= 0:
            os.close(descriptor)


class PipeReader:
    """Reader of a pipe for FFmpeg: a file without ``seek``."""

    name = "pipe"

    def __init__(self, pipe: PipeInput) -> None:
        self._pipe = pipe
        self._at = 0
        self._failed = False

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        if self._failed:  # FFmpeg asks again, and PyAV would print the error that it has
            return b""
        try:
            data = self._pipe.read_at(self._at, size)
        except BaseException:
            self._failed = True
            raise
        self._at += len(data)
        return data


class PipePackets:
    """The packets of a pipe, each once, for two who read at different paces.

    Whoever finds none that waits for him reads on, and leaves what is the other's: nobody waits for
    anything but the pipe.

    Args:
        pipe: The pipe.
        container: It, opened; owned from here on.
        video_index: The stream that is decoded.
    """

    def __init__(self, pipe: PipeInput, container: InputContainer, video_index: int) -> None:
        self.container = container
        self._pipe = pipe
        self._index = video_index
        self._video, self._others = _Waiting(), _Waiting()
        self._decodes = True
        self._copies = self._ended = False
        self._errors = 0
        self._reading = threading.Lock()
        self._read = self.container.demux()

    def video(self) -> Iterator[Packet[Any]]:
        """Packets of the video; what cannot be read raises, and the next call goes on behind it.

        Raises:
            DecodeError: Too much of one kind comes before the other.
        """
        self._pipe.go_on()
        try:
            while (item := self._next(self._video)) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        except GeneratorExit:
            self._decodes = False
            raise

    def copy(self) -> None:
        """The other tracks' packets are wanted, too: see :meth:`others`."""
        self._copies = True

    def others(self) -> Generator[Packet[Any], None, None]:
        """Packets of the other tracks, and empty ones at the video's times; errors as there."""
        try:
            while (item := self._next(self._others)) is not None:
                assert not isinstance(item, Exception)  # they are told where the video is
                yield item
        finally:
            self._copies = False

    def _next(self, waiting: _Waiting) -> Packet[Any] | Exception | None:
        while (item := waiting.take()) is None:
            with self._reading:
                item = waiting.take()  # the other one may have read it meanwhile
                if item is not None or self._ended:
                    break
                self._read_on()
        return item

    def _read_on(self) -> None:
        try:
            packet = next(self._read, None)
        except (av.FFmpegError, IndexError) as exc:
            self._errors += 1
            self._ended = self._errors >= MAX_READ_ERRORS
            self._read = self.container.demux()
            self._video.put(exc, 0)
            return
        self._errors = 0
        if packet is None:
            self._ended = True
        elif packet.size and packet.stream_index == self._index:
            if self._decodes:
                self._check("pictures", self._video.put(packet, packet.size))
            if self._copies:
                self._check("times", self._others.put(_without_data(packet), 0))
        elif packet.size and self._copies:
            self._check("sound and subtitles", self._others.put(packet, packet.size))

    def _check(self, what: str, waiting_bytes: int) -> None:
        if waiting_bytes > MAX_WAITING_BYTES:
            raise DecodeError(
                f"cannot read {self._pipe.path}: its {what} are more than"
                f" {MAX_WAITING_BYTES >> 20} MB ahead of its other tracks; write it to a file",
                stage="decode",
                path=self._pipe.path,
            )

    def close(self) -> None:
        """Close the demuxer."""
        with self._reading:
            self.container.close()


class _Waiting:
    """A queue that knows its size."""

    def __init__(self) -> None:
        self._items: deque[tuple[Packet[Any] | Exception, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, item: Packet[Any] | Exception, size: int) -> int:
        """Append an item; return the bytes of the items before it, including their overhead."""
        with self._lock:
            before = self._bytes
            self._items.append((item, size + _ITEM_BYTES))
            self._bytes += size + _ITEM_BYTES
            return before

    def take(self) -> Packet[Any] | Exception | None:
        """Take the first item; None: there is none."""
        with self._lock:
            if not self._items:
                return None
            item, size = self._items.popleft()
            self._bytes -= size
            return item


def _without_data(packet: Packet[Any]) -> Packet[Any]:
    """An empty packet at the same time."""
    empty: Packet[Any] = Packet()
    empty.stream = packet.stream
    empty.time_base = packet.time_base
    empty.pts, empty.dts, empty.duration = packet.pts, packet.dts, packet.duration
    return empty
