"""Output tracks for the sound, subtitles, covers, attachments and data of the input."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.stream import AttachmentStream, Discard, Disposition, Stream
from av.subtitles.stream import SubtitleStream
from av.video.stream import VideoStream

from bgsoft.media.copied import codec_name, conversion, copied_stream, describe, holds, priming
from bgsoft.media.identifying import (
    DEFAULT_HANDLERS,
    MetadataFilter,
    anonymous_header,
    has_coordinates,
)
from bgsoft.media.muting import Muting
from bgsoft.media.pyav import exact
from bgsoft.media.sound_check import DescribedSound, SoundCheck
from bgsoft.media.source import read_packets
from bgsoft.media.timeline import SteadySound, Timeline
from bgsoft.media.track import CopiedTrack, CoverTrack, OutputTrack
from bgsoft.media.transcode import (
    READABLE,
    TextTrack,
    TranscodedTrack,
    add_audio_stream,
    add_text_stream,
    is_lossless,
)
from bgsoft.media.writer import CopyOptions, Writer
from bgsoft.report import AudioReport

_ENDLESS_SECONDS = 3600
"""FFmpeg's encoder gives a subtitle without an end the longest duration there is, 49 days."""
_EARLY_SECONDS = Fraction(1, 10)
"""Sound that begins this long before the picture is played. Less may be a codec's priming: that of
AAC is 44 ms."""

_FLOATS = ("flt", "dbl")
"""Sample formats that hold more than full level."""

SHOWS_ALL = "nothing is hidden or replaced in it"
"""Why a picture is left out."""
_FONTS = (b"\0\1\0\0", b"OTTO", b"true", b"typ1", b"ttcf", b"wOFF", b"wOF2")
"""First bytes of font files: TrueType, OpenType, collections of them, WOFF."""
_COVER_NAMES = {"mjpeg": ("cover.jpg", "image/jpeg"), "png": ("cover.png", "image/png")}


