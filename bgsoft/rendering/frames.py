"""Rendered frames as arrays, one by one: a render whose frames are taken rather than encoded.

The loop is that of every render; what takes its frames is an encoder that encodes nothing, and
hands them over through a bounded queue. Whoever takes them slowly holds the render up.
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
from bgsoft.rendering.request import picture_kind
from bgsoft.rendering.session import hand_over_frames
from bgsoft.report import Event, RenderReport
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.options import errors_in_keywords
from bgsoft.workers import DaemonThread

_AHEAD = 2
"""Pictures that are ready before they are asked for, beside those inside the render."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RenderedFrame:
    """One frame of a render; its arrays are its own, and stay as they are."""

    index: int
    """0, 1, 2 … among the frames that are rendered."""
    pts: int
    """Presentation timestamp in ``time_base`` units, as the input has it."""
    time_base: Fraction
    """Seconds per pts unit."""
    duration: int
    """Display duration in ``time_base`` units; 0 where unknown."""
    picture: NDArray[Any]
    """(H, W, 3) R'G'B', red first, on the host: uint8, or uint16 up to 65535 of 10-bit sources.
    With effect alpha its colour is not premultiplied."""
    alpha: NDArray[np.uint8] | None = None
    """(H, W): the matte, 255 = person; None where it was not asked for."""

    @property
    def time_seconds(self) -> Fraction:
        """When it is shown, on the input's clock."""
        return self.pts * self.time_base

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.picture.shape))
        matte = "" if self.alpha is None else ", alpha"
        return (
            f"RenderedFrame(#{self.index}, {float(self.time_seconds):.3f} s, "
            f"{shape} {self.picture.dtype}{matte})"
        )


class HandOver:
    """Takes finished frames, and hands them over as arrays; an encoder that encodes nothing.

    Args:
        effect: Of the render.
        alpha: Whether the matte is wanted, too.
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
        """The planes that are read."""
        if self._shown is PictureKind.MATTE:
            return PictureKind.MATTE
        return PictureKind.COLOR_ALPHA if self._alpha else PictureKind.COLOR

    @property
    def waits(self) -> int:
        """Grows while a frame waits to be taken, for :class:`bgsoft.pipeline.runner.Pipeline`."""
        return time.monotonic_ns() if self._is_full else 0

    def open(self, info: VideoInfo) -> None:
        """Set up for the frames of a video."""
        self._pictures = RgbPictures(info.format, self._shown)

    def encode(self, frame: Frame) -> None:
        """Hand over one frame; waits while there is no room.

        Raises:
            RenderCancelledError: Nobody takes frames any more.
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
        """The render has still to be looked over: :meth:`end` is the end."""

    def close(self) -> None:
        """Nothing to free."""

    def take(self) -> RenderedFrame | None:
        """The next frame, waited for; None after the last; ChannelClosedError once abandoned."""
        return next(iter(self._queue), None)

    def end(self) -> None:
        """No frame will follow those that are waiting."""
        self._queue.finish()

    def abandon(self) -> None:
        """No frame will be taken any more."""
        self._queue.abort()


_ending: list[DaemonThread] = []
"""Threads of renders that nobody waits for."""


@atexit.register
def _wait_for_ending() -> None:
    """A thread that Python stops inside a C++ library takes the whole process down."""
    until = time.monotonic() + 2 * LEAVE_SECONDS
    for thread in _ending:
        thread.join(max(0.0, until - time.monotonic()))


class _Rendering:
    """The render behind :class:`Frames`, in a thread that knows nothing of those.

    So frames that nobody holds any more are collected, and end it.
    """

    def __init__(
        self, config: RenderConfig, alpha: bool, on_event: Callable[[Event], None] | None
    ) -> None:
        self._config = config
        self._on_event = on_event
        self._telling = threading.local()
        """Has ``now`` in a thread of the render that is inside ``on_event``."""
        self._taker = HandOver(config.effect.kind, alpha=alpha)
        self._cancel = threading.Event()
        self._error: BaseException | None = None
        self.report: RenderReport | None = None
        self._lock = threading.Lock()
        self._thread: DaemonThread | None = None
        self._process = os.getpid()

    def next(self) -> RenderedFrame | None:
        """The next frame; None at the end.

        Raises:
            BgsoftError: What the render failed with, once.
        """
        if self._process != os.getpid():
            raise ConfigError("these frames are of the process that was forked: ask for some here")
        if hasattr(self._telling, "now"):
            raise ConfigError("on_event cannot wait for a frame of the render that calls it")
        with self._lock:
            if self._thread is None and not self._cancel.is_set():
                self._thread = DaemonThread(self._render, "bgsoft-frames")
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

    def _tell(self, event: Event) -> None:
        if self._on_event is not None:
            self._telling.now = True
            try:
                self._on_event(event)
            finally:
                del self._telling.now

    def _render(self) -> None:
        try:
            self.report = hand_over_frames(
                self._config, self._taker, on_event=self._tell, cancel=self._cancel
            )
        except BaseException as exc:
            if not self._cancel.is_set():
                self._error = exc
        finally:
            self._taker.end()

    def stop(self, seconds: float | None = None) -> None:
        """End the render, and wait for that so long; None: until it has ended."""
        if self._process != os.getpid():
            return  # a fork has not the render's thread, which may have held any lock
        self._cancel.set()
        self._taker.abandon()
        if self._thread is not None and not hasattr(self._telling, "now"):
            self._thread.join(seconds)

    def drop(self) -> None:
        """End the render of frames that nobody holds any more."""
        # Whatever thread the collector runs in, it may be one that the render itself waits for.
        here = threading.current_thread() is threading.main_thread()
        self.stop(2 * LEAVE_SECONDS if here else 0)
        if self._thread is not None and self._thread.is_alive():
            _ending[:] = [*filter(DaemonThread.is_alive, _ending), self._thread]


class Frames(Closing):
    """Iterates over the frames of a render that runs beside; made by :func:`bgsoft.frames`.

    The render begins when the first frame is asked for, and is at most a few frames ahead. It ends
    with the last frame, with :meth:`close`, at the end of a ``with`` block, and once nobody holds
    this any more.
    """

    def __init__(
        self, config: RenderConfig, *, alpha: bool, on_event: Callable[[Event], None] | None
    ) -> None:
        self._rendering = _Rendering(config, alpha, on_event)
        weakref.finalize(self, self._rendering.drop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RenderedFrame:
        """The next frame, waited for.

        Raises:
            BgsoftError: The render failed; frames before are handed over first.
        """
        with errors_in_keywords():
            frame = self._rendering.next()
        if frame is None:
            raise StopIteration
        return frame

    @property
    def report(self) -> RenderReport | None:
        """What was done and by what; None before the end."""
        return self._rendering.report

    def close(self) -> None:
        """End the render, and wait until it has; safe to call twice."""
        self._rendering.stop()
