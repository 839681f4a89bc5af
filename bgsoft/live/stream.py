"""One stream: a source, its picture stages, and those who take its frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bgsoft.clock import StageClock
from bgsoft.errors import BgsoftError
from bgsoft.exitcodes import one_line
from bgsoft.frame import Frame
from bgsoft.live.base import LiveFrame
from bgsoft.live.capture import Capture, SourceState
from bgsoft.live.figures import Figures
from bgsoft.live.policy import StreamClock
from bgsoft.live.sinks import Failures, StreamSinks
from bgsoft.live.source import LIVE_TICKS, Picture, SourceSpec
from bgsoft.live.stages import dimmed
from bgsoft.live.switch import STARTING, StageSwitch
from bgsoft.live.watchdog import ReplacedError, Watchdog
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.build import StageBuilder
from bgsoft.settings.config import RenderConfig

STALE_SECONDS = 1.0
"""Without a frame for so long, and for three frames' time, the last one is shown dimmed."""
_STALE_INTERVAL_SECONDS = 0.2
_CHECK_SECONDS = 0.1


class LiveStream:
    """One source with its stages and sinks, and the thread that processes its pictures.

    Args:
        name: For messages and figures.
        spec: The source.
        config: Settings of the stream.
        builder: Makes the stages, of models that other streams share.
        report: Called with a line for each thing that happens.
        recorder: Keeps a trace, where one is asked for.
        alone: There is no other stream.
    """

    def __init__(
        self,
        name: str,
        spec: SourceSpec,
        config: RenderConfig,
        builder: StageBuilder,
        report: Callable[[str], None],
        recorder: TraceRecorder | None = None,
        *,
        alone: bool = True,
    ) -> None:
        self.name = name
        self.over = False
        """Nothing more will be done."""
        self._tell_run = report
        self._ready = threading.Event()
        metrics = Metrics(recorder)
        self._publishing = StageClock("publish", recorder)
        self.watchdog = Watchdog(self._run, f"bgsoft-picture {name}")
        begin = self.watchdog.begin
        self.failures = Failures(self._report, alone=alone)
        self.sinks = StreamSinks(self.failures, begin)
        wants_source = lambda: self.sinks.want_source  # noqa: E731
        self.stages = StageSwitch(builder, config, metrics, wants_source, begin, self._report)
        self.capture = Capture(spec, self._ready, report, metrics.stages["decode"])
        self.figures = Figures([*metrics.stages.values(), metrics.converting, self._publishing])
        self._clock = StreamClock(LIVE_TICKS)
        self._last: Frame | None = None
        self._came = 0.0
        self._shown_stale = 0.0
        self._last_message = ""
        self._failed = 0
        """Frames that a stage has failed on."""

    def _report(self, text: str) -> None:
        self._tell_run(f"{self.name}: {text}")

    def start(self) -> None:
        """Begin to read, and to work on what is read."""
        self.capture.start()
        self.watchdog.start()

    def _run(self) -> None:
        try:
            while not self.over:
                self._ready.wait(_CHECK_SECONDS)
                self._ready.clear()
                self._step()
        except ReplacedError:
            return
        except Exception as exc:  # a fault of ours is this stream's alone, too
            if self.watchdog.is_current:
                error = exc if isinstance(exc, BgsoftError) else BgsoftError(one_line(exc))
                self.fail(error)

    def _step(self) -> None:
        """Work on the newest picture, if there is one, or show that none has come."""
        self.watchdog.begin()
        ended = self.capture.state is SourceState.ENDED
        picture = self.capture.latest.take()
        now = time.monotonic()
        if not self.sinks or (picture is None and ended):
            self.over = True
            return
        began = time.perf_counter_ns()
        try:
            if picture is None:
                self._show_stale(now)
                return
            self._came = now
            self._work(picture)
        except BgsoftError as exc:
            self._failed += 1
            if self.stages.never_starts(exc, self._failed):
                raise
            self._report_failure(exc)
        finally:
            self.watchdog.begin()
        self.figures.busy_ns += time.perf_counter_ns() - began
        counts = self.capture.frames_in, self.capture.dropped, self.figures.busy_ns / 1e9
        if change := self.stages.adapt(now, *counts):
            self._report(change)

    def _report_failure(self, exc: BgsoftError) -> None:
        """Report what is wrong with a picture; once, if it goes on."""
        text = one_line(exc)
        if text != self._last_message:
            self._last_message = text
            self._report(text)

    def _work(self, picture: Picture) -> None:
        stages = self.stages.stages_for(picture.info)
        with self.stages.builder.working():
            picture = self.capture.latest.newer(picture, lambda new: stages.fits(new.info))
            self.watchdog.begin("the picture stages")
            assert self.capture.began is not None  # a picture has come
            self._clock.begin(*self.capture.began)
            pts = self._clock.stamp(picture.seconds, picture.captured_ns / 1e9)
            frame = stages.process(picture.frame, pts)
        self.watchdog.begin()
        self._last = frame
        shown = LiveFrame(
            frame=frame, captured_ns=picture.captured_ns, source=stages.source, faces=stages.faces
        )
        self._publish(shown)
        self.figures.add(time.monotonic_ns() - picture.captured_ns)

    def _show_stale(self, now: float) -> None:
        """Show the last frame, dimmed, where the source has sent none for a while."""
        info, last = self.stages.info, self._last
        if info is None or last is None:
            return
        away = now - self._came
        if away < max(STALE_SECONDS, 3 / float(info.nominal_rate)):
            return
        if now - self._shown_stale < _STALE_INTERVAL_SECONDS:
            return
        if self._shown_stale < self._came:
            self._last = last = dimmed(last)
        self._shown_stale = now
        frame = replace(last, pts=self._clock.stamp(None, now))
        self._publish(LiveFrame(frame=frame, captured_ns=time.monotonic_ns(), stale=True))

    def _publish(self, frame: LiveFrame) -> None:
        with self._publishing:
            self.sinks.publish(frame)

    @property
    def dropped(self) -> int:
        """Frames of the source that no sink has received."""
        return self.capture.dropped + self._failed

    def count(self, seconds: float) -> dict[str, Any]:
        """Return the figures of the time since the last call."""
        capture = self.capture
        counts = {
            "source": self.name,
            "state": str(capture.state),
            "frames_in": capture.frames_in,
            "dropped": self.dropped,
            "damaged": capture.damaged,
            "restarts": capture.restarts,
            "level": self.stages.ladder.level,
            "sinks": self.sinks.count(),
        }
        return self.figures.interval(seconds, counts)

    def fail(self, exc: BgsoftError) -> None:
        """End the stream after what cannot be gone on from."""
        self.failures.add(exc)
        self.over = True

    @property
    def hanging(self) -> str:
        """Return the work that hangs; empty: none."""
        # A first run may build an engine.
        frame = self.capture.spec.patience.hang_seconds
        start = self.stages.config.backends.stall_seconds or frame
        return self.watchdog.hanging(lambda what: start if what == STARTING else frame)

    def replace(self, what: str, builder: StageBuilder) -> None:
        """Leave a thread that hangs, and its stages, to itself; another goes on with new ones."""
        stage = self.watchdog.abandon()
        self._report(f"{what} hangs (in {stage}); starting it again")
        self.sinks.leave(what, stage)
        self.stages.restart(builder)
        self.watchdog.start()

    def stop(self) -> None:
        """Begin no more; a source's thread is not waited for."""
        self.over = True
        self.capture.stop()
        self._ready.set()

    def join(self, seconds: float) -> None:
        """Wait for what is under way; what nobody has taken by then is dropped."""
        self.watchdog.join(seconds)
        self.capture.latest.clear()

    def close(self) -> bool:
        """Finish recordings and streams, and free the stages; False: a thread hangs in them."""
        self.stop()
        self.sinks.close()
        if self.watchdog.is_alive:
            return False
        self.stages.close()
        return True
