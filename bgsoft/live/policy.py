"""What is decided while a stream runs: by numbers and times that are given, so that tests can."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from bgsoft.records import dataclass

T = TypeVar("T")

_MIN_STEP_SECONDS = 0.002
"""From one frame's time to the next: so that Matroska, which counts milliseconds, has two."""

LATE_SECONDS = 0.1
"""Deadline of decoding, after a frame has come: behind it, less is decoded, and what comes out is
dropped."""
_AT_LEAST_SECONDS = 0.9
"""After so long without a picture, one that is late is better than none."""
SINK_SECONDS = 0.25
"""Deadline of a sink's own thread: what has waited longer is dropped."""
_CAUGHT_UP_SECONDS = 0.04
_FAR_BEHIND_SECONDS = 0.5
"""Behind this, better no picture up to the next key frame than one that is so late."""
_LAG_WINDOW_SECONDS = 10.0
_JUMP_SECONDS = 2.0
"""A source's clock that moves so far against ours was set anew."""
_MAX_DRIFT_SECONDS = 0.25
"""How far a frame's time may lie off its arrival: jitter of a network, not another clock."""


class Newest(Generic[T]):
    """Holds one item: a newer one takes its place, and is counted. Neither side ever blocks."""

    def __init__(self, ready: threading.Event) -> None:
        self.dropped = 0
        self._ready = ready
        self._item: T | None = None
        self._lock = threading.Lock()

    def put(self, item: T) -> None:
        """Leave an item, and say so by the event."""
        with self._lock:
            self.dropped += self._item is not None
            self._item = item
        self._ready.set()

    def take(self) -> T | None:
        """The newest item, once."""
        with self._lock:
            item, self._item = self._item, None
        return item

    def newer(self, item: T, fits: Callable[[T], bool]) -> T:
        """The newest item, if it fits, in place of one that was taken; that one is counted then."""
        with self._lock:
            if self._item is not None and fits(self._item):
                self.dropped += 1
                item, self._item = self._item, None
        return item

    def clear(self) -> None:
        """Drop what nobody will take."""
        with self._lock:
            self.dropped += self._item is not None
            self._item = None


class Backoff:
    """How long to wait before a source is opened again: twice as long each time in a row."""

    def __init__(self, first_seconds: float = 0.25, max_seconds: float = 5.0) -> None:
        self._first, self._most = first_seconds, max_seconds
        self._next = first_seconds

    def wait_seconds(self) -> float:
        """The wait before the next try."""
        seconds, self._next = self._next, min(self._most, 2 * self._next)
        return seconds

    def reset(self) -> None:
        """The source is back."""
        self._next = self._first


Skip = Literal["DEFAULT", "NONREF", "NONKEY"]
"""What a decoder leaves out, as FFmpeg calls it: nothing to speak of, pictures that no other needs,
all but key frames."""


def skip_at(lag_seconds: float, before: str) -> Skip:
    """What to leave out, so late; what was left out stays out until decoding has caught up."""
    if lag_seconds > _FAR_BEHIND_SECONDS:
        return "NONKEY"
    if lag_seconds < _CAUGHT_UP_SECONDS:
        return "DEFAULT"
    if before == "NONKEY":
        return "NONKEY"
    return "NONREF" if lag_seconds > LATE_SECONDS or before == "NONREF" else "DEFAULT"


class Deadline:
    """Whether a decoded picture still comes in time to be worked on."""

    def __init__(self) -> None:
        self._allowed = -math.inf

    def allows(self, now: float, lag_seconds: float) -> bool:
        """Of a picture that is so late now."""
        if lag_seconds > LATE_SECONDS and now - self._allowed < _AT_LEAST_SECONDS:
            return False
        self._allowed = now
        return True


class LagMeter:
    """How far behind its source a reader is: against the least that it was lately."""

    def __init__(self) -> None:
        self._least: deque[tuple[float, float]] = deque()
        """(when, offset), of which only later ones are smaller."""

    def note(self, now: float, seconds: float) -> float:
        """Seconds behind, from our time and the source's own of one frame."""
        offset, least = now - seconds, self._least
        if least and abs(offset - least[0][1]) > _JUMP_SECONDS:
            least.clear()
        while least and least[-1][1] >= offset:
            least.pop()
        least.append((now, offset))
        while now - least[0][0] > _LAG_WINDOW_SECONDS:
            least.popleft()
        return offset - least[0][1]


