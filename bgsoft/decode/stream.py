"""Base of all decoders: recovery from damage, selection of pictures, repair of timestamps."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

import av
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from bgsoft.closing import Closing
from bgsoft.decode.base import DecodeSettings, DecodeStats
from bgsoft.errors import ConfigError, DecodeError, OpenError
from bgsoft.frame import Frame
from bgsoft.media.info import BACKWARD_SECONDS, FORWARD_SECONDS, STILLS, VideoInfo, ends_early
from bgsoft.media.listing import can_seek
from bgsoft.media.messages import MessageReader
from bgsoft.media.pipe import MAX_READ_ERRORS
from bgsoft.media.source import RAW_STREAMS, open_input, rendered_packets
from bgsoft.records import dataclass
from bgsoft.report import Event
from bgsoft.ring import FrameRing

_SEEK_BACK_SECONDS = (0, 2, 10, 40)
"""How far before the wanted time to seek, tried in turn until an intact key frame comes out.
Containers seek by decoding time, and MPEG-TS does not know its key frames."""
NOT_SEEKABLE = (*RAW_STREAMS, "gif", STILLS)
"""Demuxers without index and timestamps: the start is found by decoding from the beginning."""


_MAX_HELD = 16
"""Leading pictures without a timestamp that wait for the first that has one."""
_GAP_SECONDS = 10
"""Shortest time without a picture that is reported: damage, or a clock that jumps forward."""
_SAME_SECONDS = Fraction(1, 1000)
"""Difference of times that are the same."""


class DecodedPicture(Protocol):
    """A picture of any decoder, with its timestamps from the demuxer."""

    @property
    def key_frame(self) -> bool: ...
    @property
    def is_corrupt(self) -> bool: ...  # concealed damage
    @property
    def pts(self) -> int | None: ...
    @property
    def dts(self) -> int | None: ...
    @property
    def duration(self) -> int: ...  # 0: unknown
    @property
    def opaque(self) -> Any: ...  # messages of its packet; None: none


P = TypeVar("P", bound=DecodedPicture)


@dataclass(frozen=True, slots=True)
class TimedPicture(Generic[P]):
    """A decoded picture with the timestamp to use."""

    picture: P
    pts: int
    repaired: bool = False
    """The timestamp was replaced or moved."""
    jumped: bool = False
    """The clock was restarted at this picture."""


def rising_pts(
    pictures: Iterable[P], *, frame_ticks: int, jump_ticks: int, leap_ticks: int
) -> Iterator[TimedPicture[P]]:
    """Pass good timestamps on, and replace bad ones.

    - A picture without a timestamp is set one duration after its predecessor. Leading ones are set
      so that they precede the first known one.
    - One whose timestamp is not after its predecessor's is set half a duration after it, before
      the next.
    - Where the clock itself jumps back, or too far ahead (a joined broadcast recording), the
      picture is set one duration after its predecessor. Later ones are moved by the same amount.

    A picture is yielded before the next one is pulled, except for leading ones without
    timestamps.

    Args:
        pictures: In presentation order.
        frame_ticks: Nominal duration in pts units, for pictures without one; at least 1.
        jump_ticks: How far back, in pts units, counts as a jump of the clock.
        leap_ticks: How far ahead, in pts units, counts as a jump.
    """
    held: list[P] = []
    last: TimedPicture[P] | None = None
    offset = 0
    for picture in pictures:
        known = picture.pts if picture.pts is not None else picture.dts
        if last is None and known is None and len(held) < _MAX_HELD:
            held.append(picture)
            continue
        if held:
            for last in _leading(held, known, frame_ticks):
                yield last
            held.clear()
        pts, jumped = known or 0, False
        if last is not None:
            length = last.picture.duration or frame_ticks
            pts = last.pts + length
            if known is not None:
                moved = known + offset
                ahead = moved - last.pts
                if 0 < ahead < leap_ticks:
                    pts = moved
                elif -jump_ticks < ahead <= 0:
                    pts = last.pts + max(1, length // 2)
                else:
                    offset += pts - moved
                    jumped = True
        last = TimedPicture(picture, pts, repaired=pts != picture.pts, jumped=jumped)
        yield last
    yield from _leading(held, None, frame_ticks)


def _leading(held: list[P], following: int | None, frame_ticks: int) -> Iterator[TimedPicture[P]]:
    """Yield leading pictures, timed so that ``following`` comes next; None: from 0."""
    ticks = [picture.duration or frame_ticks for picture in held]
    pts = 0 if following is None else following - sum(ticks)
    for picture, length in zip(held, ticks, strict=True):
        yield TimedPicture(picture, pts, repaired=True)
        pts += length


def wanted_pts(info: VideoInfo, settings: DecodeSettings) -> tuple[int | None, int | None]:
    """Return the first wanted pts and the first that is too late; None: no limit."""
    if settings.range is not None:
        return settings.range.first, settings.range.end
    # Added as decimal numbers, so that 0.1 + 0.2 is the frame at 0.3.
    start = Fraction(str(max(0.0, settings.start_seconds)))
    length = settings.duration_seconds
    end = None if length is None else info.pts_at(start + Fraction(str(length)))
    return (info.pts_at(start) if start else None), end


class _Lengths:
    """Lengths of pictures in presentation order, as their packets give them.

    MP4 stores the times of decoding: with reordered pictures, each length may be another's.
    """

    def __init__(self) -> None:
        self._sum_end: int | None = None
        """Begin of the first picture, and the lengths of all."""
        self._latest_end = 0

    def add(self, timed: TimedPicture[Any]) -> None:
        """Add the next picture."""
        self._sum_end = (
            timed.pts if self._sum_end is None else self._sum_end
        ) + timed.picture.duration
        self._latest_end = max(self._latest_end, timed.pts + timed.picture.duration)

    def reach(self, end: int, tolerance: float) -> bool:
        """Return whether all lengths together, or that of any picture, end there."""
        return any(abs(each - end) <= tolerance for each in (self._sum_end or 0, self._latest_end))


class StreamDecoder(Closing, Generic[P]):
    """Decodes one stream of a file; see :class:`bgsoft.decode.base.Decoder`.

    Subclasses decode packets and fill frames. The first picture is the first that FFmpeg's decoder
    shows. It omits pictures that an edit list hides. It also omits those whose references are
    missing, because the stream begins inside a group of pictures.
    """

    def __init__(self, info: VideoInfo, settings: DecodeSettings | None) -> None:
        self.info = info
        self.stats = DecodeStats()
        self.events: list[Event] = []
        self._settings = settings or DecodeSettings()
        by_time = self._settings.range is None and self._settings.start_seconds > 0
        self._seeks = info.container not in NOT_SEEKABLE and (not by_time or can_seek(info))
        """Decoding may begin at a time. A range has been listed already."""
        self._container: InputContainer | None = None
        self._demux: Callable[[VideoStream], Iterator[Packet[VideoStream]]] | None = None
        self._read_error: str | None = None
        """Why reading ended before the end of the file."""
        self._restarted = False
        self._rendering = False
        """The whole input is read now, not only its beginning."""
        self._end_pts = self._shown_until = 0
        """End of the last wanted picture, and how long a player shows it, once these are known."""

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        """See :meth:`bgsoft.decode.base.Decoder.frames`.

        A frame is yielded when the next picture has been decoded, so that its end is known.
        """
        part = self._settings.range
        self._rendering = True
        waiting: Frame | None = None
        try:
            for index, timed in enumerate(self.wanted(), part.index if part else 0):
                if waiting is not None:
                    frame, waiting = waiting, None
                    frame.shown_until, frame.duration = timed.pts, timed.pts - frame.pts
                    yield frame
                waiting = Frame(
                    planes=ring.acquire(),
                    format=self.info.format,
                    index=index,
                    pts=timed.pts,
                    time_base=self.info.time_base,
                    concealed=timed.picture.is_corrupt,
                    messages=timed.picture.opaque or (),
                )
                self._write(timed.picture, waiting)
                self.stats.frames += 1
                self.stats.concealed_frames += waiting.concealed
                self.stats.repaired_pts += timed.repaired
            if waiting is not None:
                frame, waiting = waiting, None
                frame.shown_until, frame.duration = self._shown_until, self._end_pts - frame.pts
                yield frame
        finally:
            if waiting is not None:
                ring.release(waiting)

    @abstractmethod
    def _write(self, picture: P, frame: Frame) -> None:
        """Fill a frame's planes."""

    def _shown(self, from_pts: int | None) -> Iterator[P]:
        """Return the :meth:`pictures`; subclasses may process them, e.g. deinterlace."""
        return self.pictures(from_pts)

    def wanted(self) -> Iterator[TimedPicture[P]]:
        """Return the pictures of the wanted part, with rising timestamps."""
        start, end = wanted_pts(self.info, self._settings)
        last: TimedPicture[P] | None = None
        lengths, count = _Lengths(), 0
        for timed in self._timed(self._shown(start)):
            if end is not None and timed.pts >= end:
                self._end_pts = self._shown_until = timed.pts
                break
            lengths.add(timed)
            last = timed
            if start is None or timed.pts >= start:
                count += 1
                yield timed
            else:
                self.stats.passed_over += 1
        else:
            self._check_end(start, last, count, lengths)
        if end is not None and last is not None:
            longest = max(end, last.pts + self.info.nominal_ticks)
            self._end_pts = min(self._end_pts, longest)

    def _timed(self, pictures: Iterator[P]) -> Iterator[TimedPicture[P]]:
        """Return pictures with rising timestamps; report gaps and restarts of the clock."""
        ticks_per_second = 1 / self.info.time_base
        rate = self.info.frame_rate
        gap_ticks = round(ticks_per_second * _GAP_SECONDS)
        last: int | None = None
        for timed in rising_pts(
            pictures,
            frame_ticks=max(1, round(ticks_per_second / rate)) if rate else 1,
            jump_ticks=round(ticks_per_second * BACKWARD_SECONDS),
            leap_ticks=round(ticks_per_second * FORWARD_SECONDS),
        ):
            if timed.jumped:
                self._restarted = self.stats.irregular = True
                message = "the clock restarts; later frames are moved to follow on"
                self._report("repair", message, timed.pts)
            if last is not None and timed.pts - last > gap_ticks:
                seconds = float((timed.pts - last) * self.info.time_base)
                self._report("notice", f"no picture for {seconds:.0f} s", last)
            last = timed.pts
            yield timed

    def _check_end(
        self, start: int | None, last: TimedPicture[P] | None, count: int, lengths: _Lengths
    ) -> None:
        """Set the end of the last picture, and report a file that ends too early.

        Raises:
            ConfigError: The wanted part begins after the last frame.
            DecodeError: No frame can be shown.
        """
        if self._read_error:
            self._report("fault", f"cannot read the file further: {self._read_error}")
        if last is None or (start is not None and last.pts < start):
            path = self.info.path
            if start is not None:
                wanted = f"{self._settings.start_seconds:g} s"
                raise ConfigError(
                    f"cannot start at {wanted}: {path.name} has no frame from there on", path=path
                )
            raise DecodeError(
                f"cannot decode {path}: it has no intact frame", stage="decode", path=path
            )
        self._end_pts = last.pts + (last.picture.duration or self.info.nominal_ticks)
        self._shown_until = self._end_pts
        if self.info.duration_seconds is None or self._restarted:
            return  # a restarted clock makes the header's length wrong
        declared = self.info.duration_seconds
        end = self.info.pts_at(Fraction(str(declared)))
        self._shown_until = max(self._end_pts, end)
        part, same = self._settings.range, float(_SAME_SECONDS / self.info.time_base)
        frames = count + (part.index if part else 0)
        is_whole = start is None or (part is not None and not self._settings.start_seconds)
        has_all = is_whole and frames == self.info.num_frames_from_header
        ticks = last.pts + last.picture.duration - (self.info.start_pts or 0)
        seconds = float(ticks * self.info.time_base)
        lost_most = last.picture.duration > 0 and seconds < declared / 2
        if has_all or lengths.reach(end, same):
            if end > last.pts and abs(end - self._end_pts) > same:
                self._end_pts = end
        elif lost_most or ends_early(seconds, declared):
            text = f"the video ends after {seconds:.2f} s, its header says {declared:.2f} s"
            self._report("warning", f"{text}; the file may have been cut off", last.pts)
            return
        if is_whole and (short := self.info.shortage(frames)) is not None:
            self._report("warning", short, last.pts)

    def _report(self, kind: str, message: str, pts: int | None = None) -> None:
        self.events.append(Event(kind=kind, message=message, stage="decode", pts=pts))

    def pictures(self, from_pts: int | None = None) -> Generator[P, None, None]:
        """Decode to the end of the file; counts of damaged packets restart.

        Args:
            from_pts: First wanted picture; earlier ones may come out as well. None: all.

        Raises:
            OpenError: The file has changed since it was probed.
        """
        self.stats.corrupt_packets = 0
        self._read_error = None
        try:
            yield from self._read(from_pts)
        finally:
            self._close_file()

    def close(self) -> None:
        self._close_file()

    def _close_file(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _read(self, from_pts: int | None, *, threaded: bool = True) -> Iterator[P]:
        """Decode from an intact key frame at or before a pts, or from the beginning."""
        info, pts = self.info, from_pts
        if pts is None or not self._seeks:
            return self._decode(None, threaded=threaded)
        errors = self.stats.corrupt_packets
        for seconds in _SEEK_BACK_SECONDS:
            position = pts - round(seconds / info.time_base)
            if seconds and info.start_pts is not None and position <= info.start_pts:
                break
            frames = self._decode(position, threaded=threaded)
            for frame in frames:
                if frame.pts is None:
                    continue
                if frame.pts > pts:
                    break
                if frame.key_frame and not frame.is_corrupt:
                    return itertools.chain((frame,), frames)
            self.stats.corrupt_packets = errors
        return self._decode(None, threaded=threaded)

    @abstractmethod
    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[P]:
        """Decode from a pts (None: the beginning) to the end; yield nothing if seeking fails."""

    def _open(self, position: int | None) -> VideoStream | None:
        """Open the file at a pts; return None where it cannot seek there."""
        self._close_file()
        path, index, pipe = self.info.path, self.info.stream_index, self.info.pipe
        if pipe is not None and self._rendering:
            packets = rendered_packets(pipe, index)
            container, self._demux = packets.container, lambda _: packets.video()
        else:
            self._container = container = open_input(self.info.source)
            self._demux = container.demux
        stream = container.streams[index] if index < len(container.streams) else None
        if not isinstance(stream, VideoStream) or stream.codec_context is None:
            raise OpenError(f"cannot read {path}: it changed during the render", path=path)
        if position is not None:
            try:
                container.seek(position, stream=stream, backward=True)
            except av.FFmpegError:
                return None
        return stream

    def _packets(self, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
        """Return all packets with their messages; read errors are counted and skipped.

        Messages travel in FFmpeg's field «opaque», from a packet to its picture.
        """
        assert self._demux is not None
        extradata = stream.codec_context.extradata
        reader = MessageReader(self.info.codec, extradata, fields=self.info.interlaced)
        errors_in_a_row = 0
        while errors_in_a_row < MAX_READ_ERRORS:
            try:
                for packet in self._demux(stream):
                    # Empty packets (AVI's repeated frames, PyAV's last one) would end the decoder.
                    if packet.size:
                        errors_in_a_row = 0
                        messages = reader.read(packet)
                        if messages:
                            packet.opaque = messages
                        yield packet
                return
            except (av.FFmpegError, IndexError) as exc:
                # PyAV raises IndexError where a damaged MPEG-TS shows new streams midway.
                self.stats.corrupt_packets += 1
                errors_in_a_row += 1
                error = str(exc)
        self._read_error = error
