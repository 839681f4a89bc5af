"""How long stages are busy: two clock reads a stage and call."""

from __future__ import annotations

import time
from typing import Protocol

from bgsoft.records import dataclass


class Observer(Protocol):
    """Told what a thread has done; a recorder of traces is one."""

    def thread_span(self, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """One piece of work of the calling thread, on the clock of ``time.perf_counter_ns``."""

    def counter(self, name: str, value: float) -> None:
        """A figure has this value from now on."""


@dataclass(slots=True)
class StageClock:
    """Busy time of one stage: of ``with`` blocks, a dozen a frame, so it is no generator.

    One thread writes it; others may read.
    """

    name: str = ""
    observer: Observer | None = None
    busy_ns: int = 0
    """Wall time spent inside the stage, waiting for neighbours not included."""
    calls: int = 0
    _began_ns: int = 0
    """Of the call that is under way; 0: none is."""

    @property
    def busy_so_far_ns(self) -> int:
        """:attr:`busy_ns` and what the call under way has taken up to now."""
        began = self._began_ns
        return self.busy_ns + (time.perf_counter_ns() - began if began else 0)

    def __enter__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        started, ended = self._began_ns, time.perf_counter_ns()
        self._began_ns = 0
        self.busy_ns += ended - started
        if self.observer is not None:
            self.observer.thread_span(self.name, started, ended, self.calls)
        self.calls += 1
