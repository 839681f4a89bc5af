"""Turns frame counts and stage clocks into progress snapshots."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from bgsoft.pipeline.metrics import Metrics
from bgsoft.report import Progress

__all__ = ["ProgressMeter"]

_WINDOW_SECONDS = 3.0
"""Frame rate and load shown are means over this long: steady, yet quick to follow a change."""


class ProgressMeter:
    """Calls back with a :class:`Progress` at most every ``interval_seconds``.

    Args:
        total: Frames expected; None where unknown.
        metrics: Clocks of the pipeline.
        callback: Takes the snapshots, in the thread that calls :meth:`tick`.
        interval_seconds: Shortest time between two snapshots.
        clock: Returns seconds; replaceable for tests.
    """

    def __init__(
        self,
        total: int | None,
        metrics: Metrics,
        callback: Callable[[Progress], None],
        *,
        interval_seconds: float = 0.1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._total = total
        self._metrics = metrics
        self._callback = callback
        self._interval = interval_seconds
        self._clock = clock
        self._started = clock()
        self._reported = self._started
        self._history: deque[tuple[float, int, dict[str, int]]] = deque(
            [(self._started, 0, metrics.busy())]
        )

    def tick(self, frames: int) -> None:
        """Take note of the frames encoded so far; report where it is time."""
        now = self._clock()
        if now - self._reported >= self._interval:
            self._report(now, frames)

    def finish(self, frames: int) -> None:
        """Report the end, whenever the last report was."""
        self._total = frames
        self._report(self._clock(), frames)

    def _report(self, now: float, frames: int) -> None:
        busy = self._metrics.busy()
        self._history.append((now, frames, busy))
        while len(self._history) > 2 and now - self._history[1][0] >= _WINDOW_SECONDS:
            self._history.popleft()
        since, before, busy_before = self._history[0]
        seconds = now - since
        fps = (frames - before) / seconds if seconds > 0 else 0.0
        load = {
            name: min(1.0, max(0.0, (ns - busy_before.get(name, 0)) / (seconds * 1e9)))
            for name, ns in busy.items()
            if seconds > 0
        }
        total = self._total
        # The header's count can be too low; then the rest is unknown rather than negative.
        known = total is not None and frames <= total
        self._callback(
            Progress(
                frames=frames,
                total=total if known else None,
                elapsed_seconds=now - self._started,
                fps=fps,
                eta_seconds=(total - frames) / fps if known and total and fps > 0 else None,
                load=load,
            )
        )
        self._reported = now
