"""Sound and text subtitles that the output container cannot hold, encoded again by FFmpeg."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.codec.codec import Codec, UnknownCodecError
from av.container import OutputContainer
from av.filter import Graph
from av.packet import Packet
from av.subtitles.codeccontext import SubtitleCodecContext
from av.subtitles.stream import SubtitleStream
from av.subtitles.subtitle import AssSubtitle, SubtitleSet

from bgsoft.media.containers import Container
from bgsoft.media.layouts import Layout, Mix, frame_layout, make_decodable, named
from bgsoft.media.muting import Muting
from bgsoft.media.pyav import exact
from bgsoft.media.timeline import Timeline
from bgsoft.media.track import OutputTrack

_BITS_PER_CHANNEL = 96_000
"""Transparent for the lossy encoders used here: 192 kbit/s in stereo."""
_LOSSLESS = frozenset({"flac", "alac", "tta", "wavpack", "truehd", "mlp", "ape", "s302m"})
_PCM = "pcm_s16le"
_DEEP_PCM = {"s64": "pcm_s32le", "flt": "pcm_f32le", "dbl": "pcm_f64le"}
"""PCM for samples of more than 24 bits, by their format; that of floats is not cut off at 1."""
_RATES = {
    "libopus": (48_000,),
    "ac3": (48_000, 44_100, 32_000),
    "aac": (
        *(96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000),
        *(22_050, 16_000, 12_000, 11_025, 8_000, 7_350),
    ),
}
_OPUS_SURROUND = {"mapping_family": "1"}
"""Option of the Opus encoder for surround sound. By default, FFmpeg (8 and 9) interchanges channels
of 5.0 and 6.1."""
_DEEP_FLAC = {"strict": "experimental", "bits_per_raw_sample": "32"}
"""Without these, FFmpeg's encoder leaves out the lowest 8 of 32 bits."""
_SILENT_FRAMES, _SILENT_SAMPLES = 4, 1024
_WARM_UP_SECONDS = 2
"""How long before a part its sound is decoded: Opus needs 80 ms (RFC 7845, 4.6), and MP3 the data
that earlier packets hold for later ones. In NUT, a packet of WavPack has a second and no length."""
_HARD_GAP_SECONDS = 0.02
"""A gap or overlap of the input this long is filled or cut; shorter ones are clock jitter."""

READABLE = frozenset({"mov_text", "subrip", "srt", "webvtt", "ass", "ssa", "text"})
"""Codecs whose payload can be read; FFmpeg calls SubRip ``subrip`` or ``srt``."""
_TEXT_TICK = Fraction(1, 96_000)
"""FFmpeg's MP4 muxer (8, 9) ends a cue when another track's tick number passes the cue's: so cues
need the finest clock. Cues 2^31 ticks apart are too far for it: 6 hours here."""
_MAX_PAUSE_SECONDS = 4 * 3600
"""Longest time between starts of cues of MP4."""
_EMPTY_CUE = b"\0\0"
"""A cue of MP4 whose text has the length 0."""
_ASS_FIELDS = 8
"""Fields of an event before its text, as FFmpeg's decoders give it."""
_MAX_BYTES = 0xFFFF
"""Most of a cue in MP4, whose length has 16 bits (3GPP TS 26.245, 5.17)."""


def is_lossless(codec: str) -> bool:
    """Return whether a codec keeps every sample."""
    return codec in _LOSSLESS or codec.startswith("pcm_")


def fallback_encoders(
    container: Container, source: AudioStream, *, keeps_codec: bool
) -> tuple[str, ...]:
    """The container's encoders to try for a track, best first.

    A lossless track stays lossless where it can, with all its bits.

    Args:
        container: The output.
        source: The track.
        keeps_codec: The container holds the track's own codec, which comes first.
    """
    encoders = list(container.audio_fallback)
    context = source.codec_context
    codec = context.codec.canonical_name
    plain = next(filter(is_lossless, encoders), None)
    if is_lossless(codec) and plain is not None:
        encoders.remove(plain)
        if plain == _PCM and context.format.bits > 16:
            plain = "pcm_s24le"
        deep = _DEEP_PCM.get(context.format.packed.name, plain)
        deep = "pcm_s32le" if _has_32_bits(context) else deep
        held = container.copies
        lossless = dict.fromkeys((deep, plain))
        encoders[:0] = [each for each in lossless if held is None or each in held]
    # FFmpeg takes the number of TTA's samples from Matroska's duration, and loses the last packet.
    if keeps_codec and codec != "tta":
        with contextlib.suppress(UnknownCodecError):
            encoders.insert(0, Codec(codec, "w").name)
    return tuple(encoders)


