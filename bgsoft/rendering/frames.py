"""Rendered frames as arrays, one by one, instead of an encoded video.

The render is an ordinary one. In place of the encoder, a sink passes frames on through a bounded
queue, so the render is as slow as its caller.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.encode.base import PictureKind
from bgsoft.encode.rgb import RgbPictures
from bgsoft.errors import ConfigError, RenderCancelledError, translated
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.channel import Channel, ChannelClosedError
from bgsoft.pipeline.runner import LEAVE_SECONDS
from bgsoft.records import dataclass
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.request import picture_kind
from bgsoft.rendering.session import hand_over_frames
from bgsoft.report import Event, RenderReport
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.options import errors_in_keywords
from bgsoft.threads import DaemonThread

_AHEAD = 2
"""Finished pictures in the queue, in addition to frames inside the render."""
_THREAD = "bgsoft-frames"
"""Name of the threads of renders."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RenderedFrame:
    """One frame of a render; its arrays are copies that do not change."""

    index: int
    """Number of the frame in the render, from 0."""
    pts: int
    """Presentation timestamp of the input in ``time_base`` units."""
    time_base: Fraction
    """Seconds per pts unit."""
    duration: int
    """Display duration in ``time_base`` units; 0 if unknown."""
    picture: NDArray[Any]
    """(H, W, 3) R'G'B', red first, on the host: uint8, or uint16 up to 65535 for 10-bit sources.

    With effect alpha its colour is not premultiplied."""
    alpha: NDArray[np.uint8] | None = None
    """(H, W): the matte, 255 = person; None if not requested."""

    @property
    def time_seconds(self) -> Fraction:
        """Presentation time in seconds, on the input's clock."""
        return self.pts * self.time_base

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.picture.shape))
        matte = "" if self.alpha is None else ", alpha"
        return (
            f"RenderedFrame(#{self.index}, {float(self.time_seconds):.3f} s, "
            f"{shape} {self.picture.dtype}{matte})"
        )


class HandOver:
    """An encoder that passes finished frames on as arrays.

    Args:
        effect: Effect of the render.
        alpha: Also pass the matte on.
    """

    name, pixel_format = "none", ""
    on_host_only = True

    def __init__(self, effect: EffectKind, *, alpha: bool) -> None:
        self.frames = 0
        self._shown = picture_kind(effect)
        self._alpha = alpha or self._shown is PictureKind.COLOR_ALPHA
        self._queue: Channel[RenderedFrame] = Channel(_AHEAD)
        self._is_full = False

    @property
    def kind(self) -> PictureKind:
        """The planes of frames that are read."""
        if self._shown is PictureKind.MATTE:
            return PictureKind.MATTE
        return PictureKind.COLOR_ALPHA if self._alpha else PictureKind.COLOR

    @property
    def waits(self) -> int:
        """Number that grows while a frame waits; see :class:`bgsoft.pipeline.runner.Pipeline`."""
        return time.monotonic_ns() if self._is_full else 0

    def open(self, info: VideoInfo) -> None:
        """Set up for the frames of a video."""
        self._pictures = RgbPictures(info.format, self._shown)

    def encode(self, frame: Frame) -> None:
        """Pass one frame on; wait while the queue is full.

        Raises:
            RenderCancelledError: The caller takes no more frames.
        """
        made = RenderedFrame(
            index=frame.index,
            pts=frame.pts,
            time_base=frame.time_base,
            duration=frame.duration,
            picture=self._pictures.picture(frame),
            alpha=frame.planes.alpha.copy() if self._alpha else None,
        )
        self._is_full = True
        with translated(ChannelClosedError, to=lambda _: RenderCancelledError("left early")):
            self._queue.put(made)
        self._is_full = False
        self.frames += 1

    def finish(self) -> None:
        """Do nothing: the render ends with :meth:`end`, after its checks."""

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def take(self) -> RenderedFrame | None:
        """Wait for and return the next frame; None after the last.

        Raises:
            ChannelClosedError: :meth:`abandon` was called.
        """
        return next(iter(self._queue), None)

    def end(self) -> None:
        """End the queue after the frames in it."""
        self._queue.finish()

    def abandon(self) -> None:
        """Discard waiting frames, and stop the render at its next one."""
        self._queue.abort()


