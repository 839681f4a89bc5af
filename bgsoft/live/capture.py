"""Reads a source on a thread of its own, and opens it again when it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

from bgsoft.clock import StageClock
from bgsoft.errors import BgsoftError, RenderCancelledError, UnsupportedFormatError
from bgsoft.live.policy import Backoff, Newest
from bgsoft.live.source import Feed, Picture, SourceKind, SourceSpec
from bgsoft.threads import DaemonThread


class SourceState(StrEnum):
    """State of a source."""

    OPENING = "opening"
    LIVE = "live"
    AWAY = "away"
    """It was open, and is being opened again."""
    ENDED = "ended"


class Capture:
    """The thread that reads one source; its newest picture is :attr:`latest`.

    Args:
        spec: The source.
        ready: Set whenever there is news for the stream.
        report: Receives a line when the source disconnects, and when it is back.
        clock: Measures the time of decoding.
        feed: Opens the source.
    """

    def __init__(
        self,
        spec: SourceSpec,
        ready: threading.Event,
        report: Callable[[str], None],
        clock: StageClock | None = None,
        feed: Callable[[SourceSpec, threading.Event, StageClock], Feed] = Feed,
    ) -> None:
        self.spec = spec
        self.latest: Newest[Picture] = Newest(ready)
        self.state = SourceState.OPENING
        self.error: BgsoftError | None = None
        """Why it has ended, unless the end was expected."""
        self.damaged = 0
        """Packets that could not be read or decoded."""
        self.restarts = 0
        """Number of times that it was opened again."""
        self.began: tuple[float | None, float] | None = None
        """Times of the first picture by the source's clock and by ours, once it has come."""
        self._decoded = self._skipped = 0
        self._ready, self._report, self._feed = ready, report, feed
        self._clock = clock or StageClock("decode")
        self._stop = threading.Event()
        self._sign = time.monotonic()

    @property
    def frames_in(self) -> int:
        """Number of frames that have arrived, decoded or not."""
        return self._decoded + self._skipped

    @property
    def dropped(self) -> int:
        """Number of frames that were not decoded, or that nobody took."""
        return self.latest.dropped + self._skipped

    def start(self) -> None:
        """Start to read."""
        stop = self._stop = threading.Event()
        self._sign = time.monotonic()
        DaemonThread(lambda: self._run(stop), f"bgsoft-capture {self.spec.name}").start()

    def check(self, now: float) -> None:
        """Replace the thread if it hangs; called by a watchdog."""
        if self.state is SourceState.ENDED or not self.spec.comes_back:
            return  # a pipe may wait for any time
        if now - self._sign > self.spec.patience.sign_seconds:
            self._stop.set()
            what = "reading" if self.state is SourceState.LIVE else "opening"
            self._report(f"{self.spec.name}: {what} it hangs; trying again beside that")
            self.state = SourceState.AWAY
            self.restarts += 1
            self.start()

    def stop(self) -> None:
        """Stop reading; does not wait for the thread, which may be waiting for the source."""
        self._stop.set()

    def _run(self, stop: threading.Event) -> None:
        backoff, told = Backoff(), ""
        while not stop.is_set():
            error: BgsoftError | None = None
            began = self.frames_in
            try:
                self._read(stop, backoff)
            except RenderCancelledError:
                return
            except Exception as exc:
                ours = f"{self.spec.name}: {type(exc).__name__}: {exc}"
                error = exc if isinstance(exc, BgsoftError) else BgsoftError(ours)
            if stop.is_set():
                return
            if self._is_over(error):
                self.error, self.state = error, SourceState.ENDED
                self._ready.set()
                return
            text = str(error or f"{self.spec.name} has ended")
            if text != told or self.frames_in > began:
                self._report(f"{text}; opening it again")
                told = text
            if self.state is SourceState.LIVE:
                self.state = SourceState.AWAY
            self._sign = time.monotonic()
            self.restarts += 1
            if stop.wait(backoff.wait_seconds()):
                return

    def _is_over(self, error: BgsoftError | None) -> bool:
        if not self.spec.comes_back or isinstance(error, UnsupportedFormatError):
            return True
        # A camera that was never there has a wrong name; a network stream may start later.
        return self.spec.kind is SourceKind.CAMERA and self.state is SourceState.OPENING

    def _read(self, stop: threading.Event, backoff: Backoff) -> None:
        """Read one opening of the source, up to its end."""
        with self._feed(self.spec, stop, self._clock) as feed:
            pictures = feed.pictures()
            while True:
                skipped, damaged = feed.skipped, feed.damaged
                try:
                    picture = next(pictures, None)
                finally:  # frames are skipped before the end, too, and before a fault
                    self._skipped += feed.skipped - skipped
                    self.damaged += feed.damaged - damaged
                self._sign = time.monotonic()
                if picture is None or stop.is_set():
                    return
                if self.state is SourceState.AWAY:
                    self._report(f"{self.spec.name} is back")
                self.state = SourceState.LIVE
                backoff.reset()
                self._decoded += 1
                self.began = self.began or (picture.seconds, picture.captured_ns / 1e9)
                self.latest.put(picture)
