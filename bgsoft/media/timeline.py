"""Conversion of input times to output times."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NoReturn, Self

from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet

from bgsoft.errors import OpenError, UnsupportedFormatError
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.media.layouts import read_layout
from bgsoft.media.listing import can_seek, shows_frame
from bgsoft.media.pyav import exact
from bgsoft.media.source import read_packets
from bgsoft.records import dataclass

_ROUNDING_SECONDS = Fraction(2, 1000)
"""How far a regular frame may lie off its place: clocks of 1 ms round by half of that."""
_MAX_OFFSET_SECONDS = 0.1
"""How far sound may be off; EBU R 37 puts the limit at 40 ms early and 60 ms late."""


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
        earliest: Fraction | None,
        start_seconds: float,
        duration_seconds: float | None,
    ) -> Self:
        """Choose the shift.

        A whole file keeps its timestamps, including negative and late starts. There are two
        exceptions. A broadcast clock is set to zero if the output's clock has a meaning, or if a
        timestamp is negative. FFmpeg gives such ones to a clock that wraps. A video that starts
        before zero is moved to zero, since no container shows pictures before zero. A part of a
        file starts at zero, and so does the video in a container that knows no other start.

        Args:
            info: The video to be rendered.
            container: The output.
            earliest: Start of the input's first track, where known; None: the video's.
            start_seconds: Start of the part, counted from the video's first frame.
            duration_seconds: Its length; None: to the end.
        """
        tick = info.time_base
        first = info.start_seconds
        # The decimal number that was typed: 0.52 means frame 13 of 25 a second, included.
        start = first + Fraction(str(start_seconds))
        end = None if duration_seconds is None else start + Fraction(str(duration_seconds))
        if start_seconds > 0:
            return cls(origin=math.floor(start / tick) * tick, begin=start, end=end)
        if container.numbers_frames:
            return cls(origin=first, end=end)
        origin = min(Fraction(0), first)
        before_zero = earliest is not None and earliest < 0
        if info.is_broadcast and (before_zero or not container.free_origin):
            lowest = first if earliest is None else min(first, earliest)
            origin = math.floor(lowest / tick) * tick
        return cls(origin=origin, end=end)

    def include(self, seconds: Fraction) -> bool:
        """Move the origin back to an input time if it lies behind it; whether it has moved.

        Headers give the first timestamp, and not all of them are right.
        """
        moved = seconds < self.origin
        self.origin = min(self.origin, seconds)
        return moved

    def ticks(self, time_base: Fraction) -> int:
        """The shift in units of a stream's time base, to be subtracted; rounded to nearest."""
        return round(self.origin / time_base) if self.origin else 0

    def keeps(self, seconds: Fraction) -> bool:
        """Return whether an input time lies in the kept part."""
        after = self.begin is None or seconds >= self.begin
        return after and (self.end is None or seconds < self.end)

    def clip(self, start: Fraction, end: Fraction) -> tuple[Fraction, Fraction]:
        """The kept part of an interval of input time; empty where it ends before it starts."""
        return (
            start if self.begin is None else max(start, self.begin),
            end if self.end is None else min(end, self.end),
        )

    @property
    def is_part(self) -> bool:
        """The output starts later than the input."""
        return self.begin is not None


def earliest_start(source: InputContainer | None) -> Fraction | None:
    """Start of the first track to start, seconds, exact; None where unknown."""
    if source is None:
        return None
    starts = [
        stream.start_time * tick
        for stream in source.streams
        if stream.start_time is not None and (tick := exact(stream.time_base))
    ]
    return min(starts, default=None)


