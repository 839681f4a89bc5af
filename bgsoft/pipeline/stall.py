"""Detection of a render that has stalled, and of the stage that did."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from bgsoft.errors import StallError
from bgsoft.infer.warm import StageThread
from bgsoft.report import STAGE_NAMES

_MAX_STEP_SECONDS = 1.0
"""Most time that one check adds: a process that was stopped for an hour has not stalled."""
_STAGES = {*STAGE_NAMES, "analysis"}
_WAITING = {"bgsoft.pipeline.channel", "bgsoft.ring"}
"""Modules in which a thread waits for other stages."""


class StallWatch:
    """Raises StallError once counts have not changed for a time; None: never.

    ``threads`` are those of the pipeline by stage, from the last to the first.
    """

    def __init__(self, seconds: float | None, threads: Iterable[tuple[str, StageThread]]):
        self._seconds = seconds
        self._threads = list(threads)
        self._seen: tuple[int, ...] = ()
        self._since = 0.0
        self._checked_at = time.monotonic()

    def check(self, counts: tuple[int, ...]) -> None:
        """Compare the counts of each stage with those of the last check."""
        now = time.monotonic()
        step, self._checked_at = min(now - self._checked_at, _MAX_STEP_SECONDS), now
        if counts != self._seen:
            self._seen, self._since = counts, 0.0
            return
        self._since += step
        if self._seconds is not None and self._since >= self._seconds:
            text = f"stalled: no frame for {self._seconds:g} s; see --stall"
            raise StallError(text, stage=stuck_stage(self._threads))


def stuck_stage(threads: Iterable[tuple[str, StageThread]]) -> str:
    """Return the last busy stage: earlier ones wait for room, later ones for frames.

    ``threads`` are by stage, from the last to the first.
    """
    frames = sys._current_frames()
    for name, thread in threads:
        frame = frames.get(thread.ident or 0)
        modules = []
        while frame is not None:
            modules.append(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        if modules and not _WAITING.intersection(modules):
            parts = (module.split(".")[1] for module in modules if module.startswith("bgsoft."))
            return next((part for part in parts if part in _STAGES), name)
    return "pipeline"
