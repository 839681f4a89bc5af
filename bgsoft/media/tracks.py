"""The tracks that are not rendered: sound, subtitles, covers, attachments, chapters.

They are read from an opening of the input of their own, in which the rendered video is discarded,
so they cost little and work the same whatever decodes the video.
"""

from __future__ import annotations

import collections
import contextlib
import io
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import av
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import AttachmentStream, Discard, Disposition, Stream
from av.subtitles.stream import SubtitleStream
from av.video.stream import VideoStream

from bgsoft.errors import UnsupportedFormatError
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.media.numbered import SteadyTrack
from bgsoft.media.pyav import exact
from bgsoft.media.source import read_packets
from bgsoft.media.splice import SplicedClock
from bgsoft.media.subtitles import READABLE, TextTrack, add_text_stream
from bgsoft.media.tags import chapters_in, stream_tags
from bgsoft.media.timeline import Timeline
from bgsoft.media.track import CopiedTrack, CoverTrack, Track
from bgsoft.media.transcode import (
    TranscodedTrack,
    add_audio_stream,
    fallback_encoders,
    same_encoder,
)
from bgsoft.report import AudioReport, Event

_SEEK_MARGIN_SECONDS = 15
"""How far before a part's start reading begins, so that a subtitle on screen there is found."""

_MAX_LATE_SECONDS = 0.02
"""Sound that begins this much after the picture is padded where a late start cannot be kept."""
_MAX_LEAD_SECONDS = 1.0
"""Sound before the picture that may be left out where it cannot be kept; broadcasts often have
some."""

_ENDLESS_SECONDS = 3600
"""FFmpeg's encoder gives a subtitle without an end the longest duration there is, 49 days."""

_SHOWS_ALL = "nothing is hidden in it"
_COVER_NAMES = {"mjpeg": ("cover.jpg", "image/jpeg"), "png": ("cover.png", "image/png")}


