"""How far a render is whose parts are rendered side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bgsoft.pipeline.metrics import RecentFrames
from bgsoft.report import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress(Progress):
    """Of a part in which faces are found, before it is rendered."""

    @staticmethod
    def of(progress: Progress) -> SearchProgress:
        """The same progress, of a search."""
        return SearchProgress(**asdict(progress))


_WINDOW_SECONDS = 10.0
"""Frame rates are means over this long: parts begin and end."""


class PartsProgress:
    """Makes one progress of the parts'.

    Args:
        lengths: Frames of each part.
        passes: 2 where faces are found first: each of a frame's counts as half of it.
        callback: Takes it; None: nobody does.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        passes: int,
        callback: Callable[[Progress], None] | None,
    ) -> None:
        self._lengths = lengths
        self._passes = passes
        self._callback = callback
        self._latest: dict[tuple[int, bool], Progress] = {}
        self._known = 0
        """Frames of parts that were finished before."""
        self._started = time.perf_counter()
        self._recent = RecentFrames(self._started, _WINDOW_SECONDS)

    def update(self, part: int | None, progress: Progress) -> None:
        """Take in what a part says; None: the video is rendered whole after all."""
        if self._callback is None:
            return
        if part is None:
            self._callback(progress)
            return
        at = part, isinstance(progress, SearchProgress)
        if at not in self._latest and progress.frames == progress.total:
            self._known += progress.frames
        self._latest[at] = progress
        now = time.perf_counter()
        frames, total = sum(p.frames for p in self._latest.values()), sum(self._lengths)
        total *= self._passes
        since, before, _ = self._recent.since(now, frames - self._known)
        fps = (frames - self._known - before) / (now - since) if now > since else 0.0
        running = [p for p in self._latest.values() if p.total is None or p.frames < p.total]
        load = {
            stage: sum(p.load.get(stage, 0.0) for p in running) / len(running)
            for stage in (running[0].load if running else ())
        }
        self._callback(
            Progress(
                frames=frames // self._passes,
                total=total // self._passes,
                elapsed_seconds=now - self._started,
                fps=fps / self._passes,
                eta_seconds=(total - frames) / fps if fps > 0 else None,
                load=load,
            )
        )
