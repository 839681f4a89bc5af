"""Decisions of a running stream, as functions of given numbers and times, for tests."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from bgsoft.records import dataclass

T = TypeVar("T")

_MIN_STEP_SECONDS = 0.002
"""Least time between frames, so that Matroska, which counts milliseconds, can tell them apart."""

LATE_SECONDS = 0.1
"""Deadline of decoding after a frame's arrival: later frames are decoded in part, and dropped."""
_AT_LEAST_SECONDS = 0.9
"""Time without a picture after which a late one is better than none."""
SINK_SECONDS = 0.25
"""Deadline of a sink's own thread: frames that have waited longer are dropped."""
_CAUGHT_UP_SECONDS = 0.04
_FAR_BEHIND_SECONDS = 0.5
"""Delay beyond which all pictures up to the next key frame are skipped."""
_LAG_WINDOW_SECONDS = 10.0
_WAIT_SECONDS, _WAIT_SHARE = 0.01, 0.5
"""A wait for a packet that is longer than this, and than this share of the time since the last
frame, shows that none was there. Shorter ones may be waits for the interpreter."""
_JUMP_SECONDS = 2.0
"""Step of a source's clock against ours that counts as a reset."""
_MAX_DRIFT_SECONDS = 0.25
"""Largest distance of a frame's time from its arrival: network jitter, not another clock."""


class Newest(Generic[T]):
    """Holds one item: a newer one replaces it, which is counted. No method blocks."""

    def __init__(self, ready: threading.Event) -> None:
        self.dropped = 0
        self._ready = ready
        self._item: T | None = None
        self._lock = threading.Lock()

    def put(self, item: T) -> None:
        """Store an item, and set the event."""
        with self._lock:
            self.dropped += self._item is not None
            self._item = item
        self._ready.set()

    def take(self) -> T | None:
        """Return the newest item, once."""
        with self._lock:
            item, self._item = self._item, None
        return item

    def newer(self, item: T, fits: Callable[[T], bool]) -> T:
        """Return the newest item if it fits, else ``item``; a replaced item counts as dropped."""
        with self._lock:
            if self._item is not None and fits(self._item):
                self.dropped += 1
                item, self._item = self._item, None
        return item

    def clear(self) -> None:
        """Discard the item."""
        with self._lock:
            self.dropped += self._item is not None
            self._item = None


class Backoff:
    """Wait before a source is opened again, doubled after each failure."""

    def __init__(self, first_seconds: float = 0.25, max_seconds: float = 5.0) -> None:
        self._first, self._most = first_seconds, max_seconds
        self._next = first_seconds

    def wait_seconds(self) -> float:
        """Return the wait before the next attempt."""
        seconds, self._next = self._next, min(self._most, 2 * self._next)
        return seconds

    def reset(self) -> None:
        """Reset the wait: the source is back."""
        self._next = self._first


Skip = Literal["DEFAULT", "NONREF", "NONKEY"]
"""Frames that a decoder skips, in FFmpeg's words: almost none, those that no other frame needs, or
all but key frames."""


def skip_at(lag_seconds: float, before: str) -> Skip:
    """Return what to skip at this delay; skipping continues until decoding has caught up."""
    if lag_seconds > _FAR_BEHIND_SECONDS:
        return "NONKEY"
    if lag_seconds < _CAUGHT_UP_SECONDS:
        return "DEFAULT"
    if before == "NONKEY":
        return "NONKEY"
    return "NONREF" if lag_seconds > LATE_SECONDS or before == "NONREF" else "DEFAULT"


class Deadline:
    """Decides whether a decoded picture is still in time."""

    def __init__(self) -> None:
        self._allowed = -math.inf

    def allows(self, now: float, lag_seconds: float) -> bool:
        """Return whether a picture with this delay is in time now."""
        if lag_seconds > LATE_SECONDS and now - self._allowed < _AT_LEAST_SECONDS:
            return False
        self._allowed = now
        return True


