"""Recordings joined end to end, whose clock restarts in the middle.

Broadcast containers have a clock that anything may reset: a programme change, a camera's next clip,
two files joined with ``cat``. The picture then follows on without a gap
(:func:`bgsoft.decode.stream.rising_pts`); here the other tracks are moved by the same amount,
so that sound stays in step.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
from av.packet import Packet

BACKWARD_SECONDS = 1
"""A clock that steps back by this much has been restarted; less is jitter."""
FORWARD_SECONDS = 12 * 3600
"""A clock that leaps ahead by this much has been restarted, too. The 33 bits of a broadcast clock
are 26.5 hours, and FFmpeg takes a restart for an overflow."""
_MISFIT_SECONDS = Fraction(1, 2)
"""Sound that steps back by this much waits for the picture to do so as well."""
_MAX_HELD = 500
"""Packets that wait at most."""


class SplicedClock:
    """Moves the packets of all tracks as the picture is moved.

    Args:
        video_index: Stream whose clock decides.
        frame_duration: Seconds, for video packets without one.
    """

    def __init__(self, video_index: int, frame_duration: Fraction) -> None:
        self._video_index = video_index
        self._frame_duration = frame_duration
        self._shifts = (Fraction(0), Fraction(0))
        """The shift now, and that from before the picture's last restart."""
        self._video_last: Fraction | None = None
        self._video_duration = frame_duration
        self._last: dict[int, Fraction] = {}
        self._held: list[Packet[Any]] = []

    def feed(self, packet: Packet[Any]) -> list[Packet[Any]]:
        """Return the moved packets whose times are final, if any."""
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
