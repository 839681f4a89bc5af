"""The sinks of a stream, and what has failed in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bgsoft.errors import BgsoftError, StallError
from bgsoft.exitcodes import one_line
from bgsoft.live.base import LiveFrame, Sink
from bgsoft.threads import DaemonThread

_SINK = "the sink "


class Failures:
    """Errors that have ended a stream, or one of its sinks.

    Args:
        report: Called with a line for each failure, if something goes on after it: what ends the
            run is reported at its end.
        alone: There is no other stream.
    """

    def __init__(self, report: Callable[[str], None], *, alone: bool) -> None:
        self._report, self._alone = report, alone
        self.errors: list[BgsoftError] = []

    def add(self, exc: BgsoftError, rest: str = "") -> None:
        """Keep an error; ``rest``: what goes on."""
        self.errors.append(exc)
        if rest or not self._alone:
            exc.is_reported = True
            self._report(f"{one_line(exc)}{rest}")


class StreamSinks:
    """Gives frames to the sinks of a stream; one that fails is closed, and the others go on.

    Args:
        failures: Gets the errors of sinks.
        begin: Called with what is done next, for the watchdog.
    """

    def __init__(self, failures: Failures, begin: Callable[[str], None]) -> None:
        self._failures, self._begin = failures, begin
        self._open: list[Sink] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, sink: Sink) -> None:
        """Add a sink, before the stream starts."""
        self._open.append(sink)

    @property
    def want_source(self) -> bool:
        """True if any uses the picture as it arrived."""
        return any(sink.wants_source for sink in self._open)

    def publish(self, frame: LiveFrame) -> None:
        """Give a frame to all."""
        for sink in list(self._open):
            self._begin(f"{_SINK}{sink.name}")
            try:
                sink.publish(frame)
            except BgsoftError as exc:
                self._open.remove(sink)
                self._failures.add(exc, "; its other sinks continue" if self._open else "")
                self._close(sink, quiet=True)
            self._begin("")

    def _close(self, sink: Sink, *, quiet: bool = False) -> None:
        try:
            sink.close()
        except BgsoftError as exc:
            if not quiet:
                self._failures.add(exc)

    def leave(self, what: str, stage: str) -> None:
        """Leave a sink that hangs to itself, if that is what hangs (in ``stage``)."""
        for sink in [sink for sink in self._open if what == f"{_SINK}{sink.name}"]:
            self._open.remove(sink)
            self._failures.errors.append(StallError(f"{what} hangs", stage=stage))
            # In another thread, as that may hang, too.
            DaemonThread(partial(self._close, sink, quiet=True), "bgsoft-close").start()

    def count(self) -> list[dict[str, Any]]:
        """Return the figures of each sink."""
        return [{"name": sink.name, "dropped": sink.dropped} for sink in self._open]

    def close(self) -> None:
        """Finish recordings and streams; safe to call twice."""
        sinks, self._open = self._open, []
        for sink in sinks:
            self._close(sink)
