"""Recordings joined end to end, whose clock restarts in the middle.

Broadcast containers have a clock that anything may reset: a programme change, a camera's next clip,
two files joined with ``cat``. The picture then follows on without a gap
(:func:`bgsoft.decode.stream.rising_pts`); here the other tracks are moved by the same amount,
so that sound stays in step. Its sample rate may change there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, Self

import av
from av.packet import Packet
from av.stream import Stream

from bgsoft.media.copied import adts_config, describes_itself
from bgsoft.media.info import BACKWARD_SECONDS, FORWARD_SECONDS, VideoInfo

_MISFIT_SECONDS = Fraction(1, 2)
"""Sound that steps back by this much waits for the picture to do so as well."""
_MAX_HELD = 500
"""Packets that wait at most."""
_ADTS_RATES = (
    *(96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000),
    *(11_025, 8_000, 7_350),
)
"""ISO/IEC 14496-3, table 1.18."""
_ADTS_SAMPLES = 1024


class SplicedClock:
    """Moves the packets of all tracks as the picture is moved.

    Args:
        video_index: Stream whose clock decides.
        frame_duration: Seconds, for video packets without one.
        described: Streams of AAC that describes itself.
    """

    def __init__(
        self, video_index: int, frame_duration: Fraction, described: Iterable[int] = ()
    ) -> None:
        self._video_index = video_index
        self._adts = {index: AdtsClock() for index in described}
        self._frame_duration = frame_duration
        self._shifts = (Fraction(0), Fraction(0))
        """The shift now, and that from before the picture's last restart."""
        self._video_last: Fraction | None = None
        self._video_duration = frame_duration
        self._last: dict[int, Fraction] = {}
        self._held: list[Packet[Any]] = []

    @classmethod
    def of(cls, info: VideoInfo, streams: Iterable[Stream]) -> Self | None:
        """Return the clock of an input; None: nothing restarts its clock."""
        if not info.is_broadcast:
            return None
        frame = 1 / info.frame_rate if info.frame_rate else Fraction(0)
        described = [stream.index for stream in streams if describes_itself(stream)]
        return cls(info.stream_index, frame, described)

    def feed(self, packet: Packet[Any]) -> list[Packet[Any]]:
        """Return the moved packets whose times are final, if any."""
        if packet.stream_index in self._adts:
            self._adts[packet.stream_index].correct(packet)
        if packet.stream_index == self._video_index:
            held = self.flush() if self._watch(packet) else []
            _shift(packet, self._shifts[0])
            return [*held, packet]
        time = _seconds(packet)
        if time is None:
            return [packet]
        if self._held or self._steps_back(packet.stream_index, time):
            self._held.append(packet)
            return self.flush() if len(self._held) > _MAX_HELD else []
        self._move(packet, time)
        return [packet]

    def feed_all(self, packets: Iterable[Packet[Any]]) -> Iterator[Packet[Any]]:
        """All packets, moved."""
        for packet in packets:
            yield from self.feed(packet)
        yield from self.flush()

    def flush(self) -> list[Packet[Any]]:
        """Return the waiting packets, moved by the known offsets."""
        held, self._held = self._held, []
        for packet in held:
            time = _seconds(packet)
            if time is not None:
                self._move(packet, time)
        return held

    def _watch(self, packet: Packet[Any]) -> bool:
        """Follow the picture; return whether its clock was restarted."""
        if packet.pts is None or not packet.time_base:
            return False
        shift, last = self._shifts[0], self._video_last
        time = packet.pts * packet.time_base + shift
        jumped = last is not None and not (-BACKWARD_SECONDS < time - last < FORWARD_SECONDS)
        if last is not None and jumped:
            follows = last + self._video_duration
            self._shifts = (shift + follows - time, shift)
            time = follows
        if last is None or time > last:
            self._video_last = time
            duration = (packet.duration or 0) * packet.time_base
            self._video_duration = duration or self._frame_duration
        return jumped

    def _steps_back(self, index: int, time: Fraction) -> bool:
        """Return whether a track's clock seems restarted, and the picture's not yet."""
        last = self._last.get(index)
        if last is None:
            return False
        steps = (time + shift - last for shift in self._shifts)
        return not any(-_MISFIT_SECONDS < step < FORWARD_SECONDS for step in steps)

    def _move(self, packet: Packet[Any], time: Fraction) -> None:
        """Add the shift that joins a packet best to the one before it."""
        last = self._last.get(packet.stream_index, time + self._shifts[0])
        shift = min(self._shifts, key=lambda shift: abs(time + shift - last))
        self._last[packet.stream_index] = time + shift
        _shift(packet, shift)


def _shift(packet: Packet[Any], shift: Fraction) -> None:
    ticks = round(shift / (packet.time_base or Fraction(1, av.time_base)))
    if packet.pts is not None:
        packet.pts += ticks
    if packet.dts is not None:
        packet.dts += ticks


def _seconds(packet: Packet[Any]) -> Fraction | None:
    stamp = packet.dts if packet.dts is not None else packet.pts
    return None if stamp is None or not packet.time_base else stamp * packet.time_base


class AdtsClock:
    """Corrects times of AAC that describes itself, where its sample rate changes.

    In MPEG-TS, several packets share one time. FFmpeg (8, 9) counts on from it by the first rate of
    the track.
    """

    def __init__(self) -> None:
        self._counted, self._end = 0, 0
        """End of the last packet, as FFmpeg counts, and its true end."""

    def correct(self, packet: Packet[Any]) -> None:
        """Set time and length of the next packet of the track."""
        config, tick, counted = adts_config(bytes(packet)), packet.time_base, packet.duration
        if config is None or packet.pts is None or not tick or not counted:
            return
        start, length = packet.pts, round(_adts_seconds(config) / tick) or counted
        follows = abs(start - self._counted) <= 1
        self._counted = start + counted
        if abs(length - counted) > 1:  # else both may be rounded
            start = self._end if follows else start
            packet.pts, packet.dts, packet.duration = start, start, length
        self._end = start + length


def _adts_seconds(config: bytes) -> Fraction:
    """Length of an AAC frame by its description; 0 where that has no rate."""
    index = int.from_bytes(config, "big") >> 7 & 15
    return Fraction(_ADTS_SAMPLES, _ADTS_RATES[index]) if index < len(_ADTS_RATES) else Fraction(0)
