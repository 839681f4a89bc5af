"""Clocks for the busy time of stages, read twice a call."""

from __future__ import annotations

import time
from typing import Protocol

from bgsoft.records import dataclass


class Observer(Protocol):
    """Receiver of a thread's activity, such as a trace recorder."""

    def thread_span(self, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """Receive one piece of work of the calling thread, timed by ``time.perf_counter_ns``."""

    def counter(self, name: str, value: float) -> None:
        """Receive a counter's value from now on."""


@dataclass(slots=True)
class StageClock:
    """Busy time of one stage, measured by ``with`` blocks.

    One thread writes it; others may read.
    """

    name: str = ""
    observer: Observer | None = None
    busy_ns: int = 0
    """Wall time inside the stage, without waiting for other stages."""
    calls: int = 0
    _began_ns: int = 0
    """Start of the current call; 0: none."""

    @property
    def busy_so_far_ns(self) -> int:
        """:attr:`busy_ns` including the current call."""
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
