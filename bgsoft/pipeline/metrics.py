"""Measurements of a render: time of the stages, progress, and memory."""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.clock import StageClock
from bgsoft.report import STAGE_NAMES, Progress

if TYPE_CHECKING:
    from bgsoft.pipeline.trace import TraceRecorder


_INTERVAL_SECONDS = 0.1
_WINDOW_SECONDS = 3.0
"""Window of the displayed frame rate and load: steady, yet quick to follow a change."""
_WINDOW_FRAMES = 16
"""The window is extended to this number of frames. They come in batches of up to eight, and a slow
model may need most of a minute for one."""


class Metrics:
    """The clocks of one pipeline, by stage; an observer is notified of each use."""

    def __init__(self, observer: TraceRecorder | None = None) -> None:
        self.observer = observer
        self.stages = {name: StageClock(name, observer) for name in STAGE_NAMES}
        """Clocks by stage, each written by its own thread."""
        self.submitted = {name: StageClock(name, observer) for name in STAGE_NAMES}
        """Clocks of work that stages submit to another thread."""
        self.converting = StageClock("convert", observer)
        """Clock of the conversion of given pictures to 4:2:0."""

    def busy(self) -> dict[str, int]:
        """Return the busy nanoseconds by stage so far, in all threads."""
        return {
            name: self.stages[name].busy_so_far_ns + self.submitted[name].busy_so_far_ns
            for name in STAGE_NAMES
        }


class RecentFrames:
    """Measures the recent rate of a frame count, on any clock.

    The window is ``seconds`` long, or longer until it has several frames. Other counts are recorded
    with it.
    """

    def __init__(self, now: float, seconds: float, noted: Mapping[str, int] | None = None) -> None:
        self._seconds = seconds
        self._history = deque([(now, 0, noted or {})])

    def since(
        self, now: float, frames: int, noted: Mapping[str, int] | None = None
    ) -> tuple[float, int, Mapping[str, int]]:
        """Record the counts; return the window's beginning: time, frames and other counts."""
        history = self._history
        if frames != history[-1][1]:
            history.append((now, frames, noted or {}))
        while (
            len(history) > 2
            and now - history[1][0] >= self._seconds
            and frames - history[1][1] >= _WINDOW_FRAMES
        ):
            history.popleft()
        return history[0]


class ProgressMeter:
    """Reports a :class:`Progress` about ten times a second, in the thread that ticks.

    ``total`` is the expected number of frames; None: unknown.
    """

    def __init__(
        self, total: int | None, metrics: Metrics, callback: Callable[[Progress], None]
    ) -> None:
        self._total = total
        self._metrics = metrics
        self._callback = callback
        self._started = time.perf_counter()
        self._reported = self._started
        self._recent = RecentFrames(self._started, _WINDOW_SECONDS, metrics.busy())

    def tick(self, frames: int) -> None:
        """Record the frames encoded so far; report if it is time."""
        now = time.perf_counter()
        if now - self._reported >= _INTERVAL_SECONDS:
            self._report(now, frames)

    def finish(self, frames: int) -> None:
        """Report the end, whenever the last report was."""
        self._total = frames
        self._report(time.perf_counter(), frames)

    def _report(self, now: float, frames: int) -> None:
        busy = self._metrics.busy()
        since, before, busy_before = self._recent.since(now, frames, busy)
        seconds = now - since
        fps = (frames - before) / seconds if seconds > 0 else 0.0
        load = {
            name: min(1.0, max(0.0, (ns - busy_before.get(name, 0)) / (seconds * 1e9)))
            for name, ns in busy.items()
            if seconds > 0
        }
        total = self._total
        # The header's count can be too low; then the rest is unknown.
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


def peak_rss_bytes() -> int:
    """Return the largest resident set of this process so far, bytes.

    It is Linux' ``VmHWM``. ``getrusage`` would include the process that started this one, until
    the moment of exec.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
