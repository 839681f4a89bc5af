"""Output streams made after input streams, and what containers take of them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from fractions import Fraction

import av
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.stream import Stream

from bgsoft.media.containers import Container
from bgsoft.media.identifying import MetadataFilter
from bgsoft.media.tags import stream_tags
from bgsoft.media.transcode import add_audio_stream


def codec_name(stream: Stream) -> str | None:
    """FFmpeg's name of a stream's codec; None where it has no decoder for it."""
    context = stream.codec_context
    return None if context is None else context.codec.canonical_name


def copied_stream(output: OutputContainer, source: Stream, metadata: MetadataFilter) -> Stream:
    """Add an output stream for the packets of an input stream."""
    target = output.add_stream_from_template(source, opaque=True)
    describe(target, source, metadata)
    return target


def describe(target: Stream, source: Stream, metadata: MetadataFilter) -> None:
    """Copy language, title and dispositions."""
    target.metadata.update(metadata.tags(stream_tags(source.metadata)))
    target.disposition = source.disposition


def holds(container: Container, stream: Stream) -> bool:
    """Whether the container takes a stream as it is."""
    if container.copies is not None and codec_name(stream) not in container.copies:
        return False
    return _accepts(container, lambda file: file.add_stream_from_template(stream, opaque=True))


def priming(stream: Stream) -> Fraction:
    """Seconds of priming that players skip, by the demuxer; 0 where PyAV lacks the field (18)."""
    if not isinstance(stream, AudioStream) or not stream.codec_context.sample_rate:
        return Fraction(0)
    samples = getattr(stream.codec_context, "initial_padding", 0)
    return Fraction(max(0, samples), stream.codec_context.sample_rate)


def encodes(container: Container, encoder: str, source: AudioStream) -> bool:
    """Whether the container takes a track encoded anew, and the encoder its format."""
    return _accepts(container, lambda file: add_audio_stream(file, encoder, source))


def _accepts(container: Container, add: Callable[[OutputContainer], Stream]) -> bool:
    """Write a header with one stream to memory: FFmpeg's tables are not reliable here."""
    try:
        scratch = av.open(io.BytesIO(), "w", format=container.muxer)
    except av.FFmpegError:
        return False
    try:
        add(scratch)
        scratch.start_encoding()
    except (ValueError, av.FFmpegError):
        return False
    finally:
        with contextlib.suppress(av.FFmpegError):
            scratch.close()
    return True


def adts_config(packet: bytes) -> bytes | None:
    """The description (AudioSpecificConfig) of AAC whose packets carry it, as broadcasts have it.

    Of the header (ISO/IEC 13818-7, 6.2) the profile, the sampling frequency's index and the
    channels; None where they say nothing, and where the packet begins with no such header.
    """
    if len(packet) < 7 or packet[0] != 0xFF or packet[1] & 0xF6 != 0xF0:
        return None
    profile, rate = packet[2] >> 6, packet[2] >> 2 & 15
    channels = (packet[2] & 1) << 2 | packet[3] >> 6
    return (profile + 1 << 11 | rate << 7 | channels << 3).to_bytes(2, "big") if channels else None