class LagMeter:
    """Measures a reader's delay behind its source, against the least recent delay.

    A reader that has waited for data is not late: then a larger delay is the source's.
    """

    def __init__(self) -> None:
        self._least: deque[tuple[float, float]] = deque()
        """(time, offset) pairs; only later ones are smaller."""
        self._noted = -math.inf
        """Time of the last frame."""

    def note(self, now: float, seconds: float, waited: float = 0.0) -> float:
        """Return the delay in seconds of one frame.

        Args:
            now: Our time.
            seconds: The source's time of the frame.
            waited: Seconds of the longest wait for a packet since the last frame.
        """
        offset, least = now - seconds, self._least
        has_waited = waited > max(_WAIT_SECONDS, _WAIT_SHARE * (now - self._noted))
        self._noted = now
        if has_waited or (least and abs(offset - least[0][1]) > _JUMP_SECONDS):
            least.clear()
        while least and least[-1][1] >= offset:
            least.pop()
        least.append((now, offset))
        while now - least[0][0] > _LAG_WINDOW_SECONDS:
            least.popleft()
        return offset - least[0][1]


class StreamClock:
    """Timestamps of a stream's frames: as even as the source's, and always close to ours."""

    def __init__(self, ticks: int) -> None:
        self._ticks = ticks
        self._began: float | None = None
        self._offset = 0.0
        self._last: int | None = None

    def begin(self, seconds: float | None, arrived: float) -> None:
        """Set the time 0, as :meth:`stamp` does with its first frame; later calls have no effect.

        The first picture arrives earlier: while the stages start.
        """
        if self._began is None:
            self._began = arrived
            if seconds is not None and math.isfinite(seconds):
                self._offset = -seconds

    def stamp(self, seconds: float | None, arrived: float) -> int:
        """Return the pts of the next frame, rising.

        Args:
            seconds: Time by the source's clock; None: unknown.
            arrived: Time by ours.
        """
        self.begin(seconds, arrived)
        assert self._began is not None
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
    """Reductions of quality that save time."""

    faces_every: int = 1
    """Detect faces on every Nth frame."""
    masks_every: int = 1
    """Factor on ``--mask-every``, the number of frames from one mask to the next."""

    def __str__(self) -> str:
        faces, people = self.faces_every, self.masks_every
        parts = [f"faces on 1 of {faces} frames"] if faces > 1 else []
        if people > 1:
            parts.append(f"people on 1 of {people} frames that --mask-every takes")
        return ", ".join(parts) or "as requested"


LADDER = (Quality(), Quality(2, 1), Quality(4, 1), Quality(4, 2), Quality(4, 3))
"""Reductions in order, taken while frames are dropped."""
_CHECK_SECONDS = 1.0
_DROPPED_SHARE = 0.05
"""Share of dropped frames in an interval above which quality steps down."""
_IDLE_SHARE = 0.7
"""Share of busy time below which quality steps up after some time."""
_PATIENCE_SECONDS, _MAX_PATIENCE_SECONDS = 5.0, 80.0
"""Idle time before a step up; doubled, up to the maximum, after one that was too early."""


class Ladder:
    """Steps quality down while frames are dropped, and up again.

    Args:
        now: Seconds of any clock.
        steps: Reductions, in order.
    """

    def __init__(self, now: float, steps: tuple[Quality, ...] = LADDER) -> None:
        self.level = 0
        self._steps = steps
        self._checked_at = now
        self._counts: tuple[int, int, float] | None = None
        self._idle_since: float | None = None
        self._patience = _PATIENCE_SECONDS
        self._rose = -math.inf

    @property
    def quality(self) -> Quality:
        return self._steps[self.level]

    def check(self, now: float, frames_in: int, dropped: int, busy_seconds: float) -> bool:
        """Update the level, from counts since the start; return whether it has changed."""
        seconds = now - self._checked_at
        if seconds < _CHECK_SECONDS:
            return False
        before, self._counts = self._counts, (frames_in, dropped, busy_seconds)
        self._checked_at = now
        if before is None:  # frames dropped during the start do not count
            return False
        came, lost, busy = (new - old for new, old in zip(self._counts, before, strict=True))
        if came and lost / came > _DROPPED_SHARE:
            return self._step_down(now)
        if busy / seconds >= _IDLE_SHARE:
            self._idle_since = None
            return False
        self._idle_since = self._checked_at if self._idle_since is None else self._idle_since
        if self.level == 0 or now - self._idle_since < self._patience:
            return False
        self.level -= 1
        self._rose, self._idle_since = now, now
        return True

    def _step_down(self, now: float) -> bool:
        self._idle_since = None
        if now - self._rose < _PATIENCE_SECONDS:  # the last step up was too early
            self._patience = min(2 * self._patience, _MAX_PATIENCE_SECONDS)
        if self.level + 1 >= len(self._steps):
            return False
        self.level += 1
        return True
