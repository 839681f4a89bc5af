"""One stream: a source, its picture stages, and those who take its frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bgsoft.clock import StageClock
from bgsoft.errors import BgsoftError, ConfigError, InferenceError, StallError
from bgsoft.exitcodes import one_line
from bgsoft.frame import Frame
from bgsoft.live.base import LiveFrame, Sink
from bgsoft.live.capture import Capture, State
from bgsoft.live.figures import Figures
from bgsoft.live.policy import LADDER, Ladder, Quality, StreamClock
from bgsoft.live.source import LIVE_TICKS, Picture, SourceSpec
from bgsoft.live.stages import LiveStages, dimmed
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.stall import stuck_stage
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.build import StageBuilder
from bgsoft.settings.config import EffectKind, FaceMode, RenderConfig
from bgsoft.workers import DaemonThread

STALE_SECONDS = 1.0
"""Without a frame for so long, and for three frames' time, the last one is shown dimmed."""
_STALE_INTERVAL_SECONDS = 0.2
_SINK = "the sink "
_STARTING = "the start of the picture stages"
HANG_SECONDS = 10.0
"""A frame that takes longer has met something that does not return."""
_LOOK_SECONDS = 0.1
_START_TRIES = 3
"""Of stages whose models do not run at first: a device may be short of memory for a moment."""


class _ReplacedError(Exception):
    """Another thread has taken over, and other stages, while this one did not come back."""


def _ladder(config: RenderConfig) -> tuple[Quality, ...]:
    """What can be given up with some settings: of hidden faces nothing, where there are none."""
    mode = config.face.mode
    if mode in (FaceMode.OFF, FaceMode.ANONYMIZE):
        return (LADDER[0], *(replace(q, faces_every=1) for q in LADDER if q.masks_every > 1))
    return LADDER