def add_audio_stream(
    output: OutputContainer, encoder: str, source: AudioStream, layout: Layout
) -> AudioStream:
    """Add an output stream that encodes a track in a layout, at its own rate where possible.

    Raises:
        ValueError: The container does not hold the codec.
        av.FFmpegError: The encoder refuses the track's format or the layout.
    """
    decoder = source.codec_context
    rate = decoder.sample_rate
    rates = _RATES.get(encoder, (rate,))
    rate = min((r for r in rates if r >= rate), default=rates[0])
    stream = output.add_stream(encoder, rate=rate)
    assert isinstance(stream, AudioStream)
    context = stream.codec_context
    context.layout = layout.name
    context.time_base = Fraction(1, rate)
    _keep_format(context, decoder)
    if not is_lossless(encoder):
        is_same = context.codec.canonical_name == decoder.codec.canonical_name
        kept = decoder.bit_rate or 0 if is_same else 0
        context.bit_rate = max(_BITS_PER_CHANNEL * len(layout.channels), kept)
    if encoder == "libopus" and len(layout.channels) > 2:
        context.options = _OPUS_SURROUND
    if encoder == decoder.codec.canonical_name == "flac" and _has_32_bits(decoder):
        context.options = _DEEP_FLAC
    context.open()
    return stream


def _has_32_bits(decoder: AudioCodecContext) -> bool:
    """Return whether samples are whole numbers of 32 bits; FFmpeg decodes 24 bits as 32, too."""
    codec, header = decoder.codec.canonical_name, decoder.extradata or b""
    if codec == "flac":  # STREAMINFO has the bits less one (RFC 9639, 8.2)
        return len(header) >= 14 and ((header[12] & 1) << 4 | header[13] >> 4) >= 24
    # The header of WavPack does not say.
    is_deep = codec == "wavpack" or codec.startswith(("pcm_s32", "pcm_u32"))
    return is_deep and decoder.format.packed.name == "s32"


def _keep_format(encoder: AudioCodecContext, decoder: AudioCodecContext) -> None:
    """Choose the encoder's sample format nearest to a decoder's, at best the same."""
    known = [each.name for each in encoder.codec.audio_formats or ()]
    format = decoder.format
    deep = ("s32", "s32p") if format.bits > 16 else ()
    same = (format.name, format.packed.name, format.planar.name)
    encoder.format = next((name for name in (*same, *deep) if name in known), encoder.format.name)


def silence(stream: AudioStream) -> Iterator[Packet[Any]]:
    """A few packets of silence for an output stream of :func:`add_audio_stream`."""
    context = stream.codec_context
    rate, layout = context.sample_rate, context.layout.name
    samples = context.frame_size or _SILENT_SAMPLES
    options = f"channel_layout={layout}:sample_rate={rate}:nb_samples={samples}"
    graph = Graph()
    shape = graph.add("aformat", f"sample_fmts={context.format.name}")
    source = graph.add("anullsrc", f"{options}:duration={_SILENT_FRAMES * samples / rate:.6f}")
    graph.link_nodes(source, shape, graph.add("abuffersink")).configure()
    for _ in range(_SILENT_FRAMES):
        frame = graph.pull()
        assert isinstance(frame, AudioFrame)
        yield from stream.encode(frame)
    yield from stream.encode(None)


