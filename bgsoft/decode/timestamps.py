"""Makes timestamps rise strictly where a file's do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["RisingPts", "Stamped"]

T = TypeVar("T")

_MAX_HELD = 16
"""Leading items without a timestamp that are held back until one has one."""


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T]):
    """An item with the timestamp to use."""

    item: T
    pts: int
    repaired: bool = False
    """Whether the timestamp was replaced or moved."""
    jumped: bool = False
    """Whether the clock was restarted at this item."""


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    item: T
    duration: int


class RisingPts(Generic[T]):
    """Passes good timestamps through and replaces bad ones.

    - An item without a timestamp is set one duration after its predecessor; the first ones, so
      that they lead up to the first that has one.
    - One whose timestamp is not after its predecessor's is set half a duration after it, so that
      it fits in before the next.
    - Where the clock itself jumped back, or absurdly far ahead (a joined broadcast recording), the
      item follows one duration after, and those that come later are moved by the same amount.

    Args:
        frame_ticks: Nominal duration in pts units, for items that do not tell theirs; at least 1.
        jump_ticks: How far back, in pts units, counts as a jump of the clock.
        leap_ticks: How far ahead does; None: nothing is too far.
    """

    def __init__(self, frame_ticks: int, jump_ticks: int, leap_ticks: int | None = None) -> None:
        self._frame_ticks = max(1, frame_ticks)
        self._jump_ticks = jump_ticks
        self._leap_ticks = leap_ticks
        self._held: list[_Held[T]] = []
        self._last: int | None = None
        self._last_duration = 0
        self._offset = 0

    def push(
        self, item: T, pts: int | None, dts: int | None, duration: int
    ) -> Iterator[Stamped[T]]:
        """Take the next item in presentation order; yields those whose timestamps are settled.

        Args:
            item: What the timestamp belongs to.
            pts: As decoded; None where missing.
            dts: Decoding timestamp, the second best source; None where missing.
            duration: The item's own; 0 where unknown.
        """
        known = pts if pts is not None else dts
        if self._last is None and known is None and len(self._held) < _MAX_HELD:
            self._held.append(_Held(item, duration))
            return
        yield from self._settle(known)
        yield self._next(item, pts, known, duration)

    def flush(self) -> Iterator[Stamped[T]]:
        """Yield what is held back still: all items, if none had a timestamp."""
        yield from self._settle(None)

    def _settle(self, following: int | None) -> Iterator[Stamped[T]]:
        """Yield the held items, timed so that they lead up to ``following``; None: from 0 on."""
        held, self._held = self._held, []
        pts = 0
        if following is not None:
            pts = following - sum(entry.duration or self._frame_ticks for entry in held)
        for entry in held:
            yield Stamped(entry.item, pts, repaired=True)
            self._last, self._last_duration = pts, entry.duration
            pts += entry.duration or self._frame_ticks

    def _next(self, item: T, pts: int | None, known: int | None, duration: int) -> Stamped[T]:
        jumped = False
        if self._last is None:
            result = known or 0
        else:
            last_duration = self._last_duration or self._frame_ticks
            result = self._last + last_duration
            if known is not None:
                moved = known + self._offset
                ahead = moved - self._last
                leaps = self._leap_ticks is not None and ahead >= self._leap_ticks
                if ahead > 0 and not leaps:
                    result = moved
                elif leaps or -ahead >= self._jump_ticks:
                    self._offset += result - moved
                    jumped = True
                else:
                    result = self._last + max(1, last_duration // 2)
        self._last, self._last_duration = result, duration
        return Stamped(item, result, repaired=result != pts, jumped=jumped)
