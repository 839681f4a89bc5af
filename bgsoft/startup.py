"""The start of a render: parts made in parallel, and their times.

Python code runs in one thread at a time. But a start mostly waits for a driver, a codec or a
network's session, which do not hold the interpreter's lock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Self, TypeVar

from bgsoft.errors import RenderCancelledError
from bgsoft.records import NamedTuple
from bgsoft.threads import Threads

R = TypeVar("R")

_MAX_THREADS = 8


class Span(NamedTuple):
    """A timed block of code; nanoseconds of :func:`time.perf_counter_ns`."""

    thread: str
    name: str
    started_ns: int
    ended_ns: int


_log: ContextVar[list[Span] | None] = ContextVar("start", default=None)


forked_from: int | None = None
"""Process id of the command, if this is its child (:mod:`bgsoft.cli.guard`)."""


def process_start_ns() -> int:
    """Return the start of the command on the clock of :func:`time.perf_counter_ns`, to 10 ms."""
    try:
        fields = (
            Path(f"/proc/{forked_from or 'self'}/stat")
            .read_text(encoding="utf-8")
            .rpartition(")")[2]
            .split()
        )
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # starttime of proc_pid_stat(5)
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):  # not Linux, or no /proc
        age = time.process_time()
    return time.perf_counter_ns() - int(1e9 * age)


@contextmanager
def logged() -> Iterator[list[Span]]:
    """Collect the spans of this thread, and of its pools, during a ``with`` block.

    A nested block uses the outer one's list.
    """
    outer = _log.get()
    spans: list[Span] = [] if outer is None else outer
    token = _log.set(spans)
    try:
        yield spans
    finally:
        _log.reset(token)


@contextmanager
def span(name: str) -> Iterator[None]:
    """Record the time of a ``with`` block, inside a :func:`logged` one."""
    log = _log.get()
    if log is None:
        yield
        return
    started = time.perf_counter_ns()
    try:
        yield
    finally:
        ended = time.perf_counter_ns()
        log.append(Span(threading.current_thread().name, name, started, ended))


class StartupPool:
    """Threads that make parts of a render in parallel to each other and to a ``with`` block.

    All have ended at the end of the block. If parts fail, the error of the one submitted first is
    raised, before the block's own, whichever came first. The other parts' results are closed then.

    Args:
        on_failure: Called from any thread once a part or the block has failed, so that parts stop
            waiting.
    """

    def __init__(self, on_failure: Callable[[], None] = lambda: None) -> None:
        self._on_failure = on_failure
        self._pool = Threads(_MAX_THREADS, "bgsoft-start")
        self._futures: list[Future[Any]] = []

    def submit(self, name: str, make: Callable[[], R]) -> Future[R]:
        """Start to make a part; parts may submit others.

        Args:
            name: Name in the trace.
            make: Makes it; the result's ``close``, if any, is called if the start fails.
        """

        on_failure = self._on_failure

        def timed() -> R:
            threading.current_thread().name = f"bgsoft-start {name}"
            try:
                with span(name):
                    return make()
            except BaseException:
                on_failure()
                raise

        future = self._pool.submit(copy_context().run, timed)
        self._futures.append(future)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None:
            self._on_failure()
        try:
            errors = [future.exception() for future in self._futures]  # the list may grow meanwhile
        except BaseException:
            self._on_failure()
            raise
        finally:
            self._pool.close()
        # A part that had to stop waiting does not know the reason.
        known = sorted(filter(None, errors), key=lambda e: isinstance(e, RenderCancelledError))
        first = known[0] if known else None
        if first is None and exc is None:
            return
        for future, error in zip(self._futures, errors, strict=True):
            if error is None and (close := getattr(future.result(), "close", None)) is not None:
                close()
        # An interrupt comes from outside: no part's error caused it.
        counts = exc is None or (
            isinstance(exc, Exception) and not isinstance(first, RenderCancelledError)
        )
        if first is not None and first is not exc and counts:
            raise first
