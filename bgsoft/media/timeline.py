"""How input times become output times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo


@dataclass(slots=True, kw_only=True)
class Timeline:
    """One shift for all tracks, and the part of the input that is kept; seconds, exact.

    The origin may still move (:meth:`include`) until the first packet is written.
    """

    origin: Fraction = Fraction(0)
    """Input time that becomes zero; a whole number of the video's time base."""
    begin: Fraction | None = None
    """Input time before which nothing is kept; None: everything."""
    end: Fraction | None = None
    """Input time from which on nothing is kept; None: everything."""

    @classmethod
    def plan(
        cls,
        info: VideoInfo,
        container: Container,
        *,
        earliest: Fraction | None = None,
        start_seconds: float = 0.0,
        duration_seconds: float | None = None,
    ) -> Self:
        """Choose the shift.

        A whole file keeps its timestamps, negative and late starts included, with two exceptions:
        a broadcast clock is set to zero where the output's clock has a meaning, and a video that
        starts before zero is moved there, since no container shows pictures before zero. A part
        of a file starts at zero, and so does the video in a container that knows no other start.

        Args:
            info: The video to be rendered.
            container: The output.
            earliest: Start of the input's first track, where known; None: the video's.
            start_seconds: Start of the part, counted from the video's first frame.
            duration_seconds: Its length; None: to the end.
        """
        tick = info.time_base
        first = (info.start_pts or 0) * tick
        # The decimal number that was typed: 0.52 means frame 13 of 25 a second, included.
        start = first + Fraction(str(start_seconds))
        end = None if duration_seconds is None else start + Fraction(str(duration_seconds))
        if start_seconds > 0:
            return cls(origin=math.floor(start / tick) * tick, begin=start, end=end)
        if container.numbers_frames:
            return cls(origin=first, end=end)
        origin = min(Fraction(0), first)
        if not container.free_origin and info.is_broadcast:
            lowest = first if earliest is None else min(first, earliest)
            origin = math.floor(lowest / tick) * tick
        return cls(origin=origin, end=end)

    def include(self, seconds: Fraction) -> bool:
        """Move the origin back to an input time if it lies behind it.

        Headers give the first timestamp, and not all of them are right.

        Returns:
            Whether the origin has moved.
        """
        if seconds >= self.origin:
            return False
        self.origin = seconds
        return True

    def ticks(self, time_base: Fraction) -> int:
        """The shift in units of a stream's time base, to be subtracted; rounded to nearest."""
        return round(self.origin / time_base)

    def keeps(self, seconds: Fraction) -> bool:
        """Whether an input time lies in the kept part."""
        after = self.begin is None or seconds >= self.begin
        return after and (self.end is None or seconds < self.end)

    def clip(self, start: Fraction, end: Fraction) -> tuple[Fraction, Fraction]:
        """What of a stretch of input time is kept; nothing where the end is not after the start."""
        if self.begin is not None:
            start = max(start, self.begin)
        if self.end is not None:
            end = min(end, self.end)
        return start, end

    @property
    def is_part(self) -> bool:
        """Whether the output starts later than the input."""
        return self.begin is not None