class FrameGrid:
    """The places that pictures can have in a container: whole numbers of ticks from zero on.

    In a container that numbers its packets (AVI, Y4M), a tick is a frame. A picture is shown at its
    number divided by the frame rate, and a sound packet when those before it have been played.
    Whatever does not fit is refused: it would be shown at another time than in the source.

    Args:
        info: The video to be rendered.
        container: The output.
    """

    def __init__(self, info: VideoInfo, container: Container) -> None:
        self._container, self._tick = container, info.time_base
        self.rate = Fraction(container.ticks_per_second or self._tick.denominator)
        """Ticks in a second."""
        self._tolerance = Fraction(1, 2)
        if container.numbers_frames:
            # A source of the same kind has numbers already, and may have left some out.
            self.rate = 1 / self._tick if info.is_untimed else info.nominal_rate
            rounding = max(_ROUNDING_SECONDS, self._tick * 3 / 2)
            self._tolerance = min(rounding * self.rate, Fraction(9, 20))
        self._ratio = (self._tick * self.rate).as_integer_ratio()

    def check(self, pts: int, last: int | None) -> None:
        """Check that a picture can be shown at a time.

        Args:
            pts: The time on the output's clock, in ``info.time_base``.
            last: That of the picture before it in the file; None: it is the first.

        Raises:
            UnsupportedFormatError: It cannot.
        """
        place, off = self._place(pts)
        if off > self._tolerance:
            self._refuse(
                f"a varying frame rate, and the frame at {float(pts * self._tick):.3f} s does not"
                f" fit {float(self.rate):g} frames/s"
            )
        if last is None or pts <= last:  # packets of a finished file come in decoding order
            return
        ticks, most = place - self._place(last)[0], self._container.max_pause_ticks
        if ticks < 1:
            self._refuse(
                f"frames less than {float(1000 / self.rate):g} ms apart, as at"
                f" {float(pts * self._tick):.3f} s"
            )
        if most is not None and ticks > most:
            seconds = float((pts - last) * self._tick)
            pause = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.3f} s"
            self._refuse(
                f"a pause of {pause} between frames, as at {float(last * self._tick):.3f} s"
            )

    def _place(self, pts: int) -> tuple[int, Fraction]:
        """Return the nearest place, and how far off it is, in ticks."""
        numerator, denominator = self._ratio
        place = (2 * pts * numerator + denominator) // (2 * denominator)
        return place, Fraction(abs(pts * numerator - place * denominator), denominator)

    def _refuse(self, what: str) -> NoReturn:
        name = self._container.name
        others = ".mkv" if self._container.edit_lists else ".mp4, .mov or .mkv"
        raise UnsupportedFormatError(
            f"cannot write {name}: it cannot hold {what}; write {others}", stage="encode"
        )

    def check_source(self, info: VideoInfo, timeline: Timeline) -> None:
        """Raise like :meth:`check`, from the packets alone, before anything is rendered.

        Only decoding shows the times of a pipe, and of frames whose times are repaired.
        """
        if info.interlaced or info.is_untimed or info.pipe is not None:
            return  # a field may be a packet; such a source has places itself
        tick, last, end = info.time_base, None, timeline.end
        stamps: list[tuple[int | None, int | None]] = []
        with contextlib.suppress(OpenError):  # the decoder reports what cannot be read
            begin = timeline.begin if timeline.is_part and can_seek(info) else None
            for packet in read_packets(info.path, info.stream_index, begin=begin):
                if end is not None and packet.dts is not None and packet.dts * tick >= end:
                    break
                if shows_frame(packet, info):
                    stamps.append((packet.dts, packet.pts))
        clock = [dts for dts, _ in stamps if dts is not None]
        if any(later < earlier for earlier, later in itertools.pairwise(clock)):
            return  # a clock that restarts is mended while decoding
        shown = sorted(pts for _, pts in stamps if pts is not None and timeline.keeps(pts * tick))
        for pts in shown:
            zero = shown[0] if self._container.numbers_frames else timeline.ticks(tick)
            self.check(pts - zero, last)
            last = pts - zero


class SteadySound:
    """Checks that sound begins at zero and has no gaps; packets before zero are left out.

    Args:
        source: The packets' codec parameters: the input stream of copied sound, or the new one.
        container: The output, for messages.
    """

    def __init__(self, source: AudioStream, container: Container) -> None:
        self._source = source
        self._channels = len(read_layout(source.codec_context).channels)
        self._container = container
        self._written = Fraction(0)

    def check(self, packets: Iterable[Packet[Any]]) -> Iterator[Packet[Any]]:
        """The packets that are kept.

        Raises:
            UnsupportedFormatError: There is a gap.
        """
        for packet in packets:
            if packet.pts is None or not packet.time_base:
                continue
            seconds = packet.pts * packet.time_base
            length = self._length(packet)
            if not self._written and seconds + length / 2 < 0:
                continue
            offset = float(seconds - self._written)
            if abs(offset) > _MAX_OFFSET_SECONDS:
                raise UnsupportedFormatError(
                    f"cannot write {self._container.name}: it cannot hold a gap in the sound, such"
                    f" as {abs(offset):.2f} s at {float(seconds):.2f} s; write .mp4, .mov or .mkv",
                    stage="encode",
                )
            self._written += length
            yield packet

    def _length(self, packet: Packet[Any]) -> Fraction:
        """Seconds of sound in a packet, finer than a container's clock resolves."""
        context = self._source.codec_context
        rate = context.sample_rate
        if context.frame_size > 1:
            return Fraction(context.frame_size, rate)
        if context.name.startswith("pcm_") and context.format.bytes:
            bits = re.search(r"\d+", context.name)  # of a stored sample: pcm_s24le; pcm_alaw has 8
            stored_bytes = int(bits[0]) // 8 if bits else 1
            return Fraction(packet.size // (stored_bytes * self._channels), rate)
        return (packet.duration or 0) * (packet.time_base or Fraction(0))


class OutputClock:
    """Output timestamps of the video; its first frame fixes the timeline.

    Args:
        info: The video to be rendered.
        container: The output.
        timeline: Shift and kept part.
    """

    def __init__(self, info: VideoInfo, container: Container, timeline: Timeline) -> None:
        self._info, self._timeline = info, timeline
        self.shift = timeline.ticks(info.time_base)
        """Ticks to subtract from timestamps; fixed by the first frame."""
        self._has_first = False
        self._container = container
        self._last: int | None = None
        self.grid = FrameGrid(info, container)
        """The places of the pictures."""
        if container.numbers_frames or container.ticks_per_second is not None:
            self.grid.check_source(info, timeline)

    def fix(self, pts: int) -> bool:
        """Fix the timeline by the first frame; return whether that moves it for all tracks."""
        if self._has_first:
            return False
        self._has_first = True
        tick, moves = self._info.time_base, False
        if not self._container.numbers_frames:
            moves = self._timeline.include(pts * tick)
        else:
            self._timeline.origin = pts * tick
        self.shift = self._timeline.ticks(tick)
        return moves

    def timestamp(self, pts: int) -> int:
        """Return the output timestamp of a source timestamp, both in ``info.time_base``.

        Raises:
            UnsupportedFormatError: The container cannot show a frame at that time.
        """
        shifted = pts - self.shift
        self.grid.check(shifted, self._last)
        self._last = shifted
        return shifted
