"""Runs streams side by side: a thread reads each source, one works on the pictures of all.

The streams take turns, a frame each; their models are loaded once. The calling thread watches: it
reports figures, and replaces what hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bgsoft.closing import Closing
from bgsoft.errors import BgsoftError, StallError
from bgsoft.exitcodes import one_line
from bgsoft.infer.warm import daemon_thread
from bgsoft.live.capture import State
from bgsoft.live.source import SourceSpec
from bgsoft.live.stream import LiveStream
from bgsoft.pipeline.stall import stuck_stage
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.build import StageBuilder
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig

STATS_SECONDS = 5.0
HANG_SECONDS = 10.0
"""A frame that takes longer has met something that does not return."""
_LOOK_SECONDS = 0.1
_LEAVE_SECONDS = 2.0
"""How long a frame that is under way may take to be finished at the end."""


class Engine(Closing):
    """The streams of one process.

    Args:
        config: Says where stages run; of one stream, the others' are the same there.
        report: Told of what happens, in a line each; from any thread.
        on_stats: Gets the figures of each stream, every :data:`STATS_SECONDS`.
        recorder: Keeps a trace, where one is asked for.

    Raises:
        BackendUnavailableError: A named backend cannot run here.
    """

    def __init__(
        self,
        config: RenderConfig,
        report: Callable[[str], None],
        *,
        on_stats: Callable[[dict[str, Any]], None] = lambda _figures: None,
        recorder: TraceRecorder | None = None,
    ) -> None:
        self.streams: list[LiveStream] = []
        self.failures: list[BgsoftError] = []
        """What went wrong for good, in order; what came right again is not among it."""
        self._config, self._report, self._on_stats = config, report, on_stats
        self._recorder = recorder
        self._ready, self._stop = threading.Event(), threading.Event()
        self._builder = self._make_builder()
        self._worker: threading.Thread | None = None
        self._closed: set[str] = set()

    def _make_builder(self) -> StageBuilder:
        return StageBuilder(self._config.backends, self._told, keeps=True)

    def _told(self, event: Event) -> None:
        self._report(f"{event.kind}: {event.message}")

    def add(self, name: str, spec: SourceSpec, config: RenderConfig) -> LiveStream:
        """Another source; its sinks are added to what is returned."""
        stream = LiveStream(
            name, spec, config, self._builder, self._ready, self._report, self._recorder
        )
        self.streams.append(stream)
        for each in self.streams:
            each.alone = len(self.streams) == 1
        return stream

    def run(self, cancel: threading.Event) -> None:
        """Work until ``cancel`` is set or all streams are over; then finish what was begun."""
        for stream in self.streams:
            stream.capture.start()
        self._start_worker()
        self._counted = time.monotonic()
        try:
            while not cancel.wait(_LOOK_SECONDS):
                now = time.monotonic()
                for stream in self.streams:
                    self._look(stream, now)
                if now - self._counted >= STATS_SECONDS:
                    self._count(now)
                if len(self._closed) == len(self.streams):
                    break
        finally:
            self._end()

    def _count(self, now: float) -> None:
        seconds, self._counted = now - self._counted, now
        for stream in self.streams:
            if stream.name not in self._closed:
                self._on_stats(stream.count(seconds))

    def _start_worker(self) -> None:
        self._worker = daemon_thread(self._work, "bgsoft-picture")
        self._worker.start()

    def _work(self) -> None:
        me = threading.current_thread()
        while not self._stop.is_set() and self._worker is me:
            self._ready.wait(_LOOK_SECONDS)
            self._ready.clear()
            for stream in self.streams:
                if self._worker is me and not self._stop.is_set():
                    self._step(stream)

    def _step(self, stream: LiveStream) -> None:
        try:
            stream.step()
        except Exception as exc:  # a fault of ours is one stream's, too
            error = exc if isinstance(exc, BgsoftError) else BgsoftError(one_line(exc))
            stream.fail(error)

    def _look(self, stream: LiveStream, now: float) -> None:
        """End a stream that is over, and replace what hangs in one."""
        if stream.name in self._closed:
            return
        stream.capture.look(now)
        what, since = stream.doing.now
        if what and now - since > stream.patience_seconds(HANG_SECONDS):
            self._replace(stream, what)
        if stream.over:
            self._on_stats(stream.count(now - self._counted))
            self._closed.add(stream.name)
            stream.capture.stop()
            stream.close_sinks()
            if stream.capture.state is State.ENDED and stream.capture.error is not None:
                stream.fail(stream.capture.error)

    def _replace(self, stream: LiveStream, what: str) -> None:
        """Leave a thread that hangs to itself, and go on with another and with new stages."""
        stage = stuck_stage([("picture", self._worker)]) if self._worker is not None else ""
        self._report(f"{stream.name}: {what} hangs (in {stage}); it is started anew")
        stream.blame(StallError(f"{what} hangs", stage=stage))
        with suppress(BgsoftError):
            self._builder = self._make_builder()
        for each in self.streams:
            each.renew(self._builder)
        self._start_worker()

    def _end(self) -> None:
        """Stop all threads, finish recordings, free the models."""
        self._stop.set()
        self._ready.set()
        for stream in self.streams:
            stream.capture.stop()
        worker = self._worker
        if worker is not None:
            worker.join(_LEAVE_SECONDS)
        for stream in self.streams:
            stream.capture.latest.clear()
        self._count(time.monotonic())
        for stream in self.streams:
            stream.close_sinks()
            self.failures += stream.failures
            if worker is None or not worker.is_alive():
                stream.close()

    def close(self) -> None:
        """Free what was made for a run that did not begin; safe to call twice."""
        for stream in self.streams:
            stream.capture.stop()
            stream.close_sinks()
        self._builder.close()
