"""Output tracks: the common base, and tracks whose packets are copied."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import av
from av.audio.stream import AudioStream
from av.packet import Packet
from av.stream import Stream
from av.subtitles.stream import SubtitleStream

from bgsoft.media.pyav import exact
from bgsoft.media.timeline import Timeline

_BITMAPS = frozenset({"dvb_subtitle", "dvd_subtitle", "hdmv_pgs_subtitle"})
"""Subtitles of which each is shown until the next one."""
_MAX_PACKET_SECONDS = Fraction(1, 4)
"""Longest sound packet where its codec has no fixed length: Opus has 120 ms, AMR in 3GP 200 ms."""


class OutputTrack(ABC):
    """One output track, fed with the packets of one input track.

    Args:
        source: Input stream.
        output: Output stream.
        timeline: Shift and kept part.
    """

    def __init__(self, source: Stream, output: Stream, timeline: Timeline) -> None:
        self.done = False
        """No packet after this can be of use."""
        self.damaged_packets = 0
        """Packets left out because they cannot be read."""
        self.overlapping_packets = 0
        """Packets left out because they step back in time: no muxer takes such sound."""
        self._tick = exact(source.time_base) or Fraction(1, av.time_base)
        self._output = output
        self._timeline = timeline

    @abstractmethod
    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        """Packets for the output, on its clock; perhaps none."""

    def release(self) -> Iterable[Packet[Any]]:
        """Packets on screen where the kept part begins; call when the input is read up to there."""
        return ()

    def flush(self) -> Iterable[Packet[Any]]:
        """Remaining packets at the end of the input."""
        return ()


class CopiedTrack(OutputTrack):
    """Packets pass unchanged, except for the shift of their timestamps.

    Args:
        source, output, timeline: As for :class:`OutputTrack`.
        keep_lead_in: Keep packets that end before zero: a codec's priming, which an edit list
            hides. Where there are none, they would move all other tracks.
        lead_in: Seconds to keep before the kept part: players skip as much of the track.
        fine_clock: Count sound in samples where the input's clock is coarser; else only where a
            codec frame is shorter than its tick, as TrueHD's are in Matroska.
    """

    def __init__(
        self,
        source: Stream,
        output: Stream,
        timeline: Timeline,
        *,
        keep_lead_in: bool = True,
        lead_in: Fraction = Fraction(0),
        fine_clock: bool = False,
    ) -> None:
        super().__init__(source, output, timeline)
        self._keep_lead_in = keep_lead_in
        self._begin = None if timeline.begin is None else (timeline.begin - lead_in) / self._tick
        self._end = None if timeline.end is None else timeline.end / self._tick
        self._clock = _SampleClock.of(source, only_needed=not fine_clock)
        self._clips = isinstance(source, SubtitleStream)
        self._sound = source.codec_context if isinstance(source, AudioStream) else None
        hidden_until = 0 if (source.start_time or 0) <= 0 else -math.inf
        self._hidden_until = math.inf if lead_in else hidden_until
        """Packets before this time that an edit list hides are kept: players hide them, too."""
        codec = source.codec_context.codec.canonical_name if source.codec_context else ""
        self._bitmaps = codec if codec in _BITMAPS else None
        self._on_screen: list[Packet[Any]] = []
        """Bitmap subtitles without an end, from before the kept part."""
        self._last_dts: int | None = None
        self._shortest = Fraction(0)
        """Duration of the shortest packet before the kept part, in ticks; 0: unknown."""

    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        pts = packet.pts if packet.pts is not None else packet.dts
        if pts is None:
            return
        if not packet.is_discard:
            self._hidden_until = -math.inf
        elif pts >= self._hidden_until:
            return
        duration = packet.duration or 0
        if self._begin is not None and pts >= self._begin:
            yield from self.release()
        if self._end is not None and pts >= self._end:
            self.done = True
            return
        if self._begin is not None and pts < self._begin:
            if self._bitmaps is not None and not duration:
                if _stands_alone(self._bitmaps, bytes(packet)):
                    self._on_screen.clear()
                self._on_screen.append(packet)
                return
            if pts + self._length(duration) <= self._begin:
                return
            if self._clips:
                late = int(self._begin) - pts
                packet.pts = packet.dts = pts = pts + late
                packet.duration = duration = duration - late
        if self._clips and self._end is not None:
            packet.duration = min(duration, int(self._end) - pts)
        shift = self._timeline.ticks(self._tick)
        if packet.pts is not None:
            packet.pts -= shift
        if packet.dts is not None:
            packet.dts -= shift
        if self._clock is not None:
            self._clock.refine(packet, self._tick)
        if not self._keep_lead_in and packet.pts is not None and packet.pts < 0:
            return
        dts, last = packet.dts, self._last_dts
        if dts is not None and last is not None and (dts < last if self._clips else dts <= last):
            self.overlapping_packets += 1
            return
        self._last_dts = last if dts is None else dts
        packet.stream = self._output
        yield packet

    def _length(self, duration: int) -> Fraction:
        """Return how many ticks a packet lasts; sound's duration may include a gap behind it."""
        sound, length = self._sound, Fraction(duration)
        if sound is None:
            return length
        # A packet may have several frames; then those before it have as many.
        usual, self._shortest = self._shortest, min(self._shortest or length, length)
        frame = Fraction(0)
        if sound.frame_size > 1 and sound.sample_rate:
            frame = Fraction(sound.frame_size, sound.sample_rate) / self._tick
        elif length * self._tick <= _MAX_PACKET_SECONDS:
            return length
        return min(length, max(frame, usual))

    def release(self) -> Iterable[Packet[Any]]:
        packets, self._on_screen = self._on_screen, []
        for number, packet in enumerate(packets):  # FFmpeg joins DVB packets of one time
            packet.pts = packet.dts = math.ceil(self._begin or 0) + number
            yield from self.feed(packet)


