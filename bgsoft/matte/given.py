"""Mattes made by another tool: reading, matching to frames, and merging with our own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeAlias

import cv2
import numpy as np
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.closing import Closing
from bgsoft.decode.base import DecodeSettings, PtsRange
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.decode.stills import read_samples
from bgsoft.errors import (
    ConfigError,
    DecodeError,
    MediaError,
    OpenError,
    UnsupportedFormatError,
    errors_as,
)
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.media.endpoints import source_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.listing import NotListedError, list_frames
from bgsoft.media.planes import plane_views
from bgsoft.media.probe import ALPHA_DROPPED, has_alpha, is_rgb
from bgsoft.media.pyav import PYAV_ERRORS
from bgsoft.media.sequence import gaps, numbers
from bgsoft.ops.placement import Placement
from bgsoft.settings.config import MatteMatch, MatteMode, SegmentConfig

Opacity: TypeAlias = NDArray[np.uint8]
"""(h, w), 255 = person."""
_Numbered: TypeAlias = tuple[int, Fraction, Fraction, Opacity]
"""Number, start and end of a matte in seconds, and its picture."""

_MAX_ASPECT = 1.03
"""Maximum factor between the display aspect ratios of a matte and a frame of another size.

Other tools round sizes to multiples of up to 16 samples."""

_ROUNDING_SECONDS = Fraction(1, 100)
"""How early a matte may be taken: containers round times, and programs frame rates. 29.97 in place
of 30000/1001 is 3.6 ms in an hour."""
_LUMA_FIRST = ("gray", "yuv4", "yuvj4", "nv12", "nv21")
"""Beginnings of the names of pixel formats whose first plane is luma."""
_FULL_RANGE = np.rint(((np.arange(256) - 16) * 255 / 219).clip(0, 255)).astype(np.uint8)
"""Limited range (ITU-T H.273) → full range. It equals swscale: 1.0 ms in place of 1.4 at 1080p."""


class MatteReader(Closing):
    """Reader of the mattes in a video or in pictures, in the order of the video's frames.

    The matte is the alpha channel if there is one, else the brightness. Reading begins with the
    matte of the first frame that is asked for, which may be in the middle of the video.

    Args:
        config: The file, and how its mattes are matched to frames.
        info: The video that the mattes belong to.
        rate: Frames per second of pictures; None: 25.
        threads: Threads that decode a video of mattes.

    Raises:
        ConfigError: The file cannot be read, or its picture has another shape.
    """

    def __init__(
        self, config: SegmentConfig, info: VideoInfo, rate: float | None = None, *, threads: int = 1
    ) -> None:
        assert config.matte_in is not None
        self.path = Path(config.matte_in)
        self._by_time = config.matte_match is MatteMatch.TIME
        self._video, self._size = info, (info.format.width, info.format.height)
        with errors_as((MediaError,), ConfigError, "--matte-in", path=self.path):
            self._info = source_for(self.path).probe(rate=rate)
        self._check()
        self.notices = self._numbering()
        """Conversions of the file that the user should know of."""
        self._threads = threads
        self._pending: Iterator[_Numbered] | None = None
        """The next mattes; None: none was asked for yet."""
        self._count = 0
        """Number of mattes up to the last that was read."""
        self._ahead: tuple[Fraction, Opacity] | None = None
        self._shown: Opacity | None = None
        self._rate = self._info.frame_rate or Fraction(25)
        self._step = 1 / self._rate
        other = 1 / info.frame_rate if info.frame_rate else self._step
        self._tolerance = min(self._step / 4, other / 4, _ROUNDING_SECONDS)
        self._end = Fraction(0)
        """End time of the last matte that was read."""

    def _check(self) -> None:
        text = ""
        is_unread = (
            ALPHA_DROPPED in self._info.notices
            and self._info.codec in ("vp8", "vp9", "hevc")
            and not has_alpha(VideoFormat(self._info.pixel_format))  # FFmpeg 9 reads it of HEVC
        )
        if is_unread:
            text = "bgsoft cannot read the alpha channel of VP8, VP9 and HEVC; convert it to FFV1"
        elif self._info.codec == "gif":  # FFmpeg decodes every GIF with an alpha channel
            text = "a GIF does not state whether it has an alpha channel; convert it to grey FFV1"
        if text:
            raise ConfigError(f"cannot use --matte-in {self.path}: {text}", path=self.path)
        misfit = self._misfit(self._info.format.width, self._info.format.height)
        if misfit is not None:
            raise ConfigError(f"cannot use --matte-in {self.path}: {misfit}")

    def _misfit(self, own_width: int, own_height: int) -> str | None:
        """Describe how the proportions of a picture differ from the frame's; None: they agree."""
        width, height = self._size
        if (own_width, own_height) == self._size:
            return None
        shape = own_width * self._info.sample_aspect_ratio / own_height
        wanted = width * self._video.sample_aspect_ratio / height
        if 1 / _MAX_ASPECT <= shape / wanted <= _MAX_ASPECT:
            return None
        return (
            f"its picture of {own_width}x{own_height} is shown at {float(shape):.2f}:1, but the"
            f" video of {width}x{height} at {float(wanted):.2f}:1"
        )

    def _numbering(self) -> tuple[str, ...]:
        """Check the numbers of pictures against those of the video; return a notice of gaps."""
        mattes, frames = self._info.stills, self._video.stills
        own, others = numbers(self.path, mattes), numbers(self._video.path, frames)
        for number, (one, other) in enumerate(zip(own, others, strict=False)):
            if one - own[0] != other - others[0] and not self._by_time:
                raise ConfigError(
                    f"cannot use --matte-in {self.path}: {mattes[number].name} would be the matte"
                    f" of {frames[number].name}; the numbers of both must have the same gaps"
                )
        notice = gaps(self.path, mattes) if self._by_time or not others else None
        return () if notice is None else (f"--matte-in {self.path}: {notice}",)

    def opacity(self, frame: Frame) -> Opacity:
        """Return the matte of the next frame, (H, W) of the frame.

        Raises:
            DecodeError: The frame has no matte, or the file cannot be read.
        """
        error = partial(DecodeError, stage="segment", pts=frame.pts, path=self.path)
        with errors_as((MediaError, *PYAV_ERRORS), error, f"--matte-in {self.path}", reason=str):
            if self._pending is None:
                self._pending = self._begin(frame)
            if self._by_time:
                self._read_until(frame)
            else:
                while self._count <= frame.index and self._read():
                    pass
        if self._shown is None or (not self._by_time and self._count <= frame.index):
            raise error(f"--matte-in: {self._shortage()}")
        return self._shown

    def check_end(self, frames: int) -> None:
        """Check, after a whole video, that there is a frame for each matte.

        Args:
            frames: Number of frames of the video.

        Raises:
            DecodeError: There are more mattes than frames, or the file cannot be read.
        """
        if self._by_time:
            return
        while self._read():
            pass
        if self._count != frames:
            text = f"{self.path} contains {self._count} mattes, but the video {frames} frames"
            raise DecodeError(f"cannot use --matte-in: {text}", stage="segment", path=self.path)

    def _shortage(self) -> str:
        if self._by_time:
            return f"{self.path} ends at {float(self._end):.2f} s, before the video"
        total = self._video.estimated_frames
        of = "more" if total is None else f"about {total}"
        return f"{self.path} contains {self._count} mattes, but the video {of} frames"

    def _read(self) -> bool:
        found = None if self._pending is None else next(self._pending, None)
        if found is None:
            return False
        number, start, self._end, opacity = found
        self._count = number + 1
        self._ahead = start, opacity
        if not self._by_time:
            self._shown = self._sized(opacity)
        return True

    def _read_until(self, frame: Frame) -> None:
        """Advance to the last matte that starts no later than a frame."""
        time = self._time(frame)
        newest = None
        while self._ahead is not None or self._read():
            assert self._ahead is not None
            start, opacity = self._ahead
            if start > time + self._tolerance:
                break
            newest, self._ahead = opacity, None
        if newest is not None:
            self._shown = self._sized(newest)
        elif self._ahead is None and time >= self._end + self._tolerance:
            self._shown = None

    def _sized(self, opacity: Opacity) -> Opacity:
        width, height = self._size
        if opacity.shape == (height, width):
            return np.ascontiguousarray(opacity)
        smaller = opacity.shape[0] >= height and opacity.shape[1] >= width
        method = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(opacity, (width, height), interpolation=method), np.uint8)

    def _time(self, frame: Frame) -> Fraction:
        """Return the time of a frame in seconds from the video's first one."""
        return (frame.pts - (self._video.start_pts or 0)) * frame.time_base

    def _begin(self, frame: Frame) -> Iterator[_Numbered]:
        """Return the mattes from that of a frame on."""
        until = self._time(frame) + self._tolerance
        if self._info.stills:
            first = int(until * self._rate) if self._by_time else frame.index
            return self._pictures(min(first, len(self._info.stills) - 1))
        if not (until > self._step if self._by_time else frame.index):
            return self._frames()
        try:
            pts = list_frames(self._info).pts
        except NotListedError:
            return self._frames()
        last = bisect_right(pts, (self._info.start_pts or 0) + until / self._info.time_base) - 1
        first = max(0, min(last if self._by_time else frame.index, len(pts) - 1))
        return self._frames(PtsRange(pts[first], None, first))

    def _pictures(self, first: int) -> Iterator[_Numbered]:
        for number, path in enumerate(self._info.stills[first:], first):
            opacity = _opacity_in(path)
            misfit = self._misfit(*opacity.shape[::-1])
            if misfit is not None:
                raise OpenError(f"cannot use {path}: {misfit}", path=path)
            yield number, number / self._rate, (number + 1) / self._rate, opacity

    def _frames(self, part: PtsRange | None = None) -> Iterator[_Numbered]:
        reformatter = VideoReformatter()
        settings = DecodeSettings(range=part, threads=self._threads)
        with CpuDecoder(self.path, settings, info=self._info) as decoder:
            for number, timed in enumerate(decoder.wanted(), part.index if part else 0):
                if part is not None and number == part.index and timed.pts != part.first:
                    yield from self._frames()  # its number is known only from the beginning
                    return
                if decoder.stats.corrupt_packets:
                    break
                start = (timed.pts - (self._info.start_pts or 0)) * self._info.time_base
                end = start + max(timed.picture.duration * self._info.time_base, self._step)
                opacity = self._opacity_of(timed.picture, reformatter)
                yield number, start, end, self._upright(opacity)
            if decoder.stats.corrupt_packets:
                raise DecodeError("it is damaged")

    def _opacity_of(self, frame: VideoFrame, reformatter: VideoReformatter) -> Opacity:
        components = frame.format.components
        if len(components) in (2, 4) and components[-1].is_alpha:
            return _plane(reformatter.reformat(frame, format="yuva420p"), 3)
        full = is_rgb(frame.format) or self._info.format.color.full_range
        if frame.format.name.startswith(_LUMA_FIRST) and components[0].bits == 8:
            luma = plane_views(frame.planes[:1], "uint8")[0]
            return luma.copy() if full else np.asarray(cv2.LUT(luma, _FULL_RANGE), np.uint8)
        gray = reformatter.reformat(
            frame,
            format="gray",
            src_color_range=ColorRange.JPEG if full else ColorRange.MPEG,
            dst_color_range=ColorRange.JPEG,
        )
        return _plane(gray, 0)

    def _upright(self, plane: Opacity) -> Opacity:
        left, top, right, bottom = self._info.crop
        plane = plane[top : plane.shape[0] - bottom, left : plane.shape[1] - right]
        if self._info.orientation.mirror:
            plane = plane[:, ::-1]
        return np.rot90(plane, -(self._info.orientation.rotation // 90))

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._pending = iter(())


def _opacity_in(path: Path) -> Opacity:
    """Return the matte in a picture file."""
    facts, pixels, _ = read_samples(path)
    if pixels.ndim == 3 and pixels.shape[2] == 4 and not facts.is_cmyk:  # OpenCV adds alpha to it
        pixels = pixels[..., 3]
    elif facts.has_side_alpha:
        text = "bgsoft cannot read its alpha channel; convert it to an RGBA PNG"
        raise UnsupportedFormatError(f"cannot read {path}: {text}", path=path)
    elif pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    if pixels.dtype == np.uint16:
        pixels = pixels >> 8
    return np.asarray(pixels, np.uint8)


def _plane(frame: VideoFrame, number: int) -> Opacity:
    return plane_views(frame.planes, "uint8")[number].copy()


class GivenSegmenter:
    """A ``Segmenter`` that returns the mattes of a reader instead of a model's masks.

    Args:
        reader: The mattes; closed with this object.
        placement: Host or device that holds the frames.
    """

    def __init__(self, reader: MatteReader, placement: Placement) -> None:
        self.name = reader.path.name
        self._reader, self._placement = reader, placement

    def start(self) -> None:
        """Do nothing: there is no model to run."""

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """Do nothing: mattes are not read ahead."""

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """Return the mattes of frames, each (H, W) uint8 on the side of the frames.

        Raises:
            DecodeError: A frame has no matte.
        """
        return [self._placement.xp.asarray(self._reader.opacity(frame)) for frame in frames]

    def reset(self) -> None:
        """Do nothing: each matte is independent of the others."""

    def refresh(self) -> None:
        """Do nothing: there is no state."""

    def close(self) -> None:
        self._reader.close()


class MatteMerger(Closing):
    """Given mattes combined with our own.

    Args:
        reader: The given mattes; closed with this object.
        mode: ``max`` or ``min``.
        format: Format of the frames.
        placement: Host or device that holds the frames.
    """

    def __init__(
        self, reader: MatteReader, mode: MatteMode, format: FrameFormat, placement: Placement
    ) -> None:
        self._reader, self._placement = reader, placement
        self._merge = placement.xp.maximum if mode is MatteMode.MAX else placement.xp.minimum
        self._reducer = alpha_reducer(format, placement)

    def apply(self, frames: Sequence[Frame], mattes: Sequence[Matte]) -> None:
        """Merge the mattes of consecutive frames, in place.

        Raises:
            DecodeError: A frame has no given matte.
        """
        for frame, matte in zip(frames, mattes, strict=True):
            given = self._placement.xp.asarray(self._reader.opacity(frame))
            self._merge(matte.alpha, given, out=matte.alpha)
            self._reducer.reduce(matte.alpha, matte.reduced)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._reader.close()