class SideTracks:
    """All tracks of the input but the rendered video.

    Args:
        source: The input, opened for this purpose; owned from here on.
        info: The rendered video.
        container: The output.
        timeline: Shift and kept part.
        copy_pictures: Keep covers and attached pictures.
        on_event: Told of conversions and of what could not be kept.
    """

    def __init__(
        self,
        source: InputContainer,
        info: VideoInfo,
        container: Container,
        timeline: Timeline,
        *,
        copy_pictures: bool,
        on_event: Callable[[Event], None],
    ) -> None:
        self.audio: list[AudioReport] = []
        """What became of each audio track."""
        self._source = source
        self._info = info
        self._container = container
        self._timeline = timeline
        self._copy_pictures = copy_pictures
        self._on_event = on_event
        self._tracks: dict[int, Track] = {}
        self._packets: Iterator[Packet[Any]] | None = None
        self._position = float("-inf")
        self._cut_at_zero: set[int] = set()
        """Audio tracks whose packets before zero cannot be kept."""
        self._splices: SplicedClock | None = None
        if info.is_broadcast:
            self._splices = SplicedClock(
                info.stream_index, 1 / info.frame_rate if info.frame_rate else Fraction(0)
            )

    def attach(self, output: OutputContainer) -> None:
        """Add the output streams; before the output's header is written."""
        for stream in self._source.streams:
            if stream.index == self._info.stream_index:
                if self._splices is None:
                    stream.discard = Discard.all
                continue
            track = self._add(output, stream)
            if track is None:
                stream.discard = Discard.all
            else:
                self._tracks[stream.index] = track
        self._make_room()
        self.write_chapters(output)

    def _notice(self, message: str) -> None:
        self._on_event(Event(kind="notice", message=message, stage="mux"))

    def _left_out(self, what: str, reason: str = "") -> None:
        """Report a track that is not kept."""
        self._notice(f"{what} left out: {reason or f'{self._container.name} cannot hold it'}")

    def _add(self, output: OutputContainer, stream: Stream) -> Track | None:
        """Add the output stream of one input stream; None where no packets need be read."""
        if isinstance(stream, AudioStream):
            return self._add_audio(output, stream)
        if isinstance(stream, SubtitleStream):
            return self._add_subtitle(output, stream)
        if isinstance(stream, AttachmentStream):
            self._add_attachment(output, stream)
        elif isinstance(stream, VideoStream):
            return self._add_picture(output, stream)
        elif stream.type == "data" and not self._is_rewritten(stream):
            if self._container.copies is None and _holds(self._container, stream):
                return self._copy(output, stream)
            self._notice(f"data track {stream.index} ({stream.name or 'unknown'}) left out")
        return None

    def _is_rewritten(self, stream: Stream) -> bool:
        """Whether the muxer itself writes a track like this: MP4's chapter titles and timecode."""
        return self._info.is_mov and (
            "timecode" in stream.metadata or bool(self._source.chapters())
        )

    def _copy(self, output: OutputContainer, stream: Stream) -> Track:
        target = output.add_stream_from_template(stream, opaque=True)
        _describe(target, stream)
        # A codec's priming lies before zero. MP4 hides it with an edit list. Matroska has a field
        # for its length, and players skip as much of whatever comes first; up to FFmpeg 8 it is
        # filled from Matroska and from Opus headers only.
        # Numbered packets are fitted to the picture by SteadyTrack.
        keep = self._container.edit_lists or self._container.numbers_frames
        skipped = Fraction(0)
        if self._container.is_matroska:
            skipped = _priming(stream)
            known = self._info.container.startswith("matroska") or _codec_name(stream) == "opus"
            keep = skipped > 0 or (known and not self._timeline.is_part)
        if isinstance(stream, AudioStream) and not keep and not self._timeline.is_part:
            self._cut_at_zero.add(stream.index)
        return CopiedTrack(
            stream,
            target,
            self._timeline,
            keep_lead_in=keep,
            lead_in=skipped,
            fine_clock=self._container.edit_lists,
        )

    def _make_room(self) -> None:
        """Move the origin back for sound that would lose a packet of which most is played.

        A video begins with the end of a codec's priming, or with what a cut left of a packet.
        """
        waiting, origin = self._cut_at_zero, self._timeline.origin
        if not waiting:
            return
        for packet in read_packets(self._info.path, *waiting):
            tick = exact(packet.time_base)
            if packet.pts is None or tick is None:
                continue
            start = packet.pts * tick
            middle = start + (packet.duration or 0) * tick / 2
            if start < origin <= middle and packet.stream_index in waiting:
                video_tick = self._info.time_base
                self._timeline.include(math.floor(start / video_tick) * video_tick)
            waiting.discard(packet.stream_index)
            if not waiting or start > origin + 1:
                return

    def _add_audio(self, output: OutputContainer, stream: AudioStream) -> Track | None:
        number = len(self.audio)
        codec = _codec_name(stream)
        reason = None
        if codec is None:
            self._drop_audio(number, "unknown", "its codec is not known")
            return None
        encoders = fallback_encoders(self._container, stream)
        numbers = self._container.numbers_frames
        if codec in self._container.recode_audio and not self._is_mp4():
            reason = f"few players read {codec} in {self._container.name}"
        elif not _holds(self._container, stream):
            reason = f"{self._container.name} cannot hold {codec}"
        elif numbers and self._begins_late(number, stream):
            reason = f"{self._container.name} cannot hold a late start, so silence leads in"
            encoders = (*same_encoder(codec), *encoders)
        elif numbers and self._has_gaps(stream):
            reason = f"{self._container.name} cannot hold gaps, so silence fills them"
            encoders = (*same_encoder(codec), *encoders)
        if reason is None:
            self.audio.append(AudioReport(track=number, codec=codec, action="copied"))
            return self._steady(self._copy(output, stream), stream)
        for encoder in encoders:
            if not _encodes(self._container, encoder, stream):
                continue
            target = add_audio_stream(output, encoder, stream)
            _describe(target, stream)
            name = target.codec.canonical_name
            self.audio.append(
                AudioReport(track=number, codec=name, action="transcoded", reason=reason)
            )
            self._notice(f"audio track {number} converted from {codec} to {name}: {reason}")
            track = TranscodedTrack(stream, target, self._timeline, from_zero=numbers)
            return self._steady(track, target)
        self._drop_audio(number, codec, reason)
        return None

    def _steady(self, track: Track, stream: AudioStream) -> Track:
        """The track itself, or one that watches over what a container without times needs."""
        if not self._container.numbers_frames:
            return track
        return SteadyTrack(track, stream, self._container)

    def _begins_late(self, number: int, stream: AudioStream) -> bool:
        """Whether sound begins so much after the picture that it would be heard early.

        Raises:
            UnsupportedFormatError: It begins so early that much of it would be lost.
        """
        if stream.start_time is None or not stream.time_base or self._timeline.is_part:
            return False
        late = float(stream.start_time * stream.time_base - self._timeline.origin)
        if late < -_MAX_LEAD_SECONDS:
            raise UnsupportedFormatError(
                f"{self._container.name} cannot begin with sound alone: audio track {number} "
                f"starts {-late:.2f} s before the picture; write .mp4, .mov or .mkv",
                stage="encode",
            )
        return late > _MAX_LATE_SECONDS

    def _has_gaps(self, stream: AudioStream) -> bool:
        """Whether a track that begins in time has gaps that its copy could not keep."""
        if self._splices is not None:
            return False  # joined recordings have some that are closed
        copy = SteadyTrack(CopiedTrack(stream, stream, self._timeline), stream, self._container)
        try:
            for packet in read_packets(self._info.path, stream.index):
                collections.deque(copy.feed(packet), maxlen=0)
        except UnsupportedFormatError:
            return True
        return False

    def _is_mp4(self) -> bool:
        """Whether the input is MP4 itself, rather than QuickTime's MOV."""
        brand = self._source.metadata.get("major_brand", "").strip()
        return self._info.is_mov and brand not in ("", "qt")

    def _drop_audio(self, number: int, codec: str, reason: str) -> None:
        self.audio.append(AudioReport(track=number, codec=codec, action="dropped", reason=reason))
        self._left_out(f"audio track {number} ({codec})", reason)

    def _add_subtitle(self, output: OutputContainer, stream: SubtitleStream) -> Track | None:
        codec = _codec_name(stream)
        if codec is not None and _holds(self._container, stream):
            if self._container.edit_lists and codec not in READABLE and self._lacks_ends(stream):
                name = self._container.name
                reason = f"{name} cannot hold subtitles without an end time"
                self._left_out(f"subtitle track {stream.index} ({codec})", reason)
                return None
            return self._copy(output, stream)
        text_codec = self._container.text_subtitles
        if codec in READABLE and text_codec is not None:
            target = add_text_stream(output, text_codec, stream)
            _describe(target, stream)
            self._notice(f"subtitle track {stream.index} converted from {codec} to {text_codec}")
            return TextTrack(stream, target, self._timeline)
        self._left_out(f"subtitle track {stream.index} ({codec or 'unknown'})")
        return None

    def _lacks_ends(self, stream: SubtitleStream) -> bool:
        """Whether any packet of a track has no end time."""
        lengths = (
            (packet.duration or 0) * (exact(packet.time_base) or 0)
            for packet in read_packets(self._info.path, stream.index)
        )
        return not all(0 < seconds < _ENDLESS_SECONDS for seconds in lengths)

    def _add_picture(self, output: OutputContainer, stream: VideoStream) -> Track | None:
        """Copy cover art; further videos are left out."""
        if not stream.disposition & Disposition.attached_pic:
            self._left_out(f"video track {stream.index}", "one video is rendered")
            return None
        if not self._copy_pictures:
            self._left_out("cover picture", _SHOWS_ALL)
            return None
        codec = _codec_name(stream)
        if self._container.muxer == "matroska" and codec in _COVER_NAMES:
            cover = next(read_packets(self._info.path, stream.index), None)
            if cover is not None:
                output.add_attachment(*_COVER_NAMES[codec], bytes(cover))
                return None
        elif self._container.muxer == "mp4" and _holds(self._container, stream):
            target = output.add_stream_from_template(stream, opaque=True)
            _describe(target, stream)
            return CoverTrack(target)
        self._left_out("cover picture")
        return None

    def _add_attachment(self, output: OutputContainer, stream: AttachmentStream) -> None:
        name = f"attachment {stream.name or stream.index}"
        if not self._copy_pictures and (stream.mimetype or "").startswith("image/"):
            self._left_out(name, _SHOWS_ALL)
        elif self._container.muxer == "matroska" and stream.data:
            output.add_attachment(
                stream.name or f"attachment-{stream.index}",
                stream.mimetype or "application/octet-stream",
                stream.data,
            )
        else:
            self._left_out(name)

    def write_chapters(self, output: OutputContainer) -> None:
        """Set the output's chapters; once more if the timeline has moved."""
        chapters = chapters_in(self._source.chapters(), self._timeline)
        if not chapters:
            return
        if not self._container.chapters:
            self._notice(f"chapters left out: {self._container.name} cannot hold them")
        else:
            output.set_chapters(chapters)

    def pull(self, until_seconds: float) -> Iterator[Packet[Any]]:
        """Packets of the output streams until the input has been read up to a time."""
        while self._position < until_seconds:
            packet = self._next_packet()
            if packet is None:
                return
            if self._splices is None:
                yield from self._feed(packet)
                continue
            for settled in self._splices.feed(packet):
                yield from self._feed(settled)

    def drain(self) -> Iterator[Packet[Any]]:
        """All remaining packets, and what encoders still hold."""
        yield from self.pull(float("inf"))
        if self._splices is not None:
            for packet in self._splices.flush():
                yield from self._feed(packet)
        for index, track in self._tracks.items():
            yield from self._guarded(index, track.flush())
            damaged = track.damaged_packets
            if damaged:
                self._notice(f"track {index}: {damaged} damaged packets left out")

    def _feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        track = self._tracks.get(packet.stream_index)
        if track is None or not packet.size or track.done:
            return ()
        time = packet.dts if packet.dts is not None else packet.pts
        if time is not None:
            seconds = float(time * packet.time_base - self._timeline.origin)
            self._position = max(self._position, seconds)
        return self._guarded(packet.stream_index, track.feed(packet))

    def _guarded(self, index: int, packets: Iterable[Packet[Any]]) -> Iterator[Packet[Any]]:
        """A track's packets; one that fails ends there, and the video goes on without it."""
        try:
            yield from packets
        except av.FFmpegError as exc:
            self._tracks[index].done = True
            self._notice(f"track {index} ends early: {exc.strerror}")

    def _next_packet(self) -> Packet[Any] | None:
        """The next packet of any track; None at the end, which damage may bring early."""
        if not self._tracks or all(track.done for track in self._tracks.values()):
            self._position = float("inf")
            return None
        if self._packets is None:
            self._seek()
            self._packets = iter(
                self._source.demux([self._source.streams[index] for index in self._read_streams()])
            )
        try:
            return next(self._packets)
        except StopIteration:
            pass
        except (av.FFmpegError, OSError) as exc:
            self._notice(f"sound and subtitles end early: the input cannot be read on ({exc})")
        self._position = float("inf")
        return None

    def _read_streams(self) -> list[int]:
        """Indices of the streams that are read."""
        watched = [] if self._splices is None else [self._info.stream_index]
        return [*watched, *self._tracks]

    def _seek(self) -> None:
        """Skip most of what lies before the kept part."""
        begin = self._timeline.begin
        if begin is not None and begin > _SEEK_MARGIN_SECONDS:
            # A seek that fails leaves the input at its start: slower, but right.
            with contextlib.suppress(av.FFmpegError):
                self._source.seek(int((begin - _SEEK_MARGIN_SECONDS) * av.time_base))

    def close(self) -> None:
        """Close the input; safe to call twice."""
        self._source.close()


