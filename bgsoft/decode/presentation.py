"""Which of a stream's pictures are shown, and when: the same for every decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Generic, TypeVar

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.reader import TimedPicture
from bgsoft.decode.timestamps import RisingPts, Stamped
from bgsoft.errors import ConfigError, DecodeError
from bgsoft.media.info import VideoInfo
from bgsoft.media.splice import BACKWARD_SECONDS, FORWARD_SECONDS
from bgsoft.report import Event

__all__ = ["Presentation"]

T = TypeVar("T")

_GAP_SECONDS = 10
"""Time without a picture that is worth telling: damage, or a clock that jumps forward."""
_SHORT_SECONDS = 1.0
_SHORT_SHARE = 0.05
"""A video that ends earlier than its header says, by both of these, is told of."""


class Presentation(Generic[T]):
    """Gives the wanted pictures of a stream timestamps that rise.

    Args:
        info: The stream, as probed.
        settings: What part of it is wanted.
        picture_of: The picture of an item, which has its pts, dts and duration.
        events: Where to tell of repairs and of a file that ends early.
    """

    def __init__(
        self,
        info: VideoInfo,
        settings: DecodeSettings,
        picture_of: Callable[[T], TimedPicture],
        events: list[Event],
    ) -> None:
        self._info = info
        self._settings = settings
        self._picture_of = picture_of
        self._events = events
        self._restarted = False

    @property
    def start_pts(self) -> int | None:
        """First pts wanted; None: from the beginning."""
        start = self._settings.start_seconds
        return None if start <= 0 else self._pts_at(start)

    @property
    def end_pts(self) -> int | None:
        """First pts that is too late; None: there is none."""
        if self._settings.duration_seconds is None:
            return None
        # Added as written in decimal, so that 0.1 + 0.2 is the frame at 0.3.
        start = Fraction(str(max(0.0, self._settings.start_seconds)))
        return self._pts_at(start + Fraction(str(self._settings.duration_seconds)))

    def _pts_at(self, seconds: float | Fraction) -> int:
        """The first pts at or after a time counted from the first frame."""
        ticks = Fraction(str(seconds)) / self._info.time_base
        return (self._info.start_pts or 0) + math.ceil(ticks)

    def wanted(
        self, items: Iterator[T], read_error: Callable[[], str | None]
    ) -> Iterator[Stamped[T]]:
        """The items inside the wanted stretch of time.

        An item is passed on before the next one is pulled, unless it has neither pts nor dts and
        none before it had.

        Args:
            items: Pictures in presentation order, from :attr:`start_pts` or earlier on.
            read_error: Asked at the end: why the file could not be read to its end.

        Raises:
            ConfigError: The wanted part begins after the last frame.
            DecodeError: There was no frame to show.
        """
        start, end = self.start_pts, self.end_pts
        last: Stamped[T] | None = None
        for shown in self._timed(items):
            if end is not None and shown.pts >= end:
                return
            last = shown
            if start is None or shown.pts >= start:
                yield shown
        self._check_end(start, last, read_error())

    def _timed(self, items: Iterator[T]) -> Iterator[Stamped[T]]:
        """Items with timestamps that rise."""
        ticks_per_second = 1 / self._info.time_base
        rate = self._info.frame_rate
        rising = RisingPts[T](
            frame_ticks=round(ticks_per_second / rate) if rate else 1,
            jump_ticks=round(ticks_per_second * BACKWARD_SECONDS),
            leap_ticks=round(ticks_per_second * FORWARD_SECONDS),
        )
        gap_ticks = round(ticks_per_second * _GAP_SECONDS)
        last: int | None = None
        for item in items:
            picture = self._picture_of(item)
            for stamped in rising.push(item, picture.pts, picture.dts, picture.duration):
                if stamped.jumped:
                    self._restarted = True
                    message = "the clock is restarted; later frames are moved to follow on"
                    self.tell("repair", message, stamped.pts)
                if last is not None and stamped.pts - last > gap_ticks:
                    seconds = float((stamped.pts - last) * self._info.time_base)
                    self.tell("notice", f"no picture for {seconds:.0f} s", last)
                last = stamped.pts
                yield stamped
        yield from rising.flush()

    def _check_end(
        self, start: int | None, last: Stamped[T] | None, read_error: str | None
    ) -> None:
        """Record where a file was read to its end but ends too early."""
        if read_error:
            self.tell("fault", f"the file cannot be read further ({read_error})")
        if last is None or (start is not None and last.pts < start):
            path = self._info.path
            if start is not None:
                raise ConfigError(
                    f"{path.name}: no frame lies at or after {self._settings.start_seconds:g} s",
                    path=path,
                )
            raise DecodeError(f"{path}: no frame could be decoded", stage="decode", path=path)
        if self._info.duration_seconds is None or self._restarted:
            return  # nothing to compare with: a restarted clock makes the header's length wrong
        duration = self._picture_of(last.item).duration
        ticks = last.pts + duration - (self._info.start_pts or 0)
        seconds = float(ticks * self._info.time_base)
        missing = self._info.duration_seconds - seconds
        if missing > max(_SHORT_SECONDS, _SHORT_SHARE * self._info.duration_seconds):
            self.tell(
                "notice",
                f"the video ends after {seconds:.2f} s, its header says "
                f"{self._info.duration_seconds:.2f} s; the file may have been cut off",
                last.pts,
            )

    def tell(self, kind: str, message: str, pts: int | None = None) -> None:
        """Record an event of the decode stage."""
        self._events.append(Event(kind=kind, message=message, stage="decode", pts=pts))
