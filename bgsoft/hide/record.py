"""The record of hidden places: runs of frames, each with a box that may move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bgsoft.frame import Frame
from bgsoft.hide.plan import Rectangle
from bgsoft.records import NamedTuple
from bgsoft.report import HiddenRun

KEY_FRAMES = 30
"""Between the first and the last frame of a run, its box is listed in frames whose index is a
multiple of this: a second of most videos."""
_MIN_SHARED = 0.3
"""Intersection over union from which on the boxes of two consecutive frames are the same place."""


class HiddenPlace(NamedTuple):
    """A place that was hidden in one frame."""

    box: Rectangle
    region: str | None = None
    """Name of the region, or a detector's class; None: a face."""


class HiddenRecord:
    """Records hidden places of one source; frames come in order.

    Args:
        source: See :attr:`bgsoft.report.HiddenRun.source`.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.runs: list[HiddenRun] = []
        """Runs with the boxes of all key frames, also of unmoved ones: for :func:`join_runs`."""
        self._alive: list[HiddenRun] = []

    def add(self, frame: Frame, places: Iterable[HiddenPlace]) -> None:
        """Record the places that were hidden in a frame."""
        width, height = frame.format.width, frame.format.height
        before = [run for run in self._alive if run.last_frame == frame.index - 1]
        self._alive = []
        for place in places:
            left, top, right, bottom = place.box
            sides = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
            seconds = round(frame.time_seconds, 6)
            now = HiddenRun(
                source=self._source,
                region=place.region,
                first_frame=frame.index,
                last_frame=frame.index,
                first_s=seconds,
                last_s=seconds,
                boxes=[(frame.index, *sides)],
            )
            run = _take_continued(now, before)
            if run is None:
                self.runs.append(now)
            else:
                _extend(run, now)
            self._alive.append(run or now)


def join_runs(parts: Iterable[Sequence[HiddenRun]]) -> list[HiddenRun]:
    """Join the records of consecutive parts of a video, by the frame they begin with.

    Boxes that rest between the first and the last frame of a run are left out.
    """
    joined: list[HiddenRun] = []
    for part in parts:
        ended: dict[int, list[HiddenRun]] = {}
        for run in joined:
            ended.setdefault(run.last_frame, []).append(run)
        for run in part:
            before = ended.get(run.first_frame - 1, [])
            last = _take_continued(run, before)
            if last is None:
                joined.append(run)
            else:
                _extend(last, run)
    for run in joined:
        moving: list[tuple[int, int, int, int, int]] = []
        for box in run.boxes:
            if not moving or box[0] == run.last_frame or box[1:] != moving[-1][1:]:
                moving.append(box)
        run.boxes = moving
    return sorted(joined, key=lambda run: run.first_frame)


def _take_continued(run: HiddenRun, before: list[HiddenRun]) -> HiddenRun | None:
    """Remove the run that goes on with another one from those that end with the frame before."""
    shared = [_shared(each, run) for each in before]
    best = max(range(len(before)), key=shared.__getitem__, default=None)
    return None if best is None or shared[best] < _MIN_SHARED else before.pop(best)


def _shared(ending: HiddenRun, run: HiddenRun) -> float:
    """Return the likelihood that a run continues another one, 0–1; of a region, 0 or 1."""
    if (ending.source, ending.region) != (run.source, run.region):
        return 0.0
    if run.region is not None and run.source != "detector":
        return 1.0
    (_, left, top, right, bottom), (_, x0, y0, x1, y1) = ending.boxes[-1], run.boxes[0]
    width, height = min(right, x1) - max(left, x0), min(bottom, y1) - max(top, y0)
    both = max(width, 0) * max(height, 0)
    return both / ((right - left) * (bottom - top) + (x1 - x0) * (y1 - y0) - both)


def _extend(run: HiddenRun, following: HiddenRun) -> None:
    """Add what follows at once to a run; keep the boxes of key frames."""
    first, *more = following.boxes
    if run.boxes[-1][0] % KEY_FRAMES and len(run.boxes) > 1:
        run.boxes.pop()
    if not more or first[0] % KEY_FRAMES == 0:
        run.boxes.append(first)
    run.boxes += more
    run.last_frame, run.last_s = following.last_frame, following.last_s
