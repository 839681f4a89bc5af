"""The pipeline: decode, picture stages and encode in threads joined by bounded queues."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Protocol

from bgsoft.clock import Observer, StageClock
from bgsoft.decode.base import Decoder
from bgsoft.errors import BgsoftError, RenderCancelledError, VerificationError
from bgsoft.frame import Frame
from bgsoft.infer.warm import StageThread, network_thread
from bgsoft.pipeline.channel import Channel, ChannelClosedError
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.stall import StallWatch
from bgsoft.records import dataclass
from bgsoft.ring import FrameRing, RingClosedError
from bgsoft.threads import DaemonThread, lower_priority

_POLL_SECONDS = 0.05
"""Interval at which the calling thread checks for cancellation and reports progress."""
LEAVE_SECONDS = 3.0
"""Default of :attr:`RunOptions.leave_seconds`."""


class FrameStage(Protocol):
    """The stage between decoder and encoder."""

    batch: int
    """Number of frames it takes at a time, 1 or more."""
    held: int
    """Largest number of frames it keeps back between batches, including prepared ones."""
    ahead: int = 0
    """Batches that may wait between :meth:`prepare` and :meth:`process`, which then run in threads
    of their own; 0: :meth:`process_batch` does everything."""

    def start(self) -> None:
        """Prepare for the first frame.

        It is called once, in the thread of :meth:`prepare`, or else of :meth:`process_batch`.
        """
        ...

    def prepare(self, frames: Sequence[Frame]) -> Any:
        """Begin work on up to :attr:`batch` frames; the result goes to :meth:`process`."""
        return frames

    def process(self, prepared: Any) -> Sequence[Frame]:
        """Finish the work; see :meth:`process_batch`."""
        return self.process_batch(prepared)

    def process_batch(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Process up to :attr:`batch` frames, in place.

        Returns the frames that are finished now: each once, in presentation order over all calls.
        """
        ...

    def flush(self) -> Sequence[Frame]:
        """Finish the frames that are kept back, and return them in order; called at the end."""
        ...


class FrameSink(Protocol):
    """Receiver of finished frames."""

    def encode(self, frame: Frame) -> None:
        """Take one frame; its slot may be reused once this returns."""
        ...

    def finish(self) -> None:
        """Finish; no frame will follow."""
        ...


@dataclass(slots=True)
class PipelineResult:
    """Counts and times of the frames of a run."""

    decoded_pts: array[int] = field(default_factory=lambda: array("q"))
    """Pts of every decoded frame, in order, in the source's time base."""
    encoded_pts: array[int] = field(default_factory=lambda: array("q"))
    """Pts of every frame that the sink took, in order."""
    last_duration: int = 0
    """Duration of the last frame, in the source's time base."""
    first_frame_seconds: float | None = None
    """Time from the start of the run to the first frame passed to the encoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Callbacks and limits of a run."""

    on_tick: Callable[[], None] = lambda: None
    """Called from the calling thread about every 50 ms."""
    on_failure: Callable[[], None] = lambda: None
    """Called from any thread once the run has failed, to end waits outside."""
    outside: Callable[[], int] = lambda: 0
    """Return a number that grows while the run waits for the other end of a pipe; then no stage has
    stalled."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set it to stop the run."""
    stall_seconds: float | None = None
    """Fail once no frame has passed any stage for this time; None: never."""
    leave_seconds: float = LEAVE_SECONDS
    """Time that a thread gets to finish its current work once the run has failed; at most
    ``stall_seconds``."""


