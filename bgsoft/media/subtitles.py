"""Text subtitles from one container's payload to another's.

A subtitle packet's payload is small and its forms are few, so they are converted here:

* ``mov_text``: a big-endian 16-bit byte count, that many bytes of UTF-8 (UTF-16 where they start
  with a byte order mark), then style boxes (3GPP TS 26.245, 5.17);
* ``subrip``: text with ``<b> <i> <u> <s> <font>`` tags;
* ``webvtt``: text with ``<b> <i> <u> <c> <v> <lang> <ruby>`` tags and HTML entities (W3C WebVTT);
* ``ass``: eight comma-separated fields, then text with ``{…}`` override tags, ``\\N`` line breaks
  (Matroska's form of an Advanced SubStation Alpha event).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream
from av.subtitles.stream import SubtitleStream

from bgsoft.media.pyav import exact
from bgsoft.media.timeline import Timeline

__all__ = ["READABLE", "TextTrack", "add_text_stream", "decode_text", "encode_text"]

READABLE = frozenset({"mov_text", "subrip", "srt", "webvtt", "ass", "ssa", "text"})
"""Codecs whose payload can be read; FFmpeg calls SubRip ``subrip`` or ``srt``."""

TIME_BASE = Fraction(1, 1000)

_KEPT_TAGS = re.compile(r"</?(?:b|i|u)>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[^<>\n]*>")
_ASS_OVERRIDE = re.compile(r"\{[^{}]*\}")
_ASS_FIELDS = 8

# FFmpeg's text encoders want this header; mov_text takes its default style from it.
_ASS_HEADER = b"""[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, \
Bold, Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, \
Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""


def decode_text(payload: bytes, codec: str) -> str:
    """The text of one packet, with ``<b> <i> <u>`` as its only markup; "" for an empty cue.

    Args:
        payload: The packet's bytes.
        codec: One of :data:`READABLE`.
    """
    if codec == "mov_text":
        size = int.from_bytes(payload[:2], "big")
        raw = payload[2 : 2 + size]
        encoding = "utf-16" if raw[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8"
        text = _escape(raw.decode(encoding, errors="replace"))
    else:
        text = payload.decode("utf-8", errors="replace")
        if codec in ("ass", "ssa"):
            fields = text.split(",", _ASS_FIELDS)
            text = _ASS_OVERRIDE.sub("", fields[_ASS_FIELDS] if len(fields) > _ASS_FIELDS else "")
            text = _escape(text.replace("\\N", "\n").replace("\\n", "\n").replace("\\h", "\u00a0"))
        elif codec == "text":
            text = _escape(text)
    text = _ANY_TAG.sub(lambda tag: tag[0] if _KEPT_TAGS.fullmatch(tag[0]) else "", text)
    if codec != "subrip" and codec != "srt":
        text = html.unescape(text)
    return text.replace("\r\n", "\n").rstrip("\n\0").strip("\n")


def _escape(text: str) -> str:
    """Plain text in the form whose tags and entities :func:`decode_text` takes out."""
    return html.escape(text, quote=False)


def encode_text(text: str, codec: str) -> bytes:
    """The payload of one packet.

    Args:
        text: What :func:`decode_text` returns.
        codec: ``mov_text``, ``subrip`` or ``webvtt``.
    """
    if codec == "subrip":
        return text.encode()
    if codec == "webvtt":
        parts = _KEPT_TAGS.split(text)
        tags = [*_KEPT_TAGS.findall(text), ""]
        return "".join(
            html.escape(part, quote=False) + tag.lower()
            for part, tag in zip(parts, tags, strict=True)
        ).encode()
    raw = _KEPT_TAGS.sub("", text).encode()[:0xFFFF].decode(errors="ignore").encode()
    return len(raw).to_bytes(2, "big") + raw


def add_text_stream(output: OutputContainer, codec: str) -> Stream:
    """Add an output stream for converted text.

    Raises:
        ValueError: The container does not hold the codec.
    """
    stream = output.add_stream(codec)
    if not isinstance(stream, SubtitleStream):
        raise TypeError(f"{codec} is no subtitle encoder")
    stream.codec_context.subtitle_header = _ASS_HEADER
    stream.codec_context.time_base = TIME_BASE
    return stream


class TextTrack:
    """Converts the packets of one text subtitle track.

    Args:
        source: Input stream, of a codec in :data:`READABLE`.
        output: Output stream of :func:`add_text_stream`.
        codec: Its codec.
        timeline: Shift and kept part; cues are clipped to it.
    """

    def __init__(self, source: Stream, output: Stream, codec: str, timeline: Timeline) -> None:
        self.done = False
        self._tick = exact(source.time_base) or TIME_BASE
        self._source_codec = source.codec_context.name
        self._output = output
        self._codec = codec
        self._timeline = timeline

    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        if packet.pts is None:
            return
        timeline = self._timeline
        start = packet.pts * self._tick
        end = start + (packet.duration or 0) * self._tick
        if timeline.end is not None:
            if start >= timeline.end:
                self.done = True
                return
            end = min(end, timeline.end)
        if timeline.begin is not None:
            start = max(start, timeline.begin)
        text = decode_text(bytes(packet), self._source_codec)
        if not text or end <= start:
            return
        cue: Packet[Any] = Packet(encode_text(text, self._codec))
        cue.time_base = TIME_BASE
        cue.pts = cue.dts = max(0, round((start - timeline.origin) / TIME_BASE))
        cue.duration = max(1, round((end - start) / TIME_BASE))
        cue.is_keyframe = True
        cue.stream = self._output
        yield cue

    def flush(self) -> Iterable[Packet[Any]]:
        return ()