class LiveStream:
    """What belongs to one source, and the thread that works on its pictures.

    Args:
        name: For messages and figures.
        spec: The source.
        config: What to do with its frames.
        builder: Makes the stages, of models that other streams share.
        report: Told of what happens, in a line each.
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
        self.name, self.config, self.builder = name, config, builder
        self.info: VideoInfo | None = None
        """The source, once a frame has come."""
        self.sinks: list[Sink] = []
        self.takes_faces = False
        """A sink wants faces, with landmarks, where they are looked for."""
        self.failures: list[BgsoftError] = []
        """What has ended the source, or a sink."""
        self._doing = ("", 0.0)
        """What the thread does, and since when, for the watchdog; empty: nothing."""
        self._worker: DaemonThread | None = None
        self._report, self._alone = report, alone
        self._ready = threading.Event()
        self._metrics = Metrics(recorder)
        self._publishing = StageClock("publish", recorder)
        self._converting = StageClock("convert", recorder)
        self.capture = Capture(spec, self._ready, report, self._metrics.stages["decode"])
        clocks = [*self._metrics.stages.values(), self._converting, self._publishing]
        self.figures = Figures(clocks)
        self._clock = StreamClock(LIVE_TICKS)
        self._stages: LiveStages | None = None
        self._coming: LiveStages | None = None
        """Built for other settings, to take over before the next frame."""
        self._building = threading.Lock()
        self._ladder = Ladder(time.monotonic(), _ladder(config))
        self.over = False
        """Nothing more will be done."""
        self._discarded: list[LiveStages] = []
        self._last: Frame | None = None
        self._came = 0.0
        self._shown_stale = 0.0
        self._last_message = ""
        self._failed = 0
        """Frames that a stage has failed on."""
        self._given = config

    def start(self) -> None:
        """Begin to read, and to work on what is read."""
        self.capture.start()
        self._start_worker()

    def _start_worker(self) -> None:
        self._doing = ("", 0.0)
        self._worker = DaemonThread(self._run, f"bgsoft-picture {self.name}")
        self._worker.start()

    def _begin(self, what: str = "") -> None:
        """Do something else from now on, or nothing; unless another thread has taken over."""
        if threading.current_thread() is not self._worker:
            raise _ReplacedError
        self._doing = (what, time.monotonic())

    def _run(self) -> None:
        try:
            while not self.over:
                self._ready.wait(_LOOK_SECONDS)
                self._ready.clear()
                self._step()
        except _ReplacedError:
            return
        except Exception as exc:  # a fault of ours is this stream's alone, too
            if threading.current_thread() is self._worker:
                error = exc if isinstance(exc, BgsoftError) else BgsoftError(one_line(exc))
                self.fail(error)

    def _step(self) -> None:
        """Work on the newest picture, if there is one, or show that none has come."""
        self._begin()
        ended = self.capture.state is State.ENDED
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
            if self._never_starts(exc):
                raise
            self._tell(exc)
        finally:
            self._begin()
        self.figures.busy_ns += time.perf_counter_ns() - began
        self._adapt(now)

    def _adapt(self, now: float) -> None:
        """Give up quality where frames are dropped, and take it back."""
        ladder, before = self._ladder, self._ladder.level
        counts = self.capture.frames_in, self.capture.dropped, self.figures.busy_ns / 1e9
        if ladder.check(now, *counts) and self._stages is not None:
            self._stages.set_quality(ladder.quality)
            way = "less" if ladder.level > before else "more"
            self._report(f"{self.name}: {way} quality from now on: {ladder.quality}")

    def _never_starts(self, exc: BgsoftError) -> bool:
        """Whether there are no stages yet, and will be none, by the settings that were given."""
        if self.info is not None or self.config is not self._given:
            return False
        return not isinstance(exc, InferenceError) or self._failed >= _START_TRIES

    def _tell(self, exc: BgsoftError) -> None:
        """Say what is wrong with a picture; once, if it goes on."""
        text = one_line(exc)
        if text != self._last_message:
            self._last_message = text
            self._report(f"{self.name}: {text}")

    def _work(self, picture: Picture) -> None:
        stages = self._stages_for(picture.info)
        with self.builder.working():
            picture = self.capture.latest.newer(picture, lambda new: stages.fits(new.info))
            self._begin("the picture stages")
            pts = self._clock.stamp(picture.seconds, picture.captured_ns / 1e9)
            frame = stages.process(picture.frame, pts)
        self._begin()
        self._last = frame
        shown = LiveFrame(
            frame=frame,
            captured_ns=picture.captured_ns,
            source=stages.source,
            faces=stages.faces,
        )
        self._publish(shown)
        self.figures.add(time.monotonic_ns() - picture.captured_ns)

    def _stages_for(self, info: VideoInfo) -> LiveStages:
        """The stages for pictures like these, by the newest settings."""
        with self._building:
            stages, coming = self._stages, self._coming
            self._coming = None
            while self._discarded:
                self._discarded.pop().close()
            if coming is not None and coming.fits(info):
                self._take_over(coming)
            elif coming is not None or stages is None or not stages.fits(info):
                self._begin(_STARTING)
                config = self.config
                if coming is not None:  # the source has changed its size since they were built
                    config = coming.config
                    coming.close()
                self._take_over(self._build(config, info))
            assert self._stages is not None
            return self._stages

    def _build(self, config: RenderConfig, info: VideoInfo) -> LiveStages:
        return LiveStages(
            self.builder,
            config,
            info,
            self._metrics,
            self._converting,
            keeps_source=any(sink.wants_source for sink in self.sinks),
            takes_faces=self.takes_faces,
        )

    def _take_over(self, stages: LiveStages) -> None:
        self._begin(_STARTING)
        try:
            stages.start()
        except BaseException:
            stages.close()  # the next picture has others made
            raise
        self._begin()
        old, self._stages = self._stages, stages
        self.info, self.config = stages.info, stages.config
        self._ladder = Ladder(time.monotonic(), _ladder(self.config))
        if old is not None:
            old.close()

    def apply(self, config: RenderConfig) -> None:
        """Put other settings in force from the next frame on; from another thread.

        Raises:
            BgsoftError: They cannot run here; what runs goes on.
        """
        was, will = self.config.effect.kind, config.effect.kind
        if EffectKind.ALPHA in (was, will) and was is not will:
            raise ConfigError("an alpha channel cannot come or go while a stream runs")
        with self._building:
            info = self.info
            if info is None:
                self.config = config
                return
        stages = self._build(config, info)
        with self._building:
            before, self._coming = self._coming, stages
            if before is not None:
                self._discarded.append(before)

    def _show_stale(self, now: float) -> None:
        """Show the last frame, dimmed, where the source has sent none for a while."""
        info, last = self.info, self._last
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
        shown = LiveFrame(frame=frame, captured_ns=time.monotonic_ns(), stale=True)
        self._publish(shown)

    def _publish(self, frame: LiveFrame) -> None:
        with self._publishing:
            for sink in list(self.sinks):
                self._begin(f"{_SINK}{sink.name}")
                try:
                    sink.publish(frame)
                except BgsoftError as exc:
                    self._drop_sink(sink, exc)
                self._begin()

    def _drop_sink(self, sink: Sink, exc: BgsoftError) -> None:
        """Close a sink that cannot go on; the others do."""
        self.sinks.remove(sink)
        self.failures.append(exc)
        self._tell_failure(exc, "; its other sinks go on" if self.sinks else "")
        self._close_sink(sink, quiet=True)

    def _close_sink(self, sink: Sink, *, quiet: bool = False) -> None:
        try:
            sink.close()
        except BgsoftError as exc:
            if not quiet:
                self.failures.append(exc)
                self._tell_failure(exc)

    def count(self, seconds: float) -> dict[str, Any]:
        """The figures of the time since the last call."""
        capture = self.capture
        counts = {
            "source": self.name,
            "state": str(capture.state),
            "frames_in": capture.frames_in,
            "dropped": capture.dropped + self._failed,
            "damaged": capture.damaged,
            "restarts": capture.restarts,
            "level": self._ladder.level,
            "sinks": [{"name": sink.name, "dropped": sink.dropped} for sink in self.sinks],
        }
        return self.figures.interval(seconds, counts)

    def close_sinks(self) -> None:
        """Finish recordings and streams."""
        sinks, self.sinks = self.sinks, []
        for sink in sinks:
            self._close_sink(sink)

    def fail(self, exc: BgsoftError) -> None:
        """End the stream after what cannot be gone on from."""
        self.failures.append(exc)
        self._tell_failure(exc)
        self.over = True

    def _tell_failure(self, exc: BgsoftError, rest: str = "") -> None:
        """Say it now, if something goes on: what ends the run is said at its end."""
        if rest or not self._alone:
            self._report(f"{self.name}: {one_line(exc)}{rest}")

    @property
    def hanging(self) -> str:
        """What does not return; empty: nothing."""
        what, since = self._doing
        patience = HANG_SECONDS
        if what == _STARTING:  # a first run may build an engine
            patience = self.config.backends.stall_seconds or patience
        return what if what and time.monotonic() - since > patience else ""

    def replace(self, what: str, builder: StageBuilder) -> None:
        """Leave a thread that hangs, and its stages, to itself; another goes on with new ones."""
        stage = stuck_stage([("picture", self._worker)]) if self._worker is not None else ""
        self._worker = None  # from now on it ends where it comes back
        self._report(f"{self.name}: {what} hangs (in {stage}); it is started anew")
        for sink in [sink for sink in self.sinks if what == f"{_SINK}{sink.name}"]:
            self.sinks.remove(sink)
            self.failures.append(StallError(f"{what} hangs", stage=stage))
            # Beside, as that may hang, too.
            DaemonThread(partial(self._close_sink, sink, quiet=True), "bgsoft-close").start()
        self.builder.leave()
        if self._coming is not None:
            self.config = self._coming.config
        self.builder, self._stages, self._coming = builder, None, None
        self._building = threading.Lock()
        self._start_worker()

    def stop(self) -> None:
        """Begin no more; a source's thread is not waited for."""
        self.over = True
        self.capture.stop()
        self._ready.set()

    def join(self, seconds: float) -> None:
        """Wait for what is under way; what nobody has taken by then is dropped."""
        if self._worker is not None:
            self._worker.join(seconds)
        self.capture.latest.clear()

    def close(self) -> bool:
        """Finish recordings and streams, and free the stages; False: a thread hangs in them."""
        self.stop()
        self.close_sinks()
        if self._worker is not None and self._worker.is_alive():
            return False
        for stages in (self._stages, self._coming, *self._discarded):
            if stages is not None:
                stages.close()
        self._stages = self._coming = None
        self._discarded = []
        return True