class TrackMaker:
    """Chooses whether a track is copied, converted or left out, and makes its output track.

    Args:
        source: The input.
        writer: The output; conversions, and what cannot be kept, are reported through it.
        timeline: Shift and kept part.
        copied: What is kept.
        metadata: Decides on what identifies people or places.
        in_order: The header cannot be completed later.
    """

    def __init__(
        self,
        source: InputContainer,
        writer: Writer,
        timeline: Timeline,
        copied: CopyOptions,
        metadata: MetadataFilter,
        *,
        in_order: bool,
    ) -> None:
        self.audio: list[AudioReport] = []
        """Outcome of each audio track."""
        self.checks: dict[int, SteadySound | DescribedSound] = {}
        """Checks of the sound that is written, by input track."""
        self.unread: set[int] = set()
        """Text tracks of a pipe, in which coordinates may come."""
        self.muting = Muting(copied.muted, writer.info, timeline) if copied.muted else None
        self.source, self.writer = source, writer
        info, container = writer.info, writer.container
        self._info, self._container = info, container
        self.timeline = timeline
        self.copied = copied
        self.metadata = metadata
        self._cut_at_zero: set[int] = set()
        """Audio tracks whose packets before zero cannot be kept."""
        self._sound = SoundCheck(info, container, timeline, source.metadata, in_order=in_order)
        self._is_pipe = info.pipe is not None

    def add(self, output: OutputContainer, stream: Stream) -> OutputTrack | None:
        """Add the output stream of one input stream; None where no packets need be read."""
        if isinstance(stream, AudioStream):
            return self._add_audio(output, stream)
        if isinstance(stream, SubtitleStream):
            return self._add_subtitle(output, stream)
        if isinstance(stream, VideoStream):
            return self._add_picture(output, stream)
        if isinstance(stream, AttachmentStream):
            self._add_attachment(output, stream)
        elif stream.type == "data" and not self._is_rewritten(stream):
            if self.metadata.strips:
                handler = stream.metadata.get("handler_name", "")
                name = stream.name if handler.lower() in DEFAULT_HANDLERS else handler
                self.metadata.leave_out(f"data track {stream.index} ({name or 'unknown'})")
                return None
            if self._container.copies is None and holds(self._container, stream):
                return self._copy(output, stream)
            self._notice(f"data track {stream.index} ({stream.name or 'unknown'}) left out")
        return None

    def _notice(self, message: str) -> None:
        self.writer.report("notice", message)

    def _left_out(self, what: str, reason: str = "") -> None:
        self._notice(f"{what} left out: {reason or f'{self._container.name} cannot hold it'}")

    def _is_rewritten(self, stream: Stream) -> bool:
        """Return whether the muxer writes such a track itself: MP4's titles or timecode."""
        titles = stream.discard is Discard.all and bool(self.source.chapters())
        return self._info.is_mov and ("timecode" in stream.metadata or titles)

    def _copy(self, output: OutputContainer, stream: Stream) -> OutputTrack:
        # A codec's priming lies before zero. MP4 hides it with an edit list. Matroska has a field
        # for its length, and players skip as much of whatever comes first; up to FFmpeg 8 it is
        # filled from Matroska and from Opus headers only.
        # Numbered packets are fitted to the picture by SteadySound.
        keep = self._container.edit_lists or self._container.numbers_frames
        skipped = Fraction(0)
        if self._container.is_matroska:
            skipped = priming(stream)
            known = self._info.container.startswith("matroska") or codec_name(stream) == "opus"
            keep = skipped > 0 or (known and not self.timeline.is_part)
        if isinstance(stream, AudioStream) and not keep and not self.timeline.is_part:
            self._cut_at_zero.add(stream.index)
        target = copied_stream(output, stream, self.metadata)
        if self._sound.is_described_late(stream):
            target.codec_context.extradata = self._sound.description(stream)
        elif self.metadata.strips:
            self._clean_header(stream, target)
        return CopiedTrack(
            stream,
            target,
            self.timeline,
            keep_lead_in=keep,
            lead_in=skipped,
            fine_clock=self._container.edit_lists,
        )

    def _clean_header(self, stream: Stream, target: Stream) -> None:
        """Take authors and file names out of the header of a copied track."""
        header = None if stream.codec_context is None else stream.codec_context.extradata
        cleaned = anonymous_header(codec_name(stream) or "", header or b"")
        if header and cleaned != header:
            target.codec_context.extradata = cleaned
            self.metadata.leave_out(f"comments of {stream.type} track {stream.index}")

    def make_room(self) -> None:
        """Move the origin back if sound would lose what is played before it.

        That is sound long before the picture, or a first packet of which most is played. A shorter
        rest of a packet, of a codec's priming or after a cut, is lost. So is what MP4 hides.
        """
        if not (self.timeline.is_part or self._info.is_mov or self._container.numbers_frames):
            for stream in self.source.streams.audio if self.copied.sound else ():
                start = (stream.start_time or 0) * (exact(stream.time_base) or 0) + priming(stream)
                if start < self.timeline.origin - _EARLY_SECONDS:
                    self._include(start)
        waiting, origin = self._cut_at_zero, self.timeline.origin
        # A pipe's pictures show when to stop, so that little of it is kept in memory.
        also = () if not self._is_pipe else (self._info.stream_index,)
        for packet in read_packets(self._info.source, *waiting, *also) if waiting else ():
            tick = exact(packet.time_base)
            if packet.pts is None or tick is None:
                continue
            start = packet.pts * tick
            middle = start + (packet.duration or 0) * tick / 2
            if start < origin <= middle and packet.stream_index in waiting:
                self._include(start)
            waiting.discard(packet.stream_index)
            if not waiting or start > origin + 1:
                return

    def _include(self, seconds: Fraction) -> None:
        """Move the origin back to a time, or to the tick of the video's clock before it."""
        tick = self._info.time_base
        self.timeline.include(math.floor(seconds / tick) * tick)

    def _add_audio(self, output: OutputContainer, stream: AudioStream) -> OutputTrack | None:
        number, codec = len(self.audio), codec_name(stream)
        if not self.copied.sound:
            self._note(number, codec or "unknown", "dropped", "--audio none")
            return None
        if codec is None:
            self._drop_audio(number, "unknown", "its codec is not known")
            return None
        reason = self._sound.reason_to_encode(number, codec, stream)
        # In a container that numbers its packets, only the track's times may be in the way.
        numbered = self._container.numbers_frames and codec in (self._container.copies or ())
        again = None if reason is not None else self._reason_to_encode_again(codec, stream)
        reason = reason or again
        if reason is None:
            self._note(number, codec, "copied")
            self._watch(stream.index, stream)
            if self._is_pipe and self._sound.is_described_once(stream):
                text = (
                    f"audio track {number}: sound of another sample rate or other channels is left"
                    f" out: {self._container.name} describes them once; render a file, or write .ts"
                )
                warn = partial(self.writer.report, "warning", text)
                late = self._sound.is_described_late(stream)
                first = self._sound.description(stream) if late else None
                self.checks[stream.index] = DescribedSound(first, warn)
            return self._copy(output, stream)
        chosen = conversion(self._container, stream, keeps_codec=again is not None or numbered)
        if chosen is not None:
            target = add_audio_stream(output, chosen.encoder, stream, chosen.mix.target)
            describe(target, stream, self.metadata)
            name = target.codec.canonical_name
            self._note(number, name, "transcoded", reason)
            what = f"audio track {number}"
            channels = chosen.mix.describe()
            text = f"{what} converted from {codec} to {name}: {reason}"
            if again and name == codec:
                text = f"{what} is encoded again: {reason}"
            rates = [each.codec_context.sample_rate for each in (stream, target)]
            rate = "" if rates[0] == rates[1] else "{} Hz becomes {} Hz".format(*rates)
            formats = [each.codec_context.format.packed.name for each in (stream, target)]
            loud = is_lossless(codec) and [name in _FLOATS for name in formats] == [True, False]
            cut = "samples above full level are cut off" if loud else ""
            if channels or name != codec or not is_lossless(name):
                self._notice("; ".join(filter(None, (text, channels, rate, cut))))
            self._watch(stream.index, target)
            return TranscodedTrack(
                stream,
                target,
                self.timeline,
                from_zero=self._container.numbers_frames,
                muting=self.muting,
                on_notice=lambda text: self._notice(f"{what}: from now on {text}"),
            )
        self._drop_audio(number, codec, reason)
        return None

    def _reason_to_encode_again(self, codec: str, stream: AudioStream) -> str | None:
        """Return why a track is encoded although the container could hold its packets."""
        if self.muting is not None and self.muting.concerns(self.source, stream):
            return "parts of it are muted"
        if self._sound.cuts_packets(codec, stream):
            return "its packets are too long to begin and end a part"
        return None

    def _note(self, number: int, codec: str, action: str, reason: str | None = None) -> None:
        report = AudioReport(track=number, codec=codec, action=action, reason=reason)
        self.audio.append(report)

    def _drop_audio(self, number: int, codec: str, reason: str) -> None:
        self._note(number, codec, "dropped", reason)
        self._left_out(f"audio track {number} ({codec})", reason)

    def _watch(self, index: int, sound: AudioStream) -> None:
        if self._container.numbers_frames:
            self.checks[index] = SteadySound(sound, self._container)

    def _add_subtitle(self, output: OutputContainer, stream: SubtitleStream) -> OutputTrack | None:
        codec = codec_name(stream)
        what = f"subtitle track {stream.index}"
        text_codec = self._container.text_subtitles
        if self.metadata.strips and self._is_pipe:
            self.unread.add(stream.index)
        elif self.metadata.strips and any(
            has_coordinates(bytes(packet)) for packet in read_packets(self._info.path, stream.index)
        ):
            self.metadata.leave_out(f"{what} (coordinates)")
            return None
        if codec is not None and holds(self._container, stream):
            endless = self._container.edit_lists and codec not in READABLE
            if not endless or (not self._is_pipe and self._have_ends(stream)):
                return self._copy(output, stream)
            reason = f"{self._container.name} cannot hold subtitles without an end time"
            self._left_out(f"{what} ({codec})", reason)
        elif codec in READABLE and text_codec is not None:
            target = add_text_stream(output, text_codec, stream)
            describe(target, stream, self.metadata)
            self._notice(f"{what} converted from {codec} to {text_codec}")
            return TextTrack(stream, target, self.timeline)
        else:
            self._left_out(f"{what} ({codec or 'unknown'})")
        return None

    def _have_ends(self, stream: SubtitleStream) -> bool:
        """Return whether all packets of a track have an end time."""
        lengths = (
            (packet.duration or 0) * (exact(packet.time_base) or 0)
            for packet in read_packets(self._info.path, stream.index)
        )
        return all(0 < seconds < _ENDLESS_SECONDS for seconds in lengths)

    def _add_picture(self, output: OutputContainer, stream: VideoStream) -> OutputTrack | None:
        """Copy cover art; further videos are left out."""
        if not stream.disposition & Disposition.attached_pic:
            self._left_out(f"video track {stream.index}", "one video is rendered")
            return None
        if not self.copied.pictures:
            self._left_out("cover picture", SHOWS_ALL)
            return None
        if self.metadata.strips:
            self.metadata.leave_out("cover picture")
            return None
        codec = codec_name(stream)
        if self._container.muxer == "matroska" and codec in _COVER_NAMES:
            cover = next(read_packets(self._info.source, stream.index), None)
            if cover is not None:
                output.add_attachment(*_COVER_NAMES[codec], bytes(cover))
                return None
        elif self._container.muxer == "mp4" and holds(self._container, stream):
            return CoverTrack(stream, copied_stream(output, stream, self.metadata), self.timeline)
        self._left_out("cover picture")
        return None

    def _add_attachment(self, output: OutputContainer, stream: AttachmentStream) -> None:
        name = f"attachment {stream.name or stream.index}"
        if not self.copied.pictures and not _is_font(stream):
            self._left_out(name, SHOWS_ALL)
        elif self.metadata.strips and not _is_font(stream):
            self.metadata.leave_out(name)
        elif self._container.muxer == "matroska" and stream.data:
            output.add_attachment(
                stream.name or f"attachment-{stream.index}",
                stream.mimetype or "application/octet-stream",
                stream.data,
            )
        else:
            self._left_out(name)


def _is_font(stream: AttachmentStream) -> bool:
    """Return whether an attached file is a font, as subtitles need, by its name and contents."""
    declared = (stream.mimetype or "").lower()
    return ("font" in declared or "opentype" in declared) and (stream.data or b"").startswith(
        _FONTS
    )
