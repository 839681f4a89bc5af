"""Execution of the picture loop on a CUDA device, timed by events.

One stream is for pictures, another for faces. The host waits for a thumbnail of each frame, which
shows scene cuts, before it launches anything that depends on them. A thread of its own waits for
detected faces while pictures are launched. Compositing waits for what faces show in the mattes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import cupy

from bgsoft.clock import StageClock
from bgsoft.cuda.device import CudaDevice
from bgsoft.frame import Frame
from bgsoft.infer.warm import network_pool
from bgsoft.pipeline.picture import Execution

if TYPE_CHECKING:
    from bgsoft.pipeline.trace import TraceRecorder

R = TypeVar("R")

_READY_EVENTS = 256
"""Events used in turn, one a batch: more than there are batches in any ring."""


class DeviceTimer:
    """Measures the device's time for each stage, by events between their launches.

    Results are read once the device has finished a batch, so nothing waits for them. Only with an
    observer, which also gets each stage's time, does the first mark wait.
    """

    def __init__(self, observer: TraceRecorder | None = None) -> None:
        self._observer = observer
        self._origin: Any = None
        self._origin_ns = 0
        self._free: list[Any] = []
        self._marks: list[tuple[StageClock | None, Any]] = []
        self._pending: list[list[tuple[StageClock | None, Any]]] = []

    def mark(self, clock: StageClock | None) -> None:
        """Attribute all launches since the last mark to ``clock``; None: to no stage."""
        if self._observer is not None and self._origin is None:
            # One moment that is known on both clocks, the device's and the host's.
            self._origin = cupy.cuda.Event()
            self._origin.record()
            self._origin.synchronize()
            self._origin_ns = time.perf_counter_ns()
        event = self._free.pop() if self._free else cupy.cuda.Event()
        event.record()
        self._marks.append((clock, event))

    def end(self) -> None:
        """Mark the end of a batch's launches; read earlier batches that are finished."""
        self._pending.append(self._marks)
        self._marks = []
        while self._pending and self._pending[0][-1][1].done:
            self._read(self._pending.pop(0))

    def flush(self) -> None:
        """Read everything; waits for the device."""
        while self._pending:
            marks = self._pending.pop(0)
            marks[-1][1].synchronize()
            self._read(marks)

    def _read(self, marks: list[tuple[StageClock | None, Any]]) -> None:
        for (_, start), (clock, stop) in pairwise(marks):
            if clock is not None:
                elapsed_ns = int(cupy.cuda.get_elapsed_time(start, stop) * 1e6)
                clock.busy_ns += elapsed_ns
                if self._observer is not None:
                    at = self._host_ns(start)
                    self._observer.device_span(
                        "picture stream", clock.name, at, at + elapsed_ns, clock.calls
                    )
                clock.calls += 1
        self._free.extend(event for _, event in marks)
        if self._origin is not None:
            # CUDA measures in 32-bit floats, which are exact for short intervals only.
            last = self._free.pop()
            self._origin_ns = self._host_ns(last)
            self._free.append(self._origin)
            self._origin = last

    def _host_ns(self, event: Any) -> int:
        """Return the time of an event on the host's clock."""
        return self._origin_ns + int(cupy.cuda.get_elapsed_time(self._origin, event) * 1e6)


class _Mark(AbstractContextManager[None]):
    """Context in which launches belong to one clock's stage."""

    def __init__(self, timer: DeviceTimer, clock: StageClock) -> None:
        self._timer, self._clock = timer, clock

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._timer.mark(self._clock)


class DeviceExecution(Execution):
    """Launches work on one stream; only requests for results wait.

    Args:
        device: Device of the frames.
        streams: The stream of pictures and networks, and the one for :meth:`submit`.
        batch: Frames at a time.
        observer: Receives each stage's time on the device.
    """

    ahead = 0

    def __init__(
        self,
        device: CudaDevice,
        streams: tuple[Any, Any],
        batch: int,
        observer: TraceRecorder | None = None,
    ) -> None:
        super().__init__(batch, network_pool())
        self._device = device
        self._stream, self._other_stream = streams
        self._timer = DeviceTimer(observer)
        with device.use(self._stream):
            self._launched = cupy.cuda.Event(disable_timing=True)
            self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(_READY_EVENTS)]
        self._next_event = 0

    @contextmanager
    def working(self, frames: Sequence[Frame]) -> Iterator[None]:
        with self._device.use(self._stream):
            self._timer.mark(None)
            for frame in frames:
                if frame.ready is not None:
                    self._stream.wait_event(frame.ready)
            yield
            self._timer.end()

    def measure(self, clock: StageClock) -> AbstractContextManager[None]:
        return _Mark(self._timer, clock)

    def submit(self, work: Callable[[], R]) -> Callable[[], R]:
        """Run work in another thread, on its stream, after everything launched so far."""
        self._launched.record(self._stream)
        self._other_stream.wait_event(self._launched)

        def on_stream() -> R:
            with self._device.use(self._other_stream):
                return work()

        return super().submit(on_stream)

    def hand_out(self, frames: Sequence[Frame]) -> None:
        """Give frames an event after everything launched so far, by any call."""
        if not frames:
            return
        self._next_event = (self._next_event + 1) % len(self._events)
        ready = self._events[self._next_event]
        ready.record(self._stream)
        for frame in frames:
            frame.ready = ready

    def wait(self) -> None:
        self._stream.synchronize()

    def close(self) -> None:
        super().close()
        with self._device.use(self._stream):
            self._stream.synchronize()
            self._timer.flush()  # read the last clocks
