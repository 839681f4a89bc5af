"""Writing the output container: one video track made here, everything else copied."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
from av.bitstream import BitStreamFilterContext
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from bgsoft.errors import EncodeError, UnsupportedFormatError, translated
from bgsoft.media.completion import Completion
from bgsoft.media.containers import Container
from bgsoft.media.headers import ROOM
from bgsoft.media.identifying import MetadataFilter
from bgsoft.media.info import VideoInfo, ends_early
from bgsoft.media.muxer_options import muxer_options
from bgsoft.media.pyav import DAMAGED_ERRORS, TAG_OPTIONS
from bgsoft.media.source import open_input, rendered_packets
from bgsoft.media.tags import file_tags, is_picture_tag, stream_tags
from bgsoft.media.timeline import OutputClock, Timeline, earliest_start
from bgsoft.media.track_maker import SHOWS_ALL, TrackMaker
from bgsoft.media.tracks import CopiedTracks
from bgsoft.media.writer import COPY_ALL, CopyOptions, Writer
from bgsoft.outputs import writing
from bgsoft.pipes import PipeOutput
from bgsoft.report import AudioReport, Event

if TYPE_CHECKING:
    from bgsoft.media.sent import SentFile

_HEVC_NAME = "hvc1"
"""Name of HEVC in MP4 and QuickTime, with parameter sets in the header. Apple's players open no
other."""

_REORDERED = 32
"""Last packets among which is the one that is shown last: more than any encoder reorders."""


class Muxer(Writer):
    """Owns the output container.

    Exactly one video stream is added (:meth:`add_encoder` or :meth:`add_packets`), then its
    packets are written in decoding order. The other tracks are read from a second opening of the
    input, in which the video is discarded, and are pulled along up to each video packet's time.

    Args:
        path: The file to write, normally :attr:`bgsoft.outputs.AtomicOutput.temporary`; or what
            sends it away.
        container: Container to write; the path's extension is ignored.
        info: The video that is rendered.
        copied: Tracks and metadata of the input to keep.
        output_path: The name to give in errors; None: ``path``.
        on_event: Called for conversions, and for tracks that cannot be kept.

    Raises:
        OpenError: The input cannot be opened a second time.
        OutputError: The container cannot be set up; the file itself is opened with the first
            packet.
    """

    def __init__(
        self,
        path: Path | PipeOutput,
        container: Container,
        info: VideoInfo,
        copied: CopyOptions = COPY_ALL,
        *,
        output_path: Path | None = None,
        on_event: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        self._pipe = path if isinstance(path, PipeOutput) else None
        self._file = path.path if isinstance(path, PipeOutput) else path
        super().__init__(container, info, output_path or self._file, on_event)
        self._writing = writing(self._path, None, av.FFmpegError)
        self._video: Stream | None = None
        self._closed = False
        self._damaged: Counter[int] = Counter()
        self._copied = copied
        self._filter = MetadataFilter(strips=not copied.identifying)
        self._tick = info.time_base.as_integer_ratio()
        self._delay = 0
        """Time by which frames are decoded before they are shown, in MP4 and MOV."""
        self._waiting: deque[Packet[Any]] = deque()
        """The last video packets there: their decoding times depend on the end."""
        self._copied_tracks: CopiedTracks | None = None
        self._video_tags: dict[str, str] = {}
        self._sent: SentFile | None = None
        with ExitStack() as stack:
            source = self._open_source(stack) if copied.tracks and not info.stills else None
            self.timeline = Timeline.plan(
                info,
                container,
                earliest_start(source),
                copied.start_seconds,
                copied.duration_seconds,
            )
            tags: dict[str, str] = {}
            if source is not None:
                tags, self._video_tags = self._true_tags(source)
            options = muxer_options(container, info, source, tags)
            with self._writing:
                if self._pipe is not None or container.header_first:
                    from bgsoft.media.sent import SentFile

                    self._sent = stack.enter_context(SentFile(path))
                # FFmpeg would read the "name:" of an odd file name as a protocol.
                file = f"file:{path}" if self._sent is None else self._sent
                self._output: OutputContainer = av.open(
                    file, "w", format=container.muxer, container_options=options, **TAG_OPTIONS
                )
            stack.pop_all()
        if source is not None:
            self._output.metadata.update(tags)
            in_order = self._sent is not None
            self._copied_tracks = CopiedTracks(
                TrackMaker(source, self, self.timeline, copied, self._filter, in_order=in_order)
            )

    def _open_source(self, stack: ExitStack) -> InputContainer:
        """The input's other tracks: an opening of their own, or what all of a pipe come from."""
        if self.info.pipe is not None:
            return rendered_packets(self.info.pipe, self.info.stream_index).container
        return stack.enter_context(open_input(self.info.path))

    @property
    def audio(self) -> list[AudioReport]:
        return self._copied_tracks.audio if self._copied_tracks is not None else []

    def _true_tags(self, source: InputContainer) -> tuple[dict[str, str], dict[str, str]]:
        """Return the tags of the file and of its video; a timecode only where it stays true.

        Other timecodes of sound and subtitles, too, are taken out of ``source``.

        Drop-frame numbering, written with a semicolon, exists for multiples of 30 frames only
        (SMPTE ST 12-1); muxers refuse others.
        """
        video = source.streams[self.info.stream_index]
        kept = (
            self._filter.tags(file_tags(source.metadata)),
            self._filter.tags(stream_tags(video.metadata)),
        )
        others = () if self._filter.strips else (*source.streams.audio, *source.streams.subtitles)
        odd_rate = round(self.info.nominal_rate) % 30 != 0
        wrong = [
            (table, key)
            for table in (*kept, *(stream.metadata for stream in others))
            for key, value in table.items()
            if key.lower() == "timecode" and (self.timeline.is_part or (odd_rate and ";" in value))
        ]
        for table, key in wrong:
            del table[key]
        if wrong:
            self.report("notice", "timecode left out")
        of_file, of_video = (
            {key: value for key, value in table.items() if key.lower() == "timecode"}
            for table in kept
        )
        # FFmpeg's muxer would write the file's as the video's.
        if self.container.edit_lists and of_video and of_file:
            if {*of_file.values()} != {*of_video.values()}:
                text = f"timecode of the file left out: {self.container.name} has the video's only"
                self.report("notice", text)
            for key in of_file:
                del kept[0][key]
        return kept

    def add_encoder(self, encoder: str, **settings: Any) -> VideoStream:
        """Add the video stream of an encoder of FFmpeg's, which is not open yet.

        Args:
            encoder: FFmpeg's encoder name.
            **settings: Attributes of the stream's codec context: width, height, pix_fmt, …

        Raises:
            UnsupportedFormatError: The container cannot hold the codec.
        """
        with translated(ValueError, to=lambda _: self._cannot_hold(encoder)):
            stream = self._output.add_stream(
                encoder, rate=self.info.nominal_rate, time_base=self.info.time_base, **settings
            )
        assert isinstance(stream, VideoStream)
        if self.container.edit_lists and stream.codec.canonical_name == "hevc":
            stream.codec_context.codec_tag = _HEVC_NAME
        self._adopt(stream)
        return stream

    def add_packets(self, codec: str) -> Stream:
        """Add the video stream for packets that are encoded elsewhere (Annex B for H.26x).

        Packets for :meth:`write_video` carry it as their ``stream``.

        Args:
            codec: FFmpeg's codec name, e.g. ``h264``.

        Raises:
            UnsupportedFormatError: The container cannot hold the codec.
        """
        with translated(ValueError, to=lambda _: self._cannot_hold(codec)):
            stream = self._output.add_mux_stream(
                codec,
                rate=self.info.nominal_rate,
                width=self.info.format.width,
                height=self.info.format.height,
            )
        stream.time_base = self.info.time_base
        self._adopt(stream)
        return stream

    def add_copy(self, source: VideoStream) -> Stream:
        """Add the video stream for packets of a finished file of the same kind."""
        stream = self.add_packets(source.codec_context.codec.canonical_name)
        self.describe(source)
        return stream

    def describe(self, source: VideoStream) -> None:
        """Give :meth:`add_packets`' stream the description of another: parameter sets, colour."""
        has_alpha = source.metadata.get("alpha_mode") == "1"  # VP9 in Matroska
        if not self.container.edit_lists and not has_alpha:
            BitStreamFilterContext("null", source, self._video)  # copies the description
            return
        # Here the name and the pixel aspect, or alpha, are fields of the file. PyAV sets them only
        # for what has a codec context, as it writes a header.
        with av.open(io.BytesIO(), "w", format=self.container.muxer) as scratch:
            named = scratch.add_stream_from_template(source, opaque=True)
            context = named.codec_context
            context.sample_aspect_ratio = self.info.sample_aspect_ratio
            hevc = context.codec.canonical_name == "hevc"
            context.codec_tag = _HEVC_NAME if hevc else source.codec_context.codec_tag
            if has_alpha:
                context.pix_fmt = "yuva420p"
            scratch.start_encoding()
            BitStreamFilterContext("null", named, self._video)

    def _cannot_hold(self, codec: str) -> UnsupportedFormatError:
        return UnsupportedFormatError(
            f"cannot write {self.container.name}: it cannot hold {codec} video",
            path=self._path,
            stage="encode",
        )

    def _adopt(self, stream: Stream) -> None:
        """Make this the video stream; the other tracks come after it."""
        if self._video is not None:
            raise ValueError("the output has its video stream already")
        self._video = stream
        self.clock = OutputClock(self.info, self.container, self.timeline)
        if self.container.numbers_frames:
            stream.time_base = 1 / self.clock.grid.rate
        stream.metadata.update(self._video_tags)
        if self._named_aspect is not None:
            stream.metadata["title"] = self._video_tags.get("title", "") + ROOM
        stream.disposition = Disposition.default
        if self._copied_tracks is not None:
            self._copied_tracks.attach(self._output)
        if not self._copied.pictures:
            self._drop_picture_tags()
        if self._filter.notice is not None:
            self.report("notice", self._filter.notice)

    def _drop_picture_tags(self) -> None:
        streams = (stream.metadata for stream in self._output.streams)
        every: list[dict[str, str]] = [self._output.metadata, self._video_tags, *streams]
        names = {} if self._copied_tracks is None else self._copied_tracks.picture_tags
        for tags in every:
            for key in [key for key, value in tags.items() if is_picture_tag(key, value)]:
                del tags[key]
                names[key] = None
        for name in names:
            self.report("notice", f"tag {name} left out: {SHOWS_ALL}")

    @property
    def _named_aspect(self) -> Fraction | None:
        """The pixel aspect, if it has to be added to the finished header."""
        added = self.container.is_matroska or self.container.header_first
        aspect = self.info.sample_aspect_ratio
        return aspect if added and aspect != 1 else None

    def timestamp(self, pts: int) -> int:
        """The output timestamp of a source timestamp, both in ``info.time_base``.

        The first call sets the clock, so it must be the first frame's.

        Raises:
            UnsupportedFormatError: The container cannot show a frame at that time.
        """
        if self.clock.fix(pts) and self._copied_tracks is not None:
            self._copied_tracks.write_chapters(self._output)
        return self.clock.timestamp(pts)

    def write_video(self, packets: Iterable[Packet[Any]]) -> None:
        """Write video packets, in decoding order, and the other tracks up to their time.

        Raises:
            OutputError: The packets could not be written.
            EncodeError: A packet has no timestamp.
        """
        for packet in packets:
            if packet.pts is None or packet.dts is None:
                raise EncodeError(
                    "cannot write the video: the encoder returned a packet without a timestamp",
                    stage="encode",
                )
            if self._sent is not None and not self.video_pts:
                self._send_header(self._sent)
            self.video_pts.append(packet.pts + self.clock.shift)
            self.video_durations.append(packet.duration or 0)
            if len(self.video_pts) == 1 and self.container.edit_lists:
                self._delay = packet.pts - packet.dts
            self._waiting.append(packet)
            while len(self._waiting) > (_REORDERED if self._delay > 0 else 0):
                self._write_packet(self._waiting.popleft())

    def _write_packet(self, packet: Packet[Any]) -> None:
        numerator, denominator = self._tick
        assert packet.dts is not None
        if self._copied_tracks is not None:
            self._mux_copied(self._copied_tracks.pull(packet.dts * numerator / denominator))
        try:
            self._output.mux_one(packet)
        except Exception:
            with self._writing:
                raise

    def _write_waiting(self) -> None:
        """Write the last packets of MP4 and MOV.

        There the length of a packet is the time to the next one's decoding. All lengths together
        have to be the video's, and with its length, none may be shown beyond the video's end. So
        the last packets may be decoded later.
        """
        end = self._video_end - self.clock.shift
        following = end - self._delay
        for packet in reversed(self._waiting):
            assert packet.pts is not None
            assert packet.dts is not None
            packet.dts = max(packet.dts, following - (end - packet.pts))
            if packet is self._waiting[-1]:
                packet.duration = max(packet.duration or 0, following - packet.dts)
            following = packet.dts
        for packet in self._waiting:
            self._write_packet(packet)
        self._waiting.clear()

    def _send_header(self, sent: SentFile) -> None:
        """Begin what is written once and in order."""
        with self._writing:
            self._output.start_encoding()
            sent.send_header(self.container, self._named_aspect)

    def _mux_copied(self, packets: Iterable[Packet[Any]]) -> None:
        """Write packets of other tracks; those too damaged for the muxer are left out."""
        for packet in packets:
            index = packet.stream.index
            with self._writing:
                try:
                    self._output.mux_one(packet)
                except DAMAGED_ERRORS:
                    if packet.size:  # FLAC ends with an empty packet
                        self._damaged[index] += 1

    @property
    def _video_end(self) -> int:
        """End of the frame that is shown last, on the source's clock."""
        recent = zip(self.video_pts[-_REORDERED:], self.video_durations[-_REORDERED:], strict=True)
        return max(pts + (duration or self.info.nominal_ticks) for pts, duration in recent)

    def _report_short_sound(self, tracks: CopiedTracks) -> None:
        """Report sound that was cut off, unless the video was; the decoder has reported that."""
        declared = self.info.duration_seconds
        seconds = (self._video_end - (self.info.start_pts or 0)) * self.info.time_base
        if declared is None or not ends_early(float(seconds), declared):
            for text in tracks.cut_off():
                self.report("warning", text)

    def finish(self) -> None:
        """Write the rest of the other tracks and the trailer, and close the file."""
        if not self.video_pts:
            raise EncodeError(
                "cannot write the video: no frame was encoded", path=self._path, stage="encode"
            )
        if self._waiting:
            self._write_waiting()
        if self._copied_tracks is not None:
            self._mux_copied(self._copied_tracks.drain())
            self._report_short_sound(self._copied_tracks)
        for index, count in self._damaged.items():
            self.report("repair", f"output track {index}: {count} damaged packets left out")
        if self._video is not None and self._named_aspect is not None:
            self._video.metadata.pop("title")
            self._video.metadata.update(self._video_tags)
        completion = Completion(self._output, self.container, self._file, self._sent)
        with self._writing:
            self._output.close()
            completion.correct(self._named_aspect)
        self._closed = True
        self.close()
        if lost := completion.lost():
            self.report("notice", f"{self.container.name} cannot hold {', '.join(lost)}: left out")

    def close(self) -> None:
        """Free everything; an unfinished file is removed. Safe to call twice."""
        if not self._closed:
            self._closed = True
            # First: closing writes the trailer, and MP4's would move the whole file.
            if self._pipe is not None:
                self._pipe.stop()
            else:
                self._file.unlink(missing_ok=True)
            with suppress(av.FFmpegError, OSError):
                self._output.close()
            if self._sent is not None:
                self._sent.close()
        if self._copied_tracks is not None:
            self._copied_tracks.close()
