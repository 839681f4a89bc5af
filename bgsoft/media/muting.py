"""Parts of the sound that are made silent, exact to the sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import av
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from bgsoft.media.info import VideoInfo
from bgsoft.media.source import read_packets
from bgsoft.media.timeline import Timeline
from bgsoft.settings.setting import Span

_UNSIGNED = ("u8", "u8p")
"""Sample formats of 8 bits, whose silence is the middle of the range."""


class Muting:
    """The muted spans of a video, for all of its sound tracks.

    Args:
        spans: When sound is silent.
        info: The rendered video.
        timeline: Shift and kept part.
    """

    def __init__(self, spans: Sequence[Span], info: VideoInfo, timeline: Timeline) -> None:
        self.without_effect = dict.fromkeys(spans)
        """Spans in which no sample has been silenced, in the order given."""
        self._info, self._timeline = info, timeline
        first = info.start_seconds
        self._limits = {
            # From the beginning on means all sound, also what is heard before the first picture.
            span: (
                first + span.begin if span.begin else None,
                None if span.end is None else first + span.end,
            )
            for span in spans
        }

    def concerns(self, source: InputContainer, stream: AudioStream) -> bool:
        """Return whether a track may have sound in one of the spans.

        It is not read where it surely does.

        Raises:
            OpenError: The input cannot be opened.
        """
        part, info = self._timeline, self._info
        begins = [
            begin
            for begin, end in self._limits.values()
            if (begin is None or part.end is None or begin < part.end)
            and (end is None or part.begin is None or end > part.begin)
        ]
        if not begins or None in begins:
            return bool(begins)
        # The clock of joined broadcasts falls back, and a pipe is read once.
        if info.pipe is not None or info.is_broadcast or source.duration is None:
            return True
        first = min(begin for begin in begins if begin is not None)
        if (source.start_time or 0) + source.duration > first * av.time_base:
            return True
        for packet in read_packets(info.path, stream.index):  # headers may be wrong
            end = (packet.pts or 0) + (packet.duration or 0)
            if packet.pts is None or end * (packet.time_base or 0) > first:
                return True
        return False

    def apply(self, frame: AudioFrame, number: int, shift: Fraction) -> None:
        """Silence those samples of a frame that are at or after a span's begin, before its end.

        Args:
            frame: Sound of the output; changed in place.
            number: Position of its first sample on the output's clock.
            shift: Seconds from the output's clock to the input's.
        """

        def position(time: Fraction) -> int:
            sample = math.ceil((time - shift) * frame.sample_rate) - number
            return min(max(sample, 0), frame.samples)

        for span, (begin, end) in self._limits.items():
            start = 0 if begin is None else position(begin)
            stop = frame.samples if end is None else position(end)
            if start < stop:
                self.without_effect.pop(span, None)
                _silence(frame, start, stop)


def _silence(frame: AudioFrame, start: int, stop: int) -> None:
    """Silence the samples of a frame from one position to another, of all channels."""
    frame.make_writable()
    channels = frame.layout.nb_channels
    # PyAV (18, 19) shows planes that are none where there are 8.
    planes = frame.planes[: channels if frame.format.is_planar else 1]
    size = frame.format.bytes * (1 if frame.format.is_planar else channels)
    zero = b"\x80" if frame.format.name in _UNSIGNED else b"\0"
    for plane in planes:
        memoryview(plane)[start * size : stop * size] = zero * ((stop - start) * size)