class TranscodedTrack(OutputTrack):
    """Decodes, resamples and encodes one audio track; timestamps stay exact to the sample.

    Args:
        source, output, timeline: As for :class:`bgsoft.media.track.OutputTrack`.
        from_zero: Silence fills the time from zero to a late start.
        muting: Makes parts of it silent.
        on_notice: Takes a line where the track changes its channels in the middle.
    """

    def __init__(
        self,
        source: AudioStream,
        output: AudioStream,
        timeline: Timeline,
        *,
        from_zero: bool,
        muting: Muting | None = None,
        on_notice: Callable[[str], None],
    ) -> None:
        super().__init__(source, output, timeline)
        self._on_notice = on_notice
        self._muting = muting
        self._is_early = False
        """True: the packet seems to precede the kept part, and only prepares the decoder."""
        self._next_sample = 0
        """Position on the output's clock of a sample whose frame does not say it."""
        self._declared = self._source = make_decodable(source.codec_context)
        self._target = named(output.codec_context.layout.name)
        self._pad = ":first_pts=0" if from_zero else ""
        self._decoder = source.codec_context
        self._encoder = output.codec_context
        self._graph: Graph | None = None
        self._input_format: tuple[str, str, int] | None = None

    def feed(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        if packet.pts is not None:
            time, timeline = packet.pts * self._tick, self._timeline
            if timeline.end is not None and time >= timeline.end:
                self.done = True
                return
            if timeline.begin is not None:
                length = (packet.duration or 0) * self._tick
                if time + length <= timeline.begin - _WARM_UP_SECONDS:
                    return
                self._is_early = time + length <= timeline.begin
        yield from self._decode(packet)

    def flush(self) -> Iterator[Packet[Any]]:
        yield from self._decode(None)
        if self._graph is not None:
            yield from self._pull(self._graph, None)
            yield from self._packets(None)

    def _decode(self, packet: Packet[Any] | None) -> Iterator[Packet[Any]]:
        try:
            frames = self._decoder.decode(packet)
        except av.FFmpegError:
            self.damaged_packets += packet is not None and not self._is_early
            return
        for frame in _dated(frames):
            if not self._precedes_part(frame):
                yield from self._encode(frame)

    def _precedes_part(self, frame: AudioFrame) -> bool:
        begin, tick = self._timeline.begin, exact(frame.time_base)
        if begin is None or frame.pts is None or tick is None:
            return self._is_early
        return frame.pts * tick + Fraction(frame.samples, frame.sample_rate) <= begin

    def _encode(self, frame: AudioFrame) -> Iterator[Packet[Any]]:
        wanted = (frame.format.name, frame.layout.name, frame.sample_rate)
        if self._graph is None or wanted != self._input_format:
            mix = Mix.of(frame_layout(frame, self._declared), self._target)
            if self._graph is not None:
                # The format changes mid-stream (broadcasts do): a fresh filter for the new one.
                yield from self._pull(self._graph, None)
                if self._next_sample:
                    ended = self._next_sample * frame.sample_rate // self._encoder.sample_rate
                    self._pad = f":first_pts={ended}"
            if mix.source.channels != self._source.channels and mix.describe():
                self._on_notice(mix.describe())
            self._source = mix.source
            self._graph, self._input_format = self._build(frame, mix), wanted
        if frame.pts is not None:
            frame.pts -= self._timeline.ticks(frame.time_base or self._tick)
        yield from self._pull(self._graph, frame)

    def _build(self, frame: AudioFrame, mix: Mix) -> Graph:
        context = self._encoder
        graph = Graph()
        source = graph.add_abuffer(
            sample_rate=frame.sample_rate,
            format=frame.format.name,
            layout=frame.layout.name,
            time_base=frame.time_base or self._tick,
        )
        rate, layout = context.sample_rate, context.layout.name
        resampling = f"{rate}:async=1:min_hard_comp={_HARD_GAP_SECONDS}{self._pad}"
        self._pad = ""
        wanted = f"sample_fmts={context.format.name}:channel_layouts={layout}:sample_rates={rate}"
        limited = not context.format.name.startswith(("flt", "dbl"))
        pan = mix.filter(frame.layout.name, limited=limited)
        mixer = [] if pan is None else [graph.add("pan", pan)]
        kept = ["start_pts=0"] if self._timeline.is_part else []
        if self._timeline.end is not None:
            kept.append(f"end_pts={round((self._timeline.end - self._timeline.origin) * rate)}")
        trim = [graph.add("atrim", ":".join(kept))] if kept else []
        resample, shape = graph.add("aresample", resampling), graph.add("aformat", wanted)
        sink = graph.add("abuffersink")
        graph.link_nodes(source, *mixer, resample, *trim, shape, sink).configure()
        if context.frame_size:
            graph.set_audio_frame_size(context.frame_size)
        return graph

    def _pull(self, graph: Graph, frame: AudioFrame | None) -> Iterator[Packet[Any]]:
        """Push a frame into a filter (None ends it), and encode the frames that come out."""
        with contextlib.suppress(av.error.EOFError):  # the end of the kept part has passed
            graph.push(frame)
        while True:
            try:
                filtered = graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            if isinstance(filtered, AudioFrame):
                self._mute(filtered)
                yield from self._packets(filtered)

    def _mute(self, frame: AudioFrame) -> None:
        number = self._next_sample if frame.pts is None else frame.pts
        self._next_sample = number + frame.samples
        if self._muting is not None:
            self._muting.apply(frame, number, self._timeline.ticks(self._tick) * self._tick)

    def _packets(self, frame: AudioFrame | None) -> Iterable[Packet[Any]]:
        for packet in self._encoder.encode(frame):
            packet.stream = self._output
            yield packet


def _dated(frames: Iterable[AudioFrame]) -> Iterator[AudioFrame]:
    """Give all frames of a packet a timestamp; FFmpeg gives one to the first only."""
    end: Fraction | None = None
    for frame in frames:
        tick = exact(frame.time_base)
        if tick is not None and frame.pts is not None:
            end = frame.pts * tick
        elif tick is not None and end is not None:
            frame.pts = round(end / tick)
        if end is not None:
            end += Fraction(frame.samples, frame.sample_rate)
        yield frame


def add_text_stream(output: OutputContainer, codec: str, source: SubtitleStream) -> SubtitleStream:
    """Add an output stream for converted text, with the styles of its source.

    Raises:
        ValueError: The container does not hold the codec.
    """
    stream = output.add_stream(codec)
    assert isinstance(stream, SubtitleStream)
    header = _styles(source.codec_context) or _styles(SubtitleCodecContext.create("subrip", "r"))
    stream.codec_context.subtitle_header = header
    stream.codec_context.time_base = _TEXT_TICK
    return stream


def _styles(decoder: SubtitleCodecContext) -> bytes | None:
    """The style section that FFmpeg's encoders of text want."""
    decoder.open(strict=False)
    return decoder.subtitle_header


class TextTrack(OutputTrack):
    """Converts the packets of one text subtitle track.

    A cue of MP4 ends where the next one begins. So lines that overlap become cues with all lines
    of a moment.
    """

    def __init__(self, source: SubtitleStream, output: SubtitleStream, timeline: Timeline) -> None:
        super().__init__(source, output, timeline)
        self._decoder = source.codec_context
        self._encoder = output.codec_context
        self._lines: list[tuple[Fraction, bytes]] = []
        """End and text of the lines of the latest cue of MP4."""
        self._latest = timeline.origin
        """Start of that cue; no cue begins earlier."""

    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        if packet.pts is None:
            return
        timeline = self._timeline
        start = packet.pts * self._tick
        self.done = timeline.end is not None and start >= timeline.end
        start, end = timeline.clip(start, start + (packet.duration or 0) * self._tick)
        start = max(start, timeline.origin)
        if end <= start or packet.is_discard:
            return
        start = max(start, self._latest)
        if end <= start:
            self.overlapping_packets += 1
            return
        try:
            texts = self._texts(packet)
            if self._encoder.name != "mov_text":
                cues = [self._timed(self._encode(text), start, end) for text in texts]
            elif texts:
                cues = [*self._until(start), *self._fill(start)]
                self._lines += [(end, text) for text in texts]
                cues.append(self._joined(start))
            else:
                cues = []
        except av.FFmpegError:
            self.damaged_packets += 1
            return
        yield from (cue for cue in cues if cue.size)

    def flush(self) -> Iterable[Packet[Any]]:
        yield from self._until(float("inf"))

    def _until(self, seconds: Fraction | float) -> Iterator[Packet[Any]]:
        """The cues that begin where a line ends and others go on, before a time."""
        while self._lines and (end := self._next_end()) < seconds:
            self._lines = [line for line in self._lines if line[0] > end]
            if self._lines:
                yield self._joined(end)
        self._lines = [line for line in self._lines if line[0] > seconds]

    def _next_end(self) -> Fraction:
        """The end of the latest cue: that of its first line to end, unless that is too late."""
        return min(min(self._lines)[0], self._latest + _MAX_PAUSE_SECONDS)

    def _fill(self, start: Fraction) -> Iterator[Packet[Any]]:
        """Empty cues in a pause too long for MP4."""
        while start - self._latest > _MAX_PAUSE_SECONDS:
            self._latest += _MAX_PAUSE_SECONDS
            yield self._timed(Packet(_EMPTY_CUE), self._latest, self._latest)

    def _joined(self, start: Fraction) -> Packet[Any]:
        """A cue of all current lines, each in its own style."""
        self._latest = start
        text, *others = (text for _, text in self._lines)
        for other in others:
            _, _, style, *_, line = other.split(b",", _ASS_FIELDS)
            text += b"{\\r%s}\\N%s" % (style, line)
        return self._timed(self._encode(text), start, self._next_end())

    def _timed(self, cue: Packet[Any], start: Fraction, end: Fraction) -> Packet[Any]:
        cue.time_base = _TEXT_TICK
        cue.pts = cue.dts = max(0, round((start - self._timeline.origin) / _TEXT_TICK))
        cue.duration = max(1, round((end - start) / _TEXT_TICK))
        cue.is_keyframe = True
        cue.stream = self._output
        return cue

    def _texts(self, packet: Packet[Any]) -> list[bytes]:
        """The packet's text as events of Advanced SubStation Alpha: FFmpeg's between codecs."""
        cues = self._decoder.decode2(packet) or ()
        return [cue.ass for cue in cues if isinstance(cue, AssSubtitle) and cue.dialogue.strip()]

    def _encode(self, text: bytes) -> Packet[Any]:
        words = text[:_MAX_BYTES].decode(errors="ignore")
        if self._encoder.name == "webvtt":  # which does not escape "<" and "&"
            from html import escape  # whose table takes a millisecond

            words = escape(words, quote=False)
        return self._encoder.encode_subtitle(SubtitleSet.create(words.encode()[:_MAX_BYTES], 0, 0))
