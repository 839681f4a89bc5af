"""Callbacks of a render, and the event that stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bgsoft.report import Event, Progress


class Listener:
    """The callbacks of a render.

    Args:
        on_progress: Called about ten times a second, from the calling thread, if given.
        on_event: Called once for each notice, fallback, repair and scene cut, if given; from any
            thread, but never from two at a time.
        cancel: Set it, from any thread, to stop the render.
    """

    def __init__(
        self,
        on_progress: Callable[[Progress], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._on_event = on_event
        self.cancel = cancel or threading.Event()

    def progress(self, progress: Progress) -> None:
        """Pass progress on."""
        if self._on_progress is not None:
            self._on_progress(progress)

    def event(self, event: Event) -> None:
        """Pass an event on."""
        if self._on_event is not None:
            self._on_event(event)
