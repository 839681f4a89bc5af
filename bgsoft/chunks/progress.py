"""How far a render is whose chunks are rendered side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bgsoft.pipeline.metrics import RecentFrames
from bgsoft.report import Progress

_WINDOW_SECONDS = 10.0
"""Frame rates are means over this long: chunks begin and end."""


class ChunksProgress:
    """Makes one progress of the chunks'.

    Args:
        lengths: Frames of each chunk.
        callback: Takes it.
    """

    def __init__(self, lengths: Sequence[int], callback: Callable[[Progress], None]) -> None:
        self._total = sum(lengths)
        self._callback = callback
        self._latest: dict[int, Progress] = {}
        self._known = 0
        """Frames of chunks that were finished before."""
        self._started = time.perf_counter()
        self._recent = RecentFrames(self._started, _WINDOW_SECONDS)

    def update(self, chunk: int, progress: Progress) -> None:
        """Take in what a chunk says."""
        if chunk not in self._latest and progress.frames == progress.total:
            self._known += progress.frames
        self._latest[chunk] = progress
        now = time.perf_counter()
        frames, total = sum(p.frames for p in self._latest.values()), self._total
        since, before, _ = self._recent.since(now, frames - self._known)
        fps = (frames - self._known - before) / (now - since) if now > since else 0.0
        running = [p for p in self._latest.values() if p.total is None or p.frames < p.total]
        load = {
            stage: sum(p.load.get(stage, 0.0) for p in running) / len(running)
            for stage in (running[0].load if running else ())
        }
        self._callback(
            Progress(
                frames=frames,
                total=total,
                elapsed_seconds=now - self._started,
                fps=fps,
                eta_seconds=(total - frames) / fps if fps > 0 else None,
                load=load,
            )
        )