class StreamClock:
    """The times of a stream's frames: even as the source's own, and never far from ours."""

    def __init__(self, ticks: int) -> None:
        self._ticks = ticks
        self._began: float | None = None
        self._offset = 0.0
        self._last: int | None = None

    def stamp(self, seconds: float | None, arrived: float) -> int:
        """The pts of the next frame, from 0 on and rising.

        Args:
            seconds: By the source's clock; None: it has none.
            arrived: By ours.
        """
        if self._began is None:
            self._began = arrived
        ours = arrived - self._began
        time = ours if seconds is None or not math.isfinite(seconds) else seconds + self._offset
        if abs(time - ours) > _MAX_DRIFT_SECONDS:
            self._offset += ours - time
            time = ours
        stamp = round(time * self._ticks)
        if self._last is not None:
            stamp = max(stamp, self._last + round(_MIN_STEP_SECONDS * self._ticks))
        self._last = stamp
        return stamp


@dataclass(frozen=True, slots=True)
class Quality:
    """What is left out to keep up."""

    faces_every: int = 1
    """Faces are looked for on every Nth frame."""
    masks_every: int = 1
    """Frames from one mask to the next are as many times those of ``--mask-every``."""

    def __str__(self) -> str:
        faces, people = self.faces_every, self.masks_every
        parts = [f"faces looked for on 1 of {faces} frames"] if faces > 1 else []
        if people > 1:
            parts.append(f"people on 1 of {people} of those that --mask-every takes")
        return ", ".join(parts) or "all that was asked for"


LADDER = (
    Quality(),
    Quality(2, 1),
    Quality(4, 1),
    Quality(4, 2),
    Quality(4, 3),
)
"""What is given up, step by step, while frames are dropped."""
_LOOK_SECONDS = 1.0
_DROPPED_SHARE = 0.05
"""Of the frames of a look: more than this steps down."""
_IDLE_SHARE = 0.7
"""Of the time busy: less than this, for long enough, steps up."""
_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 5.0, 80.0
"""Idle so long before a step up; twice as long, up to the most, after one that was too early."""


class Ladder:
    """Steps quality down where frames are dropped, and up again.

    Args:
        now: Seconds of any clock.
        steps: What is given up, in order.
    """

    def __init__(self, now: float, steps: tuple[Quality, ...] = LADDER) -> None:
        self.level = 0
        self._steps = steps
        self._looked = now
        self._counts: tuple[int, int, float] | None = None
        self._idle_since: float | None = None
        self._patience = _PATIENCE_SECONDS
        self._rose = -math.inf

    @property
    def quality(self) -> Quality:
        return self._steps[self.level]

    def check(self, now: float, frames_in: int, dropped: int, busy_seconds: float) -> bool:
        """Decide anew, from counts since the beginning; says whether the level has changed."""
        seconds = now - self._looked
        if seconds < _LOOK_SECONDS:
            return False
        before, self._counts = self._counts, (frames_in, dropped, busy_seconds)
        self._looked = now
        if before is None:  # what was dropped while the stages started says nothing
            return False
        came, lost, busy = (new - old for new, old in zip(self._counts, before, strict=True))
        if came and lost / came > _DROPPED_SHARE:
            return self._step_down(now)
        if busy / seconds >= _IDLE_SHARE:
            self._idle_since = None
            return False
        self._idle_since = self._looked if self._idle_since is None else self._idle_since
        if self.level == 0 or now - self._idle_since < self._patience:
            return False
        self.level -= 1
        self._rose, self._idle_since = now, now
        return True

    def _step_down(self, now: float) -> bool:
        self._idle_since = None
        if now - self._rose < _PATIENCE_SECONDS:  # the last step up was too much
            self._patience = min(2 * self._patience, _MOST_PATIENCE_SECONDS)
        if self.level + 1 >= len(self._steps):
            return False
        self.level += 1
        return True
