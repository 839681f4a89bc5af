"""Text subtitles from one codec to another, by FFmpeg's own decoders and encoders."""

from __future__ import annotations

import html
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import av
from av.container import OutputContainer
from av.packet import Packet
from av.subtitles.codeccontext import SubtitleCodecContext
from av.subtitles.stream import SubtitleStream
from av.subtitles.subtitle import AssSubtitle, SubtitleSet

from bgsoft.media.timeline import Timeline
from bgsoft.media.track import Track

READABLE = frozenset({"mov_text", "subrip", "srt", "webvtt", "ass", "ssa", "text"})
"""Codecs whose payload can be read; FFmpeg calls SubRip ``subrip`` or ``srt``."""

_TIME_BASE = Fraction(1, 1000)
_MAX_BYTES = 0xFFFF
"""Of a cue in MP4, whose length has 16 bits (3GPP TS 26.245, 5.17)."""


def add_text_stream(output: OutputContainer, codec: str, source: SubtitleStream) -> SubtitleStream:
    """Add an output stream for converted text, with the styles of its source.

    Raises:
        ValueError: The container does not hold the codec.
    """
    stream = output.add_stream(codec)
    if not isinstance(stream, SubtitleStream):
        raise TypeError(f"{codec} is no subtitle encoder")
    header = _styles(source.codec_context) or _styles(SubtitleCodecContext.create("subrip", "r"))
    stream.codec_context.subtitle_header = header
    stream.codec_context.time_base = _TIME_BASE
    return stream


def _styles(decoder: SubtitleCodecContext) -> bytes | None:
    """The style section that FFmpeg's encoders of text want."""
    decoder.open(strict=False)
    return decoder.subtitle_header


class TextTrack(Track):
    """Converts the packets of one text subtitle track."""

    def __init__(self, source: SubtitleStream, output: SubtitleStream, timeline: Timeline) -> None:
        super().__init__(source, output, timeline)
        self._decoder = source.codec_context
        self._encoder = output.codec_context

    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        if packet.pts is None:
            return
        timeline = self._timeline
        start = packet.pts * self._tick
        self.done = timeline.end is not None and start >= timeline.end
        start, end = timeline.clip(start, start + (packet.duration or 0) * self._tick)
        if end <= start:
            return
        try:
            cues = [self._encode(text) for text in self._texts(packet)]
        except av.FFmpegError:
            self.damaged_packets += 1
            return
        for cue in cues:
            if cue.size:
                cue.time_base = _TIME_BASE
                cue.pts = cue.dts = max(0, round((start - timeline.origin) / _TIME_BASE))
                cue.duration = max(1, round((end - start) / _TIME_BASE))
                cue.is_keyframe = True
                cue.stream = self._output
                yield cue

    def _texts(self, packet: Packet[Any]) -> list[bytes]:
        """The packet's text as events of Advanced SubStation Alpha: FFmpeg's between codecs."""
        cues = self._decoder.decode2(packet) or ()
        return [cue.ass for cue in cues if isinstance(cue, AssSubtitle) and cue.dialogue.strip()]

    def _encode(self, text: bytes) -> Packet[Any]:
        words = text[:_MAX_BYTES].decode(errors="ignore")
        if self._encoder.name == "webvtt":  # which leaves "<" and "&" as they are
            words = html.escape(words, quote=False)
        return self._encoder.encode_subtitle(SubtitleSet.create(words.encode()[:_MAX_BYTES], 0, 0))
