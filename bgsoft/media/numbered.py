"""What it takes to write a container that numbers its packets instead of timing them (AVI).

A picture is shown at its number divided by the frame rate, and a sound packet when those before it
have been played, both from zero on. Whatever does not fit that is refused: it would be shown or
heard at another time than in the source.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from av.audio.stream import AudioStream
from av.packet import Packet

from bgsoft.errors import OpenError, UnsupportedFormatError
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.media.source import read_packets
from bgsoft.media.timeline import Timeline

_ROUNDING_SECONDS = Fraction(2, 1000)
"""How far a regular frame may lie off its place: clocks of 1 ms round by half of that."""
_MAX_OFFSET_SECONDS = 0.1
"""How far sound may be off; EBU R 37 puts the limit at 40 ms early and 60 ms late."""


class FrameGrid:
    """The places that pictures can have."""

    def __init__(self, container: Container, frame_rate: Fraction, time_base: Fraction) -> None:
        self._container = container
        self._rate = frame_rate
        self._tick = time_base
        self._tolerance = min(
            max(_ROUNDING_SECONDS, time_base * 3 / 2) * frame_rate, Fraction(9, 20)
        )

    def check(self, pts: int) -> None:
        """Raise UnsupportedFormatError unless a picture can be shown at a time.

        Args:
            pts: Counted from the first frame, in ``time_base``.
        """
        place = pts * self._tick * self._rate
        if abs(place - round(place)) > self._tolerance:
            raise UnsupportedFormatError(
                f"{self._container.name} cannot hold a varying frame rate: the frame at "
                f"{float(pts * self._tick):.3f} s fits no {float(self._rate):g} frames a second; "
                "write .mp4, .mov or .mkv",
                stage="encode",
            )

    def check_source(self, info: VideoInfo, timeline: Timeline) -> None:
        """Raise like :meth:`check` before anything is rendered, from the packets alone.

        Frames whose times are repaired while decoding are only seen then.
        """
        if info.interlaced or info.is_untimed:
            return  # a field may be a packet; such a source has places itself
        stamps: list[tuple[int | None, int | None]] = []
        with contextlib.suppress(OpenError):  # the decoder reports what cannot be read
            packets = read_packets(info.path, info.stream_index)
            stamps.extend((p.dts, p.pts) for p in packets if not p.is_discard)
        clock = [dts for dts, _ in stamps if dts is not None]
        if any(later < earlier for earlier, later in itertools.pairwise(clock)):
            return  # a clock that restarts is mended while decoding
        shown = sorted(
            pts for _, pts in stamps if pts is not None and timeline.keeps(pts * info.time_base)
        )
        for pts in shown:
            self.check(pts - shown[0])


class SteadySound:
    """Watches that sound begins at zero and has no gaps; what lies before zero is left out.

    Args:
        source: The packets' codec parameters: the input stream of copied sound, or the new one.
        container: The output, for messages.
    """

    def __init__(self, source: AudioStream, container: Container) -> None:
        self._source = source
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
                    f"{self._container.name} cannot hold a gap in the sound: {abs(offset):.2f} s "
                    f"at {float(seconds):.2f} s; write .mp4, .mov or .mkv",
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
            return Fraction(packet.size // (stored_bytes * context.channels), rate)
        return (packet.duration or 0) * (packet.time_base or Fraction(0))
