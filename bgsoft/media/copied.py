"""Output streams made after input streams, and what containers take of them."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import av
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream

from bgsoft.media.containers import Container
from bgsoft.media.identifying import MetadataFilter
from bgsoft.media.layouts import Layout, Mix, nearest, read_layout
from bgsoft.media.pyav import DAMAGED_ERRORS, exact
from bgsoft.media.tags import stream_tags
from bgsoft.media.transcode import add_audio_stream, fallback_encoders, silence
from bgsoft.records import NamedTuple

_STEADY_PACKETS = 5
"""Packets with the same description that are not all damaged."""
_TRIED_SECONDS = Fraction(1, 50)
"""Length of a packet that does not say its own, where only its data matter."""


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
    """Return whether FFmpeg can write a header of the container for an unchanged stream."""
    if container.copies is not None and codec_name(stream) not in container.copies:
        return False

    def fill(file: OutputContainer) -> Iterable[Packet[Any]]:
        file.add_stream_from_template(stream, opaque=True)
        return ()

    return _written(container, fill) is not None


def copy_problem(
    container: Container, stream: AudioStream, demuxer: str, packets: Iterable[Packet[Any]]
) -> str | None:
    """Write the first packets of a track to the container, and say why it cannot be copied.

    FFmpeg's muxers write sound that no demuxer reads. They also leave out the names of channels if
    their container has no place for them.

    Args:
        container: The output.
        stream: The track.
        demuxer: FFmpeg's name of the input's demuxer: its own containers need no trial.
        packets: The first packets; without any, nothing is tried.

    Returns:
        The reason; None if the track can be copied.
    """
    name, codec = container.name, codec_name(stream)
    refused = f"{name} cannot hold {codec}"
    if not holds(container, stream):
        return refused

    context, wanted = stream.codec_context, read_layout(stream.codec_context)
    if container.muxer in demuxer.split(",") or not wanted.channels or not context.sample_rate:
        return None
    first = list(packets)
    if not first:
        return None

    def fill(file: OutputContainer) -> Iterable[Packet[Any]]:
        target = file.add_stream_from_template(stream, opaque=True)
        end = 0
        for packet in first:  # one after another: their times are not what is tried
            seconds = (packet.duration or 0) * (exact(packet.time_base) or 0) or _TRIED_SECONDS
            samples = context.frame_size or math.ceil(seconds * context.sample_rate)
            packet.stream, packet.time_base = target, Fraction(1, context.sample_rate)
            packet.pts, packet.dts, packet.duration = end, end, samples
            end += samples
            yield packet

    found = _read_back(container, fill)
    if found is None:
        return refused
    if found.surround != wanted.surround:
        return f"{name} cannot say that the channels of {codec} are {'+'.join(wanted.channels)}"
    return None


def priming(stream: Stream) -> Fraction:
    """Seconds of priming that players skip, by the demuxer; 0 where PyAV lacks the field (18)."""
    if not isinstance(stream, AudioStream) or not stream.codec_context.sample_rate:
        return Fraction(0)
    samples = getattr(stream.codec_context, "initial_padding", 0)
    return Fraction(max(0, samples), stream.codec_context.sample_rate)


class Conversion(NamedTuple):
    """The encoder and the channels of a track that cannot be copied."""

    encoder: str
    mix: Mix


def conversion(
    container: Container, stream: AudioStream, *, keeps_codec: bool
) -> Conversion | None:
    """The encoder that the container takes, and its layout nearest to a track's.

    Of encoders that lose equally many channels, the first; None where there is none. Arguments as
    :func:`bgsoft.media.transcode.fallback_encoders`.
    """
    best: Conversion | None = None
    for encoder in fallback_encoders(container, stream, keeps_codec=keeps_codec):
        for mix in nearest(read_layout(stream.codec_context)):
            if best is not None and mix.loss >= best.mix.loss:
                break
            if _encodes(container, encoder, stream, mix.target):
                best = Conversion(encoder, mix)
                break
    return best


def _encodes(container: Container, encoder: str, source: AudioStream, layout: Layout) -> bool:
    """Return whether silence can be encoded in a layout, and is read from the container as that."""

    def fill(file: OutputContainer) -> Iterable[Packet[Any]]:
        return silence(add_audio_stream(file, encoder, source, layout))

    found = _read_back(container, fill)
    return found is not None and found.channels == layout.channels


_Fill = Callable[[OutputContainer], "Iterable[Packet[Any]]"]
"""Adds a track to a file, and gives its packets."""


def _written(container: Container, fill: _Fill) -> io.BytesIO | None:
    """A file with one track in memory; None where FFmpeg refuses: its tables are not reliable.

    Single packets that it refuses are damaged.
    """
    memory = io.BytesIO()
    try:
        file = av.open(memory, "w", format=container.muxer)
    except av.FFmpegError:
        return None
    try:
        packets = iter(fill(file))
        first = next(packets, None)  # when the track has been added
        file.start_encoding()
        taken = first is None
        for packet in packets if first is None else itertools.chain((first,), packets):
            with contextlib.suppress(*DAMAGED_ERRORS):
                file.mux_one(packet)
                taken = True
        if not taken:
            return None
    except (ValueError, av.FFmpegError):
        return None
    finally:
        with contextlib.suppress(av.FFmpegError):
            file.close()
    return memory


def _read_back(container: Container, fill: _Fill) -> Layout | None:
    """The channels of a track that has been written; None where it cannot be read."""
    memory = _written(container, fill)
    if memory is None:
        return None
    memory.seek(0)
    try:
        with av.open(memory, "r", format=container.muxer) as file:
            context = file.streams.audio[0].codec_context
            layout = None if context is None else read_layout(context)
    except (ValueError, IndexError, av.FFmpegError):
        return None
    return layout if layout is not None and layout.channels else None


def describes_itself(stream: Stream) -> bool:
    """Return whether packets describe a track (AAC with ADTS headers), and its header does not."""
    return codec_name(stream) == "aac" and not stream.codec_context.extradata


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


class AdtsConfig:
    """The description that holds now, of AAC whose packets carry it.

    Another one than the first counts from its fifth packet in a row on: fewer are damaged.
    """

    def __init__(self) -> None:
        self.current: bytes | None = None
        self._latest: bytes | None = None
        self._run = 0

    def feed(self, packet: bytes) -> bytes | None:
        """Return the description with the next packet; None: there was none yet."""
        config = adts_config(packet)
        if config is not None:
            self._run = self._run + 1 if config == self._latest else 1
            self._latest = config
            if self.current is None or self._run >= _STEADY_PACKETS:
                self.current = config
        return self.current