def _stands_alone(codec: str, data: bytes) -> bool:
    """Return whether a bitmap subtitle shows its picture without the packets before it.

    PGS says so in its composition state, DVB in its page state (ETSI EN 300 743, 7.2.2).
    """
    if codec == "hdmv_pgs_subtitle":
        return data[:1] == b"\x16" and any(data[10:11])
    page = data.find(b"\x0f\x10")
    return codec == "dvd_subtitle" or (page >= 0 and any(b & 0x0C for b in data[page + 7 :][:1]))


class CoverTrack(OutputTrack):
    """Cover art: one packet, outside time."""

    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        packet.pts = packet.dts = 0
        packet.stream = self._output
        self.done = True
        yield packet


class _SampleClock:
    """Sound timestamps counted in samples, where the input's clock is too coarse for them.

    Matroska rounds to 1 ms; counted on in whole codec frames, the samples join without jitter.
    A timestamp more than one tick off the count restarts it.
    """

    def __init__(self, sample_rate: int, frame_samples: int) -> None:
        self._rate = sample_rate
        self._frame = frame_samples
        self._next: int | None = None

    @classmethod
    def of(cls, stream: Stream, *, only_needed: bool) -> _SampleClock | None:
        """A clock for a stream; None where its own is fine enough or its frames vary."""
        if not isinstance(stream, AudioStream) or not stream.time_base:
            return None
        rate, frame = stream.codec_context.sample_rate, stream.codec_context.frame_size
        tick_samples = stream.time_base * rate
        coarse = rate > 0 and frame > 1 and tick_samples > (frame if only_needed else 1)
        return cls(rate, frame) if coarse else None

    def refine(self, packet: Packet[Any], tick: Fraction) -> None:
        """Set a packet's time base to one sample."""
        if packet.pts is None:
            return
        coarse = packet.pts * tick * self._rate
        samples = round(coarse)
        if self._next is not None and abs(self._next - coarse) <= tick * self._rate:
            samples = self._next
        self._next = samples + self._frame
        packet.time_base = Fraction(1, self._rate)
        packet.pts = packet.dts = samples
        packet.duration = self._frame
