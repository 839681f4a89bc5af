"""Runs streams side by side: a thread reads each source, another works on its pictures.

So none waits for another's start, or for what hangs in it. Their models are loaded once; on a GPU
they are run on frames of several at a time (:mod:`bgsoft.infer.shared`). On the CPU there are no
more at work than there are cores. The calling thread watches: it reports figures, and replaces what
hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from bgsoft.closing import Closing
from bgsoft.errors import BgsoftError
from bgsoft.infer.shared import ModelUser, SharedModels
from bgsoft.live.capture import State
from bgsoft.live.source import SourceSpec
from bgsoft.live.stream import LiveStream
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.build import StageBuilder
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig

STATS_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_LEAVE_SECONDS = 2.0
"""How long frames that are under way may take to be finished at the end."""


class Engine(Closing):
    """The streams of one process.

    Args:
        config: Says where stages run; of one stream, the others' are the same there.
        report: Told of what happens, in a line each; from any thread.
        count: Streams that will be added.
        on_stats: Gets the figures of each stream, every :data:`STATS_SECONDS`.
        recorder: Keeps a trace, where one is asked for.

    Raises:
        BackendUnavailableError: A named backend cannot run here.
    """

    def __init__(
        self,
        config: RenderConfig,
        report: Callable[[str], None],
        count: int = 1,
        *,
        on_stats: Callable[[dict[str, Any]], None] = lambda _figures: None,
        recorder: TraceRecorder | None = None,
    ) -> None:
        self.streams: list[LiveStream] = []
        self.failures: list[BgsoftError] = []
        """What went wrong for good, in order; what came right again is not among it."""
        self._report, self._on_stats, self._recorder = report, on_stats, recorder
        cores = config.backends.cores
        self._make_models = partial(SharedModels, count, cores)
        self._models = self._make_models()
        self._backends = replace(config.backends, threads=max(1, cores // count))
        self._first = self._make_builder()
        """Of the first stream, made early: what cannot run here is an error before it begins."""
        self._closed: set[str] = set()

    def _make_builder(self) -> StageBuilder:
        device = self._first.used_device if self.streams else None
        return StageBuilder(
            self._backends, self._report_event, device=device, user=ModelUser(self._models)
        )

    def _report_event(self, event: Event) -> None:
        self._report(f"{event.kind}: {event.message}")

    def add(self, name: str, spec: SourceSpec, config: RenderConfig) -> LiveStream:
        """Another source; its sinks are added to what is returned."""
        builder = self._make_builder() if self.streams else self._first
        alone = self._models.users == 1
        stream = LiveStream(name, spec, config, builder, self._report, self._recorder, alone=alone)
        self.streams.append(stream)
        return stream

    def run(self, cancel: threading.Event) -> None:
        """Work until ``cancel`` is set or all streams are over; then finish what was begun."""
        for stream in self.streams:
            stream.start()
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

    def _look(self, stream: LiveStream, now: float) -> None:
        """End a stream that is over, and replace what hangs in one."""
        if stream.name in self._closed:
            return
        stream.capture.check(now)
        if what := stream.hanging:
            self._replace(stream, what)
        if stream.over:
            self._on_stats(stream.count(now - self._counted))
            self._closed.add(stream.name)
            stream.capture.stop()
            stream.sinks.close()
            if stream.capture.state is State.ENDED and stream.capture.error is not None:
                stream.fail(stream.capture.error)

    def _replace(self, stream: LiveStream, what: str) -> None:
        """Go on with another thread and new stages; their models may be what hangs, too."""
        builder = stream.stages.builder
        if builder.uses(self._models):
            self._models = self._make_models()
        with suppress(BgsoftError):
            builder = self._make_builder()
        stream.replace(what, builder)

    def _end(self) -> None:
        """Stop all threads, finish recordings, free the models."""
        until = time.monotonic() + _LEAVE_SECONDS
        for stream in self.streams:
            stream.stop()
        for stream in self.streams:
            stream.join(max(0.0, until - time.monotonic()))
        self._count(time.monotonic())
        self.close()
        for stream in self.streams:
            self.failures += stream.failures.errors

    def close(self) -> None:
        """Finish recordings and free the stages; safe to call twice."""
        free = [stream.close() for stream in self.streams]
        if all(free):  # else it would wait for the device that a thread hangs in
            self._first.close()
