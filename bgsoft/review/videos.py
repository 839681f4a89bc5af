"""The two videos of a review: times and pictures of their frames."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from bgsoft.decode.base import DecodeSettings, PtsRange
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import ConfigError, UnsupportedFormatError
from bgsoft.frame import Frame
from bgsoft.media.endpoints import EndpointKind, source_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.listing import can_seek, shows_frame
from bgsoft.media.source import read_packets
from bgsoft.rendering.host import host_planes
from bgsoft.ring import FrameRing

_NEAR_FRAMES = 48
"""Wanted frames that are closer than this are decoded in one go: to seek costs about as much."""


class ReviewVideo:
    """A video file whose frames are known by number.

    Args:
        path: The file.
        verb: For messages: what cannot be done with another file.
        remedy: For messages: what to do then.

    Raises:
        OpenError, UnsupportedFormatError: The file is not a video with timed packets, or its clock
            restarts.
    """

    def __init__(self, path: Path, verb: str = "review", remedy: str = "name one") -> None:
        source = source_for(path)
        if source.kind is not EndpointKind.FILE or source.pictures:
            raise UnsupportedFormatError(
                f"cannot {verb} {path}: it is not a video file; {remedy}", path=path
            )
        self.path = path
        self.info: VideoInfo = source.probe()
        packets = read_packets(path, self.info.stream_index)
        times = [packet.pts for packet in packets if shows_frame(packet, self.info)]
        self.pts: list[int] = sorted(pts for pts in times if pts is not None)
        """pts of all frames, in order."""
        is_steady = can_seek(self.info)
        if len(self.pts) < len(times) or not times or not is_steady:
            reason = "its packets carry no times" if is_steady else "its clock restarts midway"
            raise UnsupportedFormatError(
                f"cannot {verb} {path}: {reason}; copy it into another container, such as .mkv",
                path=path,
            )

        self._origin = self.pts[0]
        self._range: PtsRange | None = None

    def select(self, start_seconds: float, count: int) -> None:
        """Keep only the frames that a render from ``start_seconds`` on has, numbered from 0.

        Args:
            start_seconds: The time, counted from the video's first frame.
            count: Number of frames; there may be fewer.
        """
        start = self.info.pts_at(Fraction(str(start_seconds)))
        first = bisect.bisect_left(self.pts, start)
        self.pts = self.pts[first : first + count]
        if self.pts:
            self._range = PtsRange(self.pts[0], self.pts[-1] + 1, 0)

    def seconds(self, frame: int) -> float:
        """Return the time of a frame from the first one on, as regions count."""
        return float((self.pts[frame] - self._origin) * self.info.time_base)

    def stamp(self, frame: int) -> float:
        """Return :meth:`seconds` in whole milliseconds, rounded down.

        A region ``from`` this time includes the frame, and one ``to`` this time excludes it.
        """
        return math.floor((self.pts[frame] - self._origin) * self.info.time_base * 1000) / 1000

    def frames(self, wanted: Sequence[int] | None = None) -> Iterator[Frame]:
        """Decode frames in order; each is overwritten when the next is asked for.

        Args:
            wanted: Numbers of frames, rising; None: all. One that is not shown is left out.
        """
        if wanted is None:
            yield from self._decode(DecodeSettings(range=self._range), range(len(self.pts)))
            return
        parts: list[list[int]] = []
        for number in wanted:
            if parts and number - parts[-1][-1] <= _NEAR_FRAMES:
                parts[-1].append(number)
            else:
                parts.append([number])
        for part in parts:
            span = PtsRange(self.pts[part[0]], self.pts[part[-1]] + 1, part[0])
            yield from self._decode(DecodeSettings(range=span), part)

    def _decode(self, settings: DecodeSettings, wanted: Iterable[int]) -> Iterator[Frame]:
        # A frame that does not decode must not shift the numbers of those after it.
        numbers = {self.pts[number]: number for number in wanted}
        with CpuDecoder(self.path, settings, info=self.info) as decoder:
            ring = FrameRing(1, partial(host_planes, self.info.format))
            for frame in decoder.frames(ring):
                try:
                    if frame.pts in numbers:
                        frame.index = numbers[frame.pts]
                        yield frame
                finally:
                    ring.release(frame)


def frame_pairs(
    source: ReviewVideo, result: ReviewVideo, wanted: Sequence[int] | None = None
) -> Iterator[tuple[Frame, Frame]]:
    """Decode the frames that both videos show; each pair is overwritten by the next.

    Args:
        source: The source.
        result: The result.
        wanted: As for :meth:`ReviewVideo.frames`.
    """
    others = result.frames(wanted)
    other = next(others, None)
    for frame in source.frames(wanted):
        while other is not None and other.index < frame.index:
            other = next(others, None)
        if other is not None and other.index == frame.index:
            yield frame, other


def open_pair(
    source: Path, result: Path, start_seconds: float | None = None
) -> tuple[ReviewVideo, ReviewVideo]:
    """Open a source and its result.

    Args:
        source: The source.
        result: The result.
        start_seconds: Where the render of a part began; None: the whole video was rendered.

    Raises:
        ConfigError: They differ in frames or size.
        MediaError: One cannot be read.
    """
    one, other = ReviewVideo(source), ReviewVideo(result)
    if start_seconds is not None:
        one.select(start_seconds, len(other.pts))
    if len(one.pts) != len(other.pts):
        after = "" if start_seconds is None else f" from {start_seconds:g} s on"
        raise ConfigError(
            f"cannot review {result}: it has {len(other.pts)} frames, and {source} has"
            f" {len(one.pts)}{after}; name the video that it was made from, and for a part of it"
            " --report or --start"
        )
    sizes = [f"{each.info.format.width}x{each.info.format.height}" for each in (one, other)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"cannot review {result}: it is {sizes[1]}, and {source} is {sizes[0]}; name the"
            " video that it was made from"
        )
    return one, other
