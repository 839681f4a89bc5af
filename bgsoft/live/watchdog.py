"""The thread that works for a stream, and what it does now: so that a hang is noticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bgsoft.pipeline.stall import stuck_stage
from bgsoft.threads import DaemonThread


class ReplacedError(Exception):
    """Another thread has taken over while this one did not come back."""


class Watchdog:
    """Runs a function in a thread, and knows what that does.

    Args:
        run: The function; it calls :meth:`begin`.
        name: The thread's.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run, self._name = run, name
        self._doing = ("", 0.0)
        """Current work of the thread, and its start; empty: none."""
        self.thread: DaemonThread | None = None

    def start(self) -> None:
        """Run the function in a new thread."""
        self._doing = ("", 0.0)
        self.thread = DaemonThread(self._run, self._name)
        self.thread.start()

    def begin(self, what: str = "") -> None:
        """Note the part that begins now, or None; raise ReplacedError in a replaced thread."""
        if not self.is_current:
            raise ReplacedError
        self._doing = (what, time.monotonic())

    @property
    def is_current(self) -> bool:
        """Return whether the calling thread is the current worker."""
        return threading.current_thread() is self.thread

    def hanging(self, patience: Callable[[str], float]) -> str:
        """Return what takes longer than its patience in seconds; empty: nothing."""
        what, since = self._doing
        return what if what and time.monotonic() - since > patience(what) else ""

    def abandon(self) -> str:
        """Leave the thread to itself: it ends where it comes back. Return the place it is in."""
        stage = stuck_stage([("picture", self.thread)]) if self.thread is not None else ""
        self.thread = None
        return stage

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        if self.thread is not None:
            self.thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        """Return whether the thread still runs."""
        return self.thread is not None and self.thread.is_alive()