class Pipeline:
    """Runs one render from the first frame to the last.

    Frames keep their order. The first error in any thread stops all of them; :meth:`run` raises it
    again with its stage, frame and pts. All threads have ended when :meth:`run` returns or raises,
    except for those in :attr:`stuck`.

    Args:
        decoder: Source of the frames.
        stage: Processes them.
        sink: Receives them.
        ring: Slots for the frames; limits how many are in progress.
        metrics: Clocks of ``decode`` and ``encode`` are kept here; the stage keeps its own.
        options: Callbacks and limits.
    """

    def __init__(
        self,
        *,
        decoder: Decoder,
        stage: FrameStage,
        sink: FrameSink,
        ring: FrameRing,
        metrics: Metrics,
        options: RunOptions | None = None,
    ) -> None:
        self.stuck: list[StageThread] = []
        """Threads that are still inside a stage after a failed run: nothing that they may use can
        be closed."""
        self._options = options = options or RunOptions()
        self._leave_seconds = min(options.leave_seconds, options.stall_seconds or math.inf)
        self._decoder = decoder
        self._stage = stage
        self._sink = sink
        self._ring = ring
        self._metrics = metrics
        ring.waiting.observer = metrics.observer
        # The stage keeps some frames back while it waits for a full batch. With fewer slots than
        # for these and the batch, the decoder would wait for ever. A second batch's slots let the
        # threads run in parallel.
        least = 2 * stage.batch + stage.held
        if ring.size < least:
            raise ValueError(
                f"cannot run a batch of {stage.batch} with {stage.held} frames held back: it needs "
                f"{least} slots or more, not {ring.size}"
            )
        depth = max(1, ring.size // 2)
        self._decoded: Channel[Frame] = Channel(depth)
        self._prepared: Channel[Any] | None = Channel(stage.ahead) if stage.ahead else None
        self._finished: Channel[Frame] = Channel(depth)
        self._result = PipelineResult()
        self._clock = StageClock("picture", metrics.observer)
        """Clock of the stage between decoder and sink."""
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._started_stage = threading.Event()

    def run(self) -> PipelineResult:
        """Process all frames.

        Raises:
            RenderCancelledError: ``cancel`` was set.
            StallError: A stage does not return.
            VerificationError: Frames were lost, duplicated or changed their time.
            BgsoftError: The first error of a stage.
        """
        self._started = time.perf_counter()
        stages: list[tuple[str, Callable[..., StageThread], Callable[[], None]]] = [
            ("encode", DaemonThread, self._encode),
            ("picture", network_thread, self._process),
            ("decode", DaemonThread, self._decode),
        ]
        if (prepared := self._prepared) is not None:
            process = partial(self._pass_on, prepared, self._stage.process)
            stages[1:2] = [
                ("picture", DaemonThread, process),
                ("segment", network_thread, partial(self._prepare, prepared)),
            ]
        threads: dict[str, StageThread] = {
            name: make(partial(self._guard, name, body), f"bgsoft-{name}")
            for name, make, body in stages
        }
        self.stuck = [*threads.values()]  # until they have ended, also if an interrupt comes
        try:
            for thread in threads.values():
                thread.start()
            self._watch(threads)
        except BaseException as exc:
            self._fail(exc)
        finally:
            until = time.monotonic() + self._leave_seconds
            for thread in threads.values():
                thread.join(max(0.0, until - time.monotonic()))
            self.stuck = [thread for thread in self.stuck if thread.is_alive()]
        if self._error is not None:
            raise self._error
        check_pts(self._result.decoded_pts, self._result.encoded_pts, "encoded", "became")
        return self._result

    def _watch(self, threads: dict[str, StageThread]) -> None:
        """Wait for the threads; report progress, and check for cancellation and stalls."""
        stall = StallWatch(self._options.stall_seconds, threads.items())
        encoder, failed = threads["encode"], False
        while encoder.is_alive():
            encoder.join(_POLL_SECONDS)
            if self._options.cancel.is_set():
                raise RenderCancelledError("interrupted")
            if self._error is not None and not failed:
                failed, stall = True, StallWatch(self._leave_seconds, ())
            # The models' first run may take longer.
            if failed or self._started_stage.is_set():
                stall.check(self._passed())
            self._options.on_tick()

    def _passed(self) -> tuple[int, ...]:
        """Return the counts of frames that have passed each stage."""
        decoded, encoded = self._result.decoded_pts, self._result.encoded_pts
        passed_over = self._decoder.stats.passed_over
        return passed_over, len(decoded), self._clock.calls, len(encoded), self._options.outside()

    def _guard(self, name: str, body: Callable[[], None]) -> None:
        try:
            body()
        except (ChannelClosedError, RingClosedError):
            pass  # another thread failed first and has reported it
        except BaseException as exc:
            if isinstance(exc, BgsoftError) and exc.stage is None:
                exc.stage = name
            self._fail(exc)

    def _fail(self, exc: BaseException) -> None:
        """Keep the first error, and wake all waiting threads."""
        with self._lock:
            if self._error is None:
                self._error = exc
        for channel in (self._decoded, self._prepared, self._finished):
            if channel is not None:
                channel.abort()
        self._ring.close()
        self._options.on_failure()

    def _decode(self) -> None:
        lower_priority()
        self._started_stage.wait()
        clock, waiting = self._metrics.stages["decode"], self._ring.waiting
        frames = self._decoder.frames(self._ring)
        try:
            while True:
                waited = waiting.busy_ns
                with clock:
                    frame = next(frames, None)
                # Waiting for a free slot is waiting for the encoder, not decoding.
                clock.busy_ns -= waiting.busy_ns - waited
                if frame is None:
                    break
                self._result.decoded_pts.append(frame.pts)
                self._result.last_duration = frame.duration
                self._decoded.put(frame)
                if clock.observer is not None:
                    self._count(clock.observer)
        finally:
            close = getattr(frames, "close", None)
            if close is not None:
                close()
        self._decoded.finish()

    def _start_stage(self) -> None:
        try:
            self._stage.start()
        finally:
            self._started_stage.set()

    def _process(self) -> None:
        self._start_stage()
        self._pass_on(self._batches(), self._stage.process_batch)

    def _prepare(self, prepared: Channel[Any]) -> None:
        self._start_stage()
        for frames in self._batches():
            prepared.put(self._stage.prepare(frames))
        prepared.finish()

    def _batches(self) -> Iterator[list[Frame]]:
        batch = self._stage.batch
        while frames := self._decoded.take(batch):
            yield frames

    def _pass_on(self, batches: Iterable[Any], process: Callable[[Any], Sequence[Frame]]) -> None:
        """Process batches, and pass finished frames on."""
        for batch in batches:
            self._call(process, batch)
        if self._stage.held:
            self._call(self._stage.flush)
        self._finished.finish()

    def _call(self, work: Callable[..., Sequence[Frame]], *batch: Any) -> None:
        with self._clock:
            finished = work(*batch)
        for frame in finished:
            self._finished.put(frame)

    def _encode(self) -> None:
        lower_priority()
        clock = self._metrics.stages["encode"]
        for frame in self._finished:
            if self._result.first_frame_seconds is None:
                self._result.first_frame_seconds = time.perf_counter() - self._started
            with clock:
                self._sink.encode(frame)
            self._result.encoded_pts.append(frame.pts)
            self._ring.release(frame)
            if clock.observer is not None:
                self._count(clock.observer)
        with clock:
            self._sink.finish()

    def _count(self, observer: Observer) -> None:
        """Report how full the queues and the ring are."""
        observer.counter("decoded", len(self._decoded))
        observer.counter("finished", len(self._finished))
        observer.counter("slots in use", self._ring.in_use)


def check_pts(decoded: Sequence[int], found: Sequence[int], done: str, became: str) -> None:
    """Raise VerificationError unless each decoded frame is found once, at its time.

    ``done`` is the verb for frames that are found, ``became`` that for a changed time.
    """
    if len(decoded) != len(found):
        raise VerificationError(
            f"cannot verify the output: {len(decoded)} frames were decoded, {len(found)} {done}",
            stage="encode",
        )
    for at, (before, after) in enumerate(zip(decoded, found, strict=True)):
        if before != after:
            raise VerificationError(
                f"cannot verify the output: the pts of frame {at}, {before}, {became} {after}",
                stage="encode",
                pts=before,
            )