@atexit.register
def _end_all() -> None:
    """End open and abandoned renders: Python would crash if it stopped a thread in a C++ library.

    Finalizers of open Frames may run later than this.
    """
    running = list(_running)
    for each in running:
        each.stop(0)
    until = time.monotonic() + 2 * LEAVE_SECONDS
    for each in running:
        each.stop(max(0.0, until - time.monotonic()))


class _Rendering:
    """The render behind :class:`Frames`, in a thread without a reference to them.

    So unused Frames are garbage-collected, which ends the render.
    """

    def __init__(
        self, config: RenderConfig, *, alpha: bool, on_event: Callable[[Event], None] | None
    ) -> None:
        self._config = config
        self._on_event = on_event
        self._telling = threading.local()
        """Has an attribute ``now`` in threads of the render that are inside ``on_event``."""
        self._taker = HandOver(config.effect.kind, alpha=alpha)
        self._cancel = threading.Event()
        self._error: BaseException | None = None
        self.report: RenderReport | None = None
        self._lock = threading.Lock()
        self._thread: DaemonThread | None = None
        self._process = os.getpid()

    def next(self) -> RenderedFrame | None:
        """Return the next frame; None at the end.

        Raises:
            BgsoftError: The error of the render, once.
        """
        if self._process != os.getpid():
            raise ConfigError("cannot use frames in a forked process; call bgsoft.frames in it")
        if hasattr(self._telling, "now"):
            raise ConfigError("cannot take a frame inside on_event: its render waits for on_event")
        with self._lock:
            if self._thread is None and not self._cancel.is_set():
                self._thread = DaemonThread(self._render, _THREAD)
                _running.add(self)
                self._thread.start()
        if self._cancel.is_set():
            return None
        frame: RenderedFrame | None = None
        with suppress(ChannelClosedError):
            frame = self._taker.take()
        if frame is None:
            self.stop()
            error, self._error = self._error, None
            if error is not None:
                raise error
        return frame

    def _take_event(self, event: Event) -> None:
        if self._on_event is not None:
            self._telling.now = True
            try:
                self._on_event(event)
            finally:
                del self._telling.now

    def _render(self) -> None:
        try:
            listener = Listener(on_event=self._take_event, cancel=self._cancel)
            self.report = hand_over_frames(self._config, self._taker, listener)
        except BaseException as exc:
            if not self._cancel.is_set():
                self._error = exc
        finally:
            self._taker.end()

    def stop(self, seconds: float | None = None) -> None:
        """End the render, and wait at most ``seconds`` for that; None: without a limit."""
        if self._process != os.getpid():
            return  # a fork lacks the render's thread, which may have held any lock
        self._cancel.set()
        self._taker.abandon()
        if self._thread is not None and not hasattr(self._telling, "now"):
            self._thread.join(seconds)

    def drop(self) -> None:
        """End the render of garbage-collected frames."""
        # The collector may run in a thread that the render waits for.
        here = threading.current_thread() is threading.main_thread()
        self.stop(2 * LEAVE_SECONDS if here else 0)


_running: weakref.WeakSet[_Rendering] = weakref.WeakSet()
"""Renders whose threads live, and perhaps others."""


class Frames(Closing):
    """Iterator over the frames of a render in another thread, made by :func:`bgsoft.frames`.

    The render begins with the request for the first frame, and is at most a few frames ahead. It
    ends with the last frame, with :meth:`close`, at the end of a ``with`` block, and when the
    iterator is garbage-collected.
    """

    def __init__(
        self, config: RenderConfig, *, alpha: bool, on_event: Callable[[Event], None] | None
    ) -> None:
        self._rendering = _Rendering(config, alpha=alpha, on_event=on_event)
        weakref.finalize(self, self._rendering.drop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RenderedFrame:
        """Wait for and return the next frame.

        Raises:
            BgsoftError: The render failed; earlier frames are returned first.
        """
        with errors_in_keywords():
            frame = self._rendering.next()
        if frame is None:
            raise StopIteration
        return frame

    @property
    def report(self) -> RenderReport | None:
        """Report of the render; None before its end."""
        return self._rendering.report

    def close(self) -> None:
        """End the render, and wait for its end; safe to call twice."""
        self._rendering.stop()
