"""Always-on stage timing: two clock reads a stage and frame."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Metrics", "Observer", "StageClock", "observed"]


class Observer(Protocol):
    """Is told of everything that the clocks measure, while it happens; from any thread.

    Times are nanoseconds of :func:`time.perf_counter_ns`.
    """

    def begin(self, name: str) -> None:
        """The calling thread begins something."""
        ...

    def end(self, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """The calling thread has ended what it began last; ``call`` counts from 0."""
        ...

    def device_span(self, row: str, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """A device has worked on something, in the order of its row."""
        ...

    def counter(self, name: str, value: float) -> None:
        """A figure has this value from now on."""
        ...


@contextmanager
def observed(observer: Observer | None, name: str) -> Iterator[None]:
    """Tell an observer of a ``with`` block that is no stage's work."""
    if observer is None:
        yield
        return
    observer.begin(name)
    started = time.perf_counter_ns()
    try:
        yield
    finally:
        observer.end(name, started, time.perf_counter_ns(), 0)


@dataclass(slots=True)
class StageClock:
    """Busy time of one stage. One thread writes it; others may read."""

    name: str = ""
    observer: Observer | None = None
    busy_ns: int = 0
    """Wall time spent inside the stage, waiting for neighbours not included."""
    calls: int = 0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time of a ``with`` block."""
        observer = self.observer
        if observer is not None:
            observer.begin(self.name)
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            ended = time.perf_counter_ns()
            self.busy_ns += ended - started
            if observer is not None:
                observer.end(self.name, started, ended, self.calls)
            self.calls += 1

    def ms_per(self, frames: int) -> float:
        """Mean milliseconds a frame."""
        return self.busy_ns / 1e6 / frames if frames else 0.0


@dataclass(slots=True)
class Metrics:
    """The clocks of one pipeline, by stage."""

    observer: Observer | None = None
    """Given to every clock made from now on; None, the rule, costs nothing."""
    stages: dict[str, StageClock] = field(default_factory=dict)

    def stage(self, name: str) -> StageClock:
        """The clock of a stage, made on first use."""
        clock = self.stages.get(name)
        if clock is None:
            clock = self.stages.setdefault(name, StageClock(name, self.observer))
        return clock

    def busy(self) -> dict[str, int]:
        """Busy nanoseconds by stage, now."""
        return {name: clock.busy_ns for name, clock in self.stages.items()}
