"""Decoding on the CPU with FFmpeg's libraries, through PyAV."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from av.video.frame import VideoFrame

from bgsoft.decode.base import DecodeSettings, DecodeStats
from bgsoft.decode.convert import PlaneWriter
from bgsoft.decode.deinterlace import Deinterlacer
from bgsoft.decode.reader import FrameReader
from bgsoft.decode.timestamps import RisingPts, Stamped
from bgsoft.errors import ConfigError, DecodeError
from bgsoft.frame import Frame
from bgsoft.media.probe import probe
from bgsoft.pipeline.ring import FrameRing
from bgsoft.report import Event

__all__ = ["CpuDecoder"]

_JUMP_SECONDS = 1
"""A clock that steps back by this much has been restarted; less is jitter."""
_GAP_SECONDS = 10
"""Time without a picture that is worth telling: damage, or a clock that jumps forward."""
_SHORT_SECONDS = 1.0
_SHORT_SHARE = 0.05
"""A video that ends earlier than its header says, by both of these, is told of."""


class _Picture(NamedTuple):
    """A progressive picture, and the decoded frame that it was made from."""

    frame: VideoFrame
    origin: VideoFrame
    """Has the pts, duration and damage mark; the same frame unless deinterlaced."""


class CpuDecoder:
    """Decodes a file's video stream into ring slots on the host.

    Args:
        path: A local video file.
        settings: What part of it, and with how many threads.

    Raises:
        OpenError: The file cannot be opened or has no decodable video.
        UnsupportedFormatError: It is no video, or no decoder exists for it.
    """

    def __init__(self, path: Path, settings: DecodeSettings | None = None) -> None:
        self.info = probe(path)
        self.stats = DecodeStats()
        self.events: list[Event] = []
        """Repairs that the user should know of, such as a file that ends early."""
        self._settings = settings or DecodeSettings()
        self._reader = FrameReader(self.info, self._settings.threads)

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        """See :meth:`bgsoft.decode.base.Decoder.frames`; each call starts anew, and adds to stats.

        Raises:
            DecodeError: No frame lies in the wanted stretch of time.
        """
        writer = PlaneWriter(self.info)
        corrupt_before = self.stats.corrupt_packets
        for index, shown in enumerate(self._wanted()):
            self.stats.corrupt_packets = corrupt_before + self._reader.corrupt_packets
            planes = ring.acquire()
            try:
                writer.write(shown.item.frame, planes)
                frame = Frame(
                    planes=planes,
                    format=self.info.format,
                    index=index,
                    pts=shown.pts,
                    time_base=self.info.time_base,
                    duration=shown.item.origin.duration,
                    concealed=shown.item.origin.is_corrupt,
                )
            except BaseException:
                ring.release(planes)
                raise
            self.stats.frames += 1
            self.stats.concealed_frames += frame.concealed
            self.stats.repaired_pts += shown.repaired
            yield frame
        self.stats.corrupt_packets = corrupt_before + self._reader.corrupt_packets

    def _start_pts(self) -> int | None:
        """First pts wanted; None: from the beginning."""
        start = self._settings.start_seconds
        return None if start <= 0 else self._pts_at(start)

    def _end_pts(self) -> int | None:
        """First pts that is too late; None: there is none."""
        if self._settings.duration_seconds is None:
            return None
        # Added as written in decimal, so that 0.1 + 0.2 is the frame at 0.3.
        start = Fraction(str(max(0.0, self._settings.start_seconds)))
        return self._pts_at(start + Fraction(str(self._settings.duration_seconds)))

    def _pts_at(self, seconds: float | Fraction) -> int:
        """The first pts at or after a time counted from the first frame."""
        ticks = Fraction(str(seconds)) / self.info.time_base
        return (self.info.start_pts or 0) + math.ceil(ticks)

    def _timed(self, from_pts: int | None) -> Iterator[Stamped[_Picture]]:
        """Progressive pictures with timestamps that rise."""
        ticks_per_second = 1 / self.info.time_base
        rate = self.info.frame_rate
        rising = RisingPts[_Picture](
            frame_ticks=round(ticks_per_second / rate) if rate else 1,
            jump_ticks=round(ticks_per_second * _JUMP_SECONDS),
        )
        gap_ticks = round(ticks_per_second * _GAP_SECONDS)
        last: int | None = None
        for picture in self._progressive(from_pts):
            origin = picture.origin
            for stamped in rising.push(picture, origin.pts, origin.dts, origin.duration):
                if stamped.jumped:
                    message = "the clock jumps back; later frames are moved to follow on"
                    self._event("repair", message, stamped.pts)
                if last is not None and stamped.pts - last > gap_ticks:
                    seconds = float((stamped.pts - last) * self.info.time_base)
                    self._event("notice", f"no picture for {seconds:.0f} s", last)
                last = stamped.pts
                yield stamped
        yield from rising.flush()

    def _progressive(self, from_pts: int | None) -> Iterator[_Picture]:
        """Deinterlaced where needed, as decoded otherwise."""
        deinterlacer: Deinterlacer | None = None
        size = (self.info.coded_width, self.info.coded_height)
        for frame in self._reader.frames(from_pts):
            if (frame.width, frame.height) != size:
                size = (frame.width, frame.height)
                self._event(
                    "repair", f"picture size changes to {size[0]}x{size[1]}: rescaled", frame.pts
                )
            if deinterlacer is None and frame.interlaced_frame:
                deinterlacer = Deinterlacer(self.info.time_base)
            if deinterlacer is None:
                yield _Picture(frame, frame)
            else:
                for picture, origin in deinterlacer.push(frame):
                    yield _Picture(picture, origin)
        if deinterlacer is not None:
            for picture, origin in deinterlacer.flush():
                yield _Picture(picture, origin)

    def _wanted(self) -> Iterator[Stamped[_Picture]]:
        """The frames inside the wanted stretch of time."""
        start, end = self._start_pts(), self._end_pts()
        last: Stamped[_Picture] | None = None
        for shown in self._timed(start):
            if end is not None and shown.pts >= end:
                return
            last = shown
            if start is None or shown.pts >= start:
                yield shown
        self._check_end(start, last)

    def _check_end(self, start: int | None, last: Stamped[_Picture] | None) -> None:
        """Record where a file was read to its end but ends too early.

        Raises:
            ConfigError: The wanted part begins after the last frame.
            DecodeError: There was no frame to show.
        """
        if self._reader.read_error:
            self._event("fault", f"the file cannot be read further ({self._reader.read_error})")
        if last is None or (start is not None and last.pts < start):
            path = self.info.path
            if start is not None:
                raise ConfigError(
                    f"{path.name}: no frame lies at or after {self._settings.start_seconds:g} s",
                    path=path,
                )
            raise DecodeError(f"{path}: no frame could be decoded", stage="decode", path=path)
        if self.info.duration_seconds is None:
            return
        ticks = last.pts + last.item.origin.duration - (self.info.start_pts or 0)
        seconds = float(ticks * self.info.time_base)
        missing = self.info.duration_seconds - seconds
        if missing > max(_SHORT_SECONDS, _SHORT_SHARE * self.info.duration_seconds):
            self._event(
                "notice",
                f"the video ends after {seconds:.2f} s, its header says "
                f"{self.info.duration_seconds:.2f} s; the file may have been cut off",
                last.pts,
            )

    def _event(self, kind: str, message: str, pts: int | None = None) -> None:
        self.events.append(Event(kind=kind, message=message, stage="decode", pts=pts))

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
