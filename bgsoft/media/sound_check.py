"""Return whether a sound track can be copied into a container, and why not."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from av.audio.stream import AudioStream
from av.packet import Packet
from av.stream import Stream

from bgsoft.errors import UnsupportedFormatError
from bgsoft.media.containers import Container
from bgsoft.media.copied import AdtsConfig, adts_config, copy_problem, describes_itself
from bgsoft.media.info import VideoInfo
from bgsoft.media.listing import can_seek
from bgsoft.media.pyav import exact
from bgsoft.media.source import read_packets
from bgsoft.media.splice import SplicedClock
from bgsoft.media.timeline import SteadySound, Timeline
from bgsoft.media.track import CopiedTrack
from bgsoft.media.transcode import is_lossless

_MAX_LATE_SECONDS = 0.02
"""Sound that begins this much after the picture is padded where a late start cannot be kept."""
_MAX_LEAD_SECONDS = 1.0
"""Sound before the picture that may be left out where it cannot be kept; broadcasts often have
some."""
MAX_BEHIND_SECONDS = 2
"""Time after a part for which a pipe is still read, to find its sound and subtitles."""
_LONG_SECONDS = Fraction(1, 8)
"""Longest packet that a part may begin or end with. FLAC's have 105 ms in FFmpeg, Opus' 120 ms."""
_TRIED_SECONDS = (Fraction(1, 10), Fraction(3, 2))
"""Lengths of sound that are written to test whether a container takes it. TrueHD in MPEG-TS needs a
second."""


class SoundCheck:
    """Checks sound tracks before their output streams are made.

    Args:
        info: The rendered video.
        container: The output.
        timeline: Shift and kept part.
        tags: Tags of the input file.
        in_order: The header cannot be completed later.
    """

    def __init__(
        self,
        info: VideoInfo,
        container: Container,
        timeline: Timeline,
        tags: Mapping[str, str],
        *,
        in_order: bool,
    ) -> None:
        self._info, self._container, self._timeline = info, container, timeline
        self._tags, self._in_order = tags, in_order

    def is_described_late(self, stream: Stream) -> bool:
        """Return whether only packets describe a track; a pipe needs the description first."""
        return self._in_order and self._container.is_matroska and describes_itself(stream)

    def is_described_once(self, stream: Stream) -> bool:
        """Return whether each packet describes a track, and its copy has one description."""
        once = self._container.is_matroska or self._container.edit_lists
        return once and describes_itself(stream)

    def description(self, stream: Stream) -> bytes | None:
        """Return the first description of a file's kept sound, or of a pipe's first packet."""
        if self._info.pipe is None:
            return next(self._descriptions(stream), None)
        first = next(read_packets(self._info.pipe, stream.index), None)
        return None if first is None else adts_config(bytes(first))

    def reason_to_encode(self, number: int, codec: str, stream: AudioStream) -> str | None:
        """Return why a track cannot be copied; None where it can."""
        name = self._container.name
        if self._container.recode_pcm and codec.startswith("pcm_") and not self._is_mp4():
            return f"few players read {codec} in {name}"
        for seconds in _TRIED_SECONDS:
            first = self._beginning(stream, seconds)
            problem = copy_problem(self._container, stream, self._info.container, first)
            if problem is None:
                break
        else:
            return problem
        if self.is_described_late(stream) and self.description(stream) is None:
            return "what describes it comes too late for a pipe"
        if self._changes(stream):
            return f"its sample rate or channels change, and {name} describes them once"
        if self._container.numbers_frames:
            if self._begins_late(number, stream):
                return f"{name} cannot hold a late start, so silence leads in"
            if self._has_gaps(stream):
                return f"{name} cannot hold gaps, so silence fills them"
        return None

    def cuts_packets(self, codec: str, stream: AudioStream) -> bool:
        """Return whether a part would lose much sound, or have too much, as its packets are long.

        Of lossy codecs, whose packets are short, each part begins and ends with a whole packet.
        """
        part = self._timeline
        if not is_lossless(codec) or (part.begin is None and part.end is None):
            return False
        times, tick = list[int](), exact(stream.time_base) or Fraction(0)
        for packet in self._beginning(stream, _TRIED_SECONDS[-1]):
            # NUT, and pipes of Matroska, have no durations.
            times[-1:] = [packet.pts or 0, (packet.pts or 0) + (packet.duration or 0)]
        lengths = sorted(later - time for time, later in itertools.pairwise(times))
        # The middle one: a packet before a gap may last as long as the gap.
        return bool(lengths) and lengths[len(lengths) // 2] * tick > _LONG_SECONDS

    def _changes(self, stream: AudioStream) -> bool:
        """Return whether one description does not fit all packets; a pipe shows that later."""
        if self._info.pipe is not None or not self.is_described_once(stream):
            return False
        return len(list(itertools.islice(self._descriptions(stream), 2))) > 1

    def _descriptions(self, stream: Stream) -> Iterator[bytes]:
        """The descriptions of a file's kept sound, one after the other."""
        splices = SplicedClock.of(self._info, [stream])
        copy, config, last = CopiedTrack(stream, stream, self._timeline), AdtsConfig(), None
        video = () if splices is None else (self._info.stream_index,)
        begin = self._timeline.begin
        begin = begin if begin is not None and can_seek(self._info) else None
        packets = read_packets(self._info.path, stream.index, *video, begin=begin)
        for packet in packets if splices is None else splices.feed_all(packets):
            for kept in copy.feed(packet) if packet.stream_index == stream.index else ():
                found = config.feed(bytes(kept))
                if found is not None and found != last:
                    last = found
                    yield found
            if copy.done:
                return

    def _beginning(self, stream: AudioStream, seconds: Fraction) -> Iterator[Packet[Any]]:
        """The first packets of a track; of a pipe, those that come with the first pictures."""
        also = () if self._info.pipe is None else (self._info.stream_index,)
        ends: dict[int, Fraction] = {}
        for packet in read_packets(self._info.source, stream.index, *also):
            tick, index = exact(packet.time_base), packet.stream_index
            if index == stream.index:
                yield packet
            if packet.dts is not None and tick:
                time = packet.dts * tick
                limit = seconds if index == stream.index else MAX_BEHIND_SECONDS
                if time >= ends.setdefault(index, time + limit):
                    return

    def _begins_late(self, number: int, stream: AudioStream) -> bool:
        """Return whether sound begins too long after the picture, so that it would play early.

        Raises:
            UnsupportedFormatError: It begins so early that much of it would be lost.
        """
        if stream.start_time is None or not stream.time_base or self._timeline.is_part:
            return False
        late = float(stream.start_time * stream.time_base - self._timeline.origin)
        if late < -_MAX_LEAD_SECONDS:
            raise UnsupportedFormatError(
                f"cannot write {self._container.name}: audio track {number} starts {-late:.2f} s"
                " before the picture; write .mp4, .mov or .mkv",
                stage="encode",
            )
        return late > _MAX_LATE_SECONDS

    def _has_gaps(self, stream: AudioStream) -> bool:
        """Return whether a track that begins in time has gaps that its copy could not keep."""
        if self._info.is_broadcast or self._info.pipe is not None:
            return False  # joined recordings have some that are closed; a pipe shows them later
        copy = CopiedTrack(stream, stream, self._timeline)
        steady = SteadySound(stream, self._container)
        try:
            for packet in read_packets(self._info.path, stream.index):
                collections.deque(steady.check(copy.feed(packet)), maxlen=0)
        except UnsupportedFormatError:
            return True
        return False

    def _is_mp4(self) -> bool:
        """Return whether the input is MP4 itself, rather than QuickTime's MOV."""
        brand = self._tags.get("major_brand", "").strip()
        return self._info.is_mov and brand not in ("", "qt")


class DescribedSound:
    """Checks AAC whose packets describe it, and leaves out those that differ from the first one.

    Args:
        first: The description that the output has already; None: that of the first packet.
        on_other: Called where the first is left out.
    """

    def __init__(self, first: bytes | None, on_other: Callable[[], None]) -> None:
        self._on_other = on_other
        self._config = AdtsConfig()
        self._first = first
        self._differs = False
        self._held: list[Packet[Any]] = []
        """The last packets, if they differ and may be damaged."""

    def check(self, packets: Iterable[Packet[Any]]) -> Iterator[Packet[Any]]:
        """The packets that are kept."""
        for packet in packets:
            data = bytes(packet)
            current, config = self._config.feed(data), adts_config(data)
            self._first = self._first or current
            self._held.append(packet)
            if current != self._first:
                self._held.clear()
                if not self._differs:
                    self._differs = True
                    self._on_other()
            elif config in (None, self._first):
                yield from self._held
                self._held.clear()
