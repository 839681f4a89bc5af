"""Signals that ask a command to stop."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from contextlib import suppress
from math import inf
from types import FrameType
from typing import Any, Self

from bgsoft.cli import process
from bgsoft.exitcodes import ExitCode

_RECHECK_SECONDS = 0.5
"""A signal that comes just before a wait begins does not interrupt it."""


class _Stop(threading.Event):
    """An event that a signal handler can set.

    The handler interrupts the main thread, which may be in one of its methods and hold its lock.
    """

    _asked = False

    def set(self) -> None:
        self._asked = True
        with suppress(RuntimeError):  # too many threads: a waiting thread is not woken
            _thread.start_new_thread(super().set, ())  # Thread.start would wait for locks

    def is_set(self) -> bool:
        return self._asked or super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        ends = inf if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (left := ends - time.monotonic()) > 0:
            super().wait(min(left, _RECHECK_SECONDS))
        return self.is_set()


class StopSignals:
    """Context in which SIGINT, SIGTERM and SIGHUP set :attr:`cancel` instead of ending the process.

    The render then stops, removes its unfinished output and raises. Further signals change nothing:
    ``timeout`` and others signal a process and then its group, which is twice. A second Ctrl-C in a
    terminal ends the process by force (:mod:`bgsoft.cli.guard`).
    """

    _HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.cancel: threading.Event = _Stop()
        self._received: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a cancelled command: 130 for Ctrl-C, 143 for SIGTERM and SIGHUP."""
        interrupted = self._received in (None, signal.SIGINT)
        return ExitCode.INTERRUPTED if interrupted else ExitCode.TERMINATED

    def __enter__(self) -> Self:
        # Only the main thread may set handlers; elsewhere the calling program keeps its own.
        if threading.current_thread() is threading.main_thread():
            for number in self._HANDLED:
                # Signals that nohup or a shell's «&» has disabled stay disabled.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if process.ends_after_command:
            return  # with what the block has made: a signal changes that no more
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._received is None:
            self._received = number
        self.cancel.set()