def _codec_name(stream: Stream) -> str | None:
    """FFmpeg's name of a stream's codec; None where it has no decoder for it."""
    context = stream.codec_context
    return None if context is None else context.codec.canonical_name


def _describe(target: Stream, source: Stream) -> None:
    """Copy language, title and dispositions."""
    target.metadata.update(stream_tags(source.metadata))
    target.disposition = source.disposition


def _holds(container: Container, stream: Stream) -> bool:
    """Whether the container takes a stream as it is."""
    if container.copies is not None and _codec_name(stream) not in container.copies:
        return False
    return _accepts(
        container, lambda scratch: scratch.add_stream_from_template(stream, opaque=True)
    )


def _priming(stream: Stream) -> Fraction:
    """Seconds of priming that players skip, by the demuxer; 0 where PyAV lacks the field (18)."""
    if not isinstance(stream, AudioStream) or not stream.codec_context.sample_rate:
        return Fraction(0)
    samples = getattr(stream.codec_context, "initial_padding", 0)
    return Fraction(max(0, samples), stream.codec_context.sample_rate)


def _encodes(container: Container, encoder: str, source: AudioStream) -> bool:
    """Whether the container takes a track encoded anew, and the encoder its format."""
    return _accepts(container, lambda scratch: add_audio_stream(scratch, encoder, source))


def _accepts(container: Container, add: Callable[[OutputContainer], Stream]) -> bool:
    """Write a header with one stream to memory: FFmpeg's tables are not reliable here."""
    try:
        scratch = av.open(io.BytesIO(), "w", format=container.muxer)
    except av.FFmpegError:
        return False
    try:
        add(scratch)
        scratch.start_encoding()
        accepted = True
    except (ValueError, av.FFmpegError):
        accepted = False
    with contextlib.suppress(av.FFmpegError):
        scratch.close()
    return accepted
