"""Sinks with a thread of their own, so that slow ones delay nothing else."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bgsoft.decode.convert import PlaneWriter
from bgsoft.encode.codecs import EncoderChoice
from bgsoft.encode.pictures import CopiedPictures
from bgsoft.errors import BgsoftError, ConfigError, OutputError
from bgsoft.frame import Array, Frame, FrameFormat, Planes
from bgsoft.live.base import LiveFrame
from bgsoft.live.policy import SINK_SECONDS, Backoff
from bgsoft.media.info import Crop, Orientation, VideoInfo
from bgsoft.media.swscale import Coding
from bgsoft.rendering.host import host_planes
from bgsoft.settings.config import Codec
from bgsoft.threads import DaemonThread

_SLOTS = 4
"""Number of frames that are written or wait."""
_CLOSE_SECONDS = 10.0
"""Time in which an output may be finished."""


class QueuedSink(ABC):
    """A :class:`bgsoft.live.base.Sink` whose thread receives copies of the newest frames.

    Args:
        name: Name as the user gave it.
        report: Receives a line when the output disconnects, and when it is back.
    """

    wants_source = False

    def __init__(self, name: str, report: Callable[[str], None] = lambda _line: None) -> None:
        self.name = name
        self.dropped = 0
        self.back_seconds = 1.0
        """Time of successful writing after which a reopened output is back."""
        self._format: FrameFormat | None = None
        self._free: deque[Planes] = deque()
        self._waiting: deque[tuple[Frame, int]] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._report, self._backoff = report, Backoff()
        self._is_away = False
        self._opens = 0.0
        """Time from which it may be opened again."""
        self._takes_since: float | None = None
        """Start of successful writing after it was opened again."""
        self._error: BgsoftError | None = None
        self._thread = DaemonThread(self._run, f"bgsoft-sink {name}")
        self._thread.start()

    def publish(self, frame: LiveFrame) -> None:
        """Copy a frame for the thread; see :class:`bgsoft.live.base.Sink`."""
        with self._changed:
            if self._error is not None:
                raise self._error
            planes = self._slot(frame.frame.format)
        for target, source in zip(_planes(planes), _planes(frame.frame.planes), strict=True):
            np.copyto(target, source)
        with self._changed:
            kept = replace(frame.frame, planes=planes, original=None)
            self._waiting.append((kept, time.monotonic_ns()))
            self._changed.notify()

    def _slot(self, format: FrameFormat) -> Planes:
        """Return a free slot, or that of the frame that has waited longest."""
        if format != self._format:
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._format = format
            self._free = deque(host_planes(format, slot) for slot in range(_SLOTS))
        if self._free:
            return self._free.popleft()
        self.dropped += 1
        return self._waiting.popleft()[0].planes

    def _run(self) -> None:
        try:
            while (frame := self._next()) is not None:
                self._pass_on(frame)
                with self._changed:
                    if frame.format == self._format:
                        self._free.append(frame.planes)
            self._finish()
        except Exception as exc:
            self._fail(exc)

    def _pass_on(self, frame: Frame) -> None:
        """Write a frame; after an error, an output that may come back is opened again later."""
        if self._is_away and time.monotonic() < self._opens:
            self._drop()
            return
        try:
            self._write(frame)
        except OutputError as exc:
            if not self._comes_back(exc):
                raise
            self._abandon()
            self._drop()
            if not self._is_away:
                self._report(f"{exc}; opening it again")
            self._is_away, self._takes_since = True, None
            self._opens = time.monotonic() + self._backoff.wait_seconds()
        else:
            if self._is_away:
                self._report_return(time.monotonic())

    def _drop(self) -> None:
        with self._changed:
            self.dropped += 1

    def _report_return(self, now: float) -> None:
        """Report that an address is back, once it has taken frames for a while."""
        self._takes_since = now if self._takes_since is None else self._takes_since
        if now - self._takes_since > self.back_seconds:
            self._report(f"{self.name} is back")
            self._is_away = False
            self._backoff.reset()

    def _comes_back(self, exc: OutputError) -> bool:
        """Return whether the output may be opened again after an error, with the next frame."""
        return False

    def _next(self) -> Frame | None:
        """Return the next frame that is in time; None at the end."""
        with self._changed:
            while True:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                if not self._waiting:
                    return None
                frame, since = self._waiting.popleft()
                late = time.monotonic_ns() - since > SINK_SECONDS * 1e9
                if not (late and self._waiting):
                    return frame
                self.dropped += 1
                self._free.append(frame.planes)

    def _fail(self, exc: Exception) -> None:
        """Keep an error for the next call of publish, and close the output."""
        if not isinstance(exc, OutputError):
            kind = ConfigError if isinstance(exc, ConfigError) else OutputError
            exc = kind(f"{self.name}: {exc}")
        kept = ""
        with suppress(Exception):  # only the first failure is reported
            kept = self._abandon()
        if kept:
            exc = OutputError(f"{exc}; what was written is kept as {kept}")
        with self._changed:
            self._error = exc

    @abstractmethod
    def _write(self, frame: Frame) -> None:
        """Write a frame, in the thread; the first one opens the output."""

    @abstractmethod
    def _finish(self) -> None:
        """Finish the output, in the thread."""

    @abstractmethod
    def _abandon(self) -> str:
        """Close the output after an error; return the name of a file that is kept, or empty."""

    def close(self) -> None:
        """Finish; raises the output's error. See :class:`bgsoft.live.base.Sink`."""
        with self._changed:
            already, self._ending = self._ending, True
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)
        if already:
            return
        if self._thread.is_alive():
            raise OutputError(f"cannot finish {self.name}: it does not respond")
        if self._error is not None:
            raise self._error


def _planes(planes: Planes) -> tuple[Array, ...]:
    return planes.luma, planes.chroma, planes.alpha


class Fitter:
    """Fits frames into the format of a sink's first frame: size, with black bars, depth, colours.

    Args:
        info: The stream at the sink's start.
    """

    def __init__(self, info: VideoInfo) -> None:
        format = info.format
        self._format = format
        upright = replace(
            info,
            coded_width=format.width,
            coded_height=format.height,
            crop=Crop(),
            orientation=Orientation(),
        )
        self._writer = PlaneWriter(upright)
        self._planes = host_planes(format, 0)
        self._theirs: FrameFormat | None = None
        self._pictures: CopiedPictures

    def fit(self, frame: Frame) -> Frame:
        """Return the frame if it fits; otherwise a copy, which the next call overwrites.

        The copy's matte is undefined if the size differs.
        """
        theirs, coding = frame.format, Coding.of(frame.format)
        is_as_large = theirs.luma_shape == self._format.luma_shape
        if is_as_large and (theirs.layout, coding) == (self._format.layout, self._writer.coding):
            return frame
        if theirs != self._theirs:
            choice = EncoderChoice(codec=Codec.RAW, encoder="", pixel_format="yuv420p", bit_depth=8)
            self._theirs, self._pictures = theirs, CopiedPictures(choice, theirs)
        picture = self._pictures.picture(frame)
        picture.color_range = coding.range
        picture.colorspace = theirs.color.with_matrix(theirs.height).matrix
        self._writer.write(picture, self._planes)
        if is_as_large:
            np.copyto(self._planes.alpha, frame.planes.alpha)
        return replace(frame, planes=self._planes, format=self._format)
