"""Always-on stage timing: two clock reads a stage and frame."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Metrics", "StageClock"]


@dataclass(slots=True)
class StageClock:
    """Busy time of one stage. One thread writes it; others may read."""

    busy_ns: int = 0
    """Wall time spent inside the stage, waiting for neighbours not included."""
    calls: int = 0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time of a ``with`` block."""
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            self.busy_ns += time.perf_counter_ns() - started
            self.calls += 1

    def ms_per(self, frames: int) -> float:
        """Mean milliseconds a frame."""
        return self.busy_ns / 1e6 / frames if frames else 0.0


@dataclass(slots=True)
class Metrics:
    """The clocks of one pipeline, by stage."""

    stages: dict[str, StageClock] = field(default_factory=dict)

    def stage(self, name: str) -> StageClock:
        """The clock of a stage, made on first use."""
        return self.stages.setdefault(name, StageClock())

    def busy(self) -> dict[str, int]:
        """Busy nanoseconds by stage, now."""
        return {name: clock.busy_ns for name, clock in self.stages.items()}
