"""Runs several streams: one thread reads each source, another processes its pictures.

So no stream waits for another's start or failure. Models are loaded once; on a GPU, frames of
several streams share a run (:mod:`bgsoft.infer.shared`). On the CPU, at most as many streams work
at a time as there are cores. The calling thread reports figures, and replaces threads that hang.
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
from bgsoft.errors import BgsoftError, ConfigError
from bgsoft.infer.shared import ModelUser, SharedModels
from bgsoft.live.capture import SourceState
from bgsoft.live.source import SourceSpec
from bgsoft.live.stream import LiveStream
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.build import StageBuilder
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig

STATS_SECONDS = 5.0
_CHECK_SECONDS = 0.1
_LEAVE_SECONDS = 2.0
"""Time in which current frames may be finished at the end."""


class Engine(Closing):
    """The streams of one process.

    Args:
        config: Backends of the stages, for all streams.
        report: Receives a line for each event; called from any thread.
        count: Number of streams that will be added.
        on_stats: Receives the figures of each stream, every :data:`STATS_SECONDS`.
        recorder: Records a trace; None: no trace.

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
        """Errors that have ended a source or sink, in order."""
        self._report, self._on_stats, self._recorder = report, on_stats, recorder
        cores = config.backends.cores
        self._make_models = partial(SharedModels, count, cores)
        self._models = self._make_models()
        self._backends = replace(config.backends, threads=max(1, cores // count))
        self._first = self._make_builder()
        """Builder of the first stream, made early, so that a missing backend is an error at
        once."""
        self._closed: set[str] = set()

    def _make_builder(self) -> StageBuilder:
        device = self._first.used_device if self.streams else None
        return StageBuilder(
            self._backends, self._report_event, device=device, user=ModelUser(self._models)
        )

    def _report_event(self, event: Event) -> None:
        self._report(f"{event.kind}: {event.message}")

    def add(self, name: str, spec: SourceSpec, config: RenderConfig) -> LiveStream:
        """Add a source; its sinks are added to the returned stream.

        Raises:
            ConfigError: A region has times, and the source begins again and again.
        """
        for region in config.all_regions if spec.loop else ():
            if region.begin or region.end or len(region.keys) > 1:
                raise ConfigError(
                    f"cannot use {region.name} with --loop: its times are those of the first pass"
                )
        builder = self._make_builder() if self.streams else self._first
        alone = self._models.users == 1
        stream = LiveStream(name, spec, config, builder, self._report, self._recorder, alone=alone)
        self.streams.append(stream)
        return stream

    def run(self, cancel: threading.Event) -> None:
        """Run until ``cancel`` is set or all streams have ended; then finish recordings."""
        for stream in self.streams:
            stream.start()
        self._counted = time.monotonic()
        try:
            while not cancel.wait(_CHECK_SECONDS):
                now = time.monotonic()
                for stream in self.streams:
                    self._check(stream, now)
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

    def _check(self, stream: LiveStream, now: float) -> None:
        """End a stream that is over, and replace a thread of it that hangs."""
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
            if stream.capture.state is SourceState.ENDED and stream.capture.error is not None:
                stream.fail(stream.capture.error)

    def _replace(self, stream: LiveStream, what: str) -> None:
        """Continue a stream with another thread and new stages; its models may hang too."""
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
        if all(free):  # otherwise it would wait for the device of a hanging thread
            self._first.close()
