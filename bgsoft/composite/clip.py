"""A looped video as the background, at its own speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from bgsoft.composite.background import Background
from bgsoft.composite.color import Samples
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import ConfigError, DecodeError, MediaError, errors_as, translated
from bgsoft.frame import Array, Frame, FrameFormat, PixelLayout
from bgsoft.media.info import Crop, VideoInfo
from bgsoft.media.planes import Plane, plane_views
from bgsoft.media.probe import ALPHA_DROPPED, probe
from bgsoft.media.pyav import PYAV_ERRORS
from bgsoft.media.swscale import TO_PLANAR, Coding
from bgsoft.ops.placement import Placement

if TYPE_CHECKING:
    from bgsoft.cuda.device import CopyMeter

_PINNED_BUFFERS = 3
"""Uploads in progress before the host waits for one."""


class LoopedClip:
    """The frames of a video by time, repeated.

    The file is read forwards only; at its end, and for an earlier time, it is opened again, since
    not every container is seekable.

    Args:
        info: The video, as probed.
    """

    def __init__(self, info: VideoInfo) -> None:
        self._info = info
        self.aspects: Mapping[tuple[int, int], Fraction] = {}
        """As :attr:`bgsoft.decode.cpu.CpuDecoder.aspects`."""
        self._frame_seconds = 1 / info.frame_rate if info.frame_rate else Fraction(0)
        self._pass = self._read()
        self._offset = Fraction(0)
        self._end = Fraction(0)
        self._count = 0
        self._shown_from: Fraction | None = None
        """Start of the frame returned last."""
        self._pending = next(self._pass, None)

    def at(self, time: Fraction) -> VideoFrame | None:
        """Return the frame to show at a time; going back takes another reading from the start.

        Args:
            time: Seconds since the clip was started, 0 or more.

        Returns:
            The latest frame that starts by then; None if it is the one returned before.

        Raises:
            DecodeError: The file had frames before and has none now.
        """
        shown: VideoFrame | None = None
        if self._shown_from is not None and time < self._shown_from:
            self._shown_from = None
            self._restart(Fraction(0))
        while True:
            if self._pending is None:
                # A single frame is a still picture.
                if self._count <= 1 or time < self._offset + self._end:
                    return shown
                passed = max(1, (time - self._offset) // self._end)
                self._restart(self._offset + self._end * passed)
                continue
            start, frame = self._pending
            if self._shown_from is not None and self._offset + start > time:
                return shown
            shown, self._shown_from = frame, self._offset + start
            self._pending = next(self._pass, None)

    def _restart(self, offset: Fraction) -> None:
        """Start a pass whose first frame is shown from ``offset`` on."""
        self._offset = offset
        self._pass = self._read()
        self._pending = next(self._pass, None)
        if self._pending is None:
            path = self._info.path
            raise DecodeError(
                f"cannot read the background {path} any more", stage="composite", path=path
            )

    def _read(self) -> Iterator[tuple[Fraction, VideoFrame]]:
        """Decode the clip once; yield each frame and its time in seconds after the first frame."""
        self._count, self._end = 0, Fraction(0)
        with CpuDecoder(self._info.path, info=self._info) as decoder:
            self.aspects = decoder.aspects
            for timed in decoder.wanted():
                if not self._count:
                    first_pts = timed.pts
                start = (timed.pts - first_pts) * self._info.time_base
                length = timed.picture.duration * self._info.time_base or self._frame_seconds
                # A minimum length, so that a loop ends.
                self._end = start + (length or Fraction(1, 25))
                self._count += 1
                yield start, timed.picture

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._pass = iter(())
        self._pending = None


def cover_size(source: tuple[Fraction, Fraction], target: tuple[int, int]) -> tuple[int, int]:
    """Return the size to which a picture must be scaled to cover another one.

    Args:
        source: Width and height for display, in any unit.
        target: Width and height to be covered, pixels.

    Returns:
        Width and height, even, each at least the target's.
    """
    scale = max(target[0] / source[0], target[1] / source[1])
    width, height = (
        max(math.ceil(wanted), round(side * scale))
        for side, wanted in zip(source, target, strict=True)
    )
    return width + width % 2, height + height % 2


class ClipPlayer:
    """A video that plays behind the people, from its start at the first rendered frame.

    Each frame shows the clip's frame of the same time, or the nearest earlier one; at its end the
    clip starts again. It is turned upright, scaled to cover the frame and cropped to its middle.
    Matrix and range are converted to the frame's; primaries and transfer are not.

    Args:
        path: The clip.
        format: Format of every frame.
        began: When the clip starts, seconds of the frames' time; None: at the first frame shown.
        aspect: Width of the frame's pixels over their height.

    Raises:
        ConfigError: The clip is missing, unreadable or not a video.
    """

    def __init__(
        self,
        path: Path,
        format: FrameFormat,
        began: Fraction | None = None,
        aspect: Fraction = Fraction(1),
    ) -> None:
        with errors_as((MediaError,), ConfigError, "--background", path=path):
            info = probe(path)
            self._clip = LoopedClip(info)
        self.format, self._source, self._orientation = (
            format,
            Coding.of(info.format),
            info.orientation,
        )
        self.notices: tuple[str, ...] = ()
        """Notices about the clip, for a user."""
        if not info.format.color.looks_like(format.color):
            self.notices = (
                f"--background {path}: its colours look wrong, because it has other primaries or"
                " another transfer (HDR) than the video; convert it first",
            )
        target = (format.width, format.height)
        aspect = info.sample_aspect_ratio / aspect
        if info.orientation.swaps_axes:
            # Scaling and cropping come before turning.
            target, aspect = target[::-1], 1 / aspect
        self._target, self._aspect, self._info = target, aspect, info
        self._places: dict[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]] = {}
        """Results of :meth:`_place`."""
        self.luma: Samples = np.empty(format.luma_shape, format.dtype)
        """(H, W): luma of the current picture."""
        self.chroma: Samples = np.empty(format.chroma_shape, format.dtype)
        """(⌈H/2⌉, ⌈W/2⌉, 2): its chroma."""
        self.version = 0
        """Number of pictures of the clip shown so far."""
        self._planar = "yuv420p" if format.layout is PixelLayout.NV12 else "yuv420p10le"
        self._reformatter = VideoReformatter()
        self._first_time = began
        first = self._clip.at(Fraction(0))
        if first is None:
            raise ConfigError(f"cannot use --background {path}: it has no intact frame", path=path)
        problem = (
            f"cannot use --background {path}: {first.format.name} {first.width}x{first.height} "
            f"does not convert to {format.width}x{format.height}"
        )
        with translated(*PYAV_ERRORS, to=lambda _: ConfigError(problem, path=path)):
            self._write(first)
        if ALPHA_DROPPED in info.notices:
            self.notices += (f"--background {path}: {ALPHA_DROPPED}",)

    def show(self, frame: Frame) -> None:
        """Advance to the clip's frame for the time of ``frame``.

        Raises:
            DecodeError: The clip cannot be read any more.
        """
        time = frame.pts * frame.time_base
        if self._first_time is None:
            self._first_time = time
        error = partial(DecodeError, stage="composite", pts=frame.pts)
        with errors_as((MediaError, *PYAV_ERRORS), error, "background", reason=str):
            shown = self._clip.at(time - self._first_time)
            if shown is not None:
                self._write(shown)

    def _place(self, stored: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the scaled size of pictures of a size, and the corner of the shown part.

        The size may change in mid-stream.
        """
        if stored in self._places:
            return self._places[stored]
        info = self._info
        crop = info.crop if stored == (info.coded_width, info.coded_height) else Crop()
        size = crop.size(*stored)
        aspect = self._aspect * self._clip.aspects.get(stored, 1)
        covering = cover_size((size[0] * aspect, Fraction(size[1])), self._target)
        scales = [Fraction(*sides) for sides in zip(covering, size, strict=True)]
        wide, high = (2 * round(a * scale / 2) for a, scale in zip(stored, scales, strict=True))
        # Even, so that the crop falls between chroma samples.
        left, top = (
            min(2 * round(hidden * scale / 2) + (shown - wanted) // 4 * 2, whole - wanted)
            for hidden, scale, shown, wanted, whole in zip(
                crop[:2], scales, covering, self._target, (wide, high), strict=True
            )
        )
        self._places[stored] = (wide, high), (left, top)
        return self._places[stored]

    def _write(self, shown: VideoFrame) -> None:
        """Convert a frame of the clip into the planes."""
        source, target = self._source.of_picture(shown), Coding.of(self.format)
        (width, height), (left, top) = self._place((shown.width, shown.height))
        frame = self._reformatter.reformat(
            shown,
            width=width,
            height=height,
            format=self._planar,
            src_colorspace=source.matrix,
            dst_colorspace=target.matrix,
            interpolation=TO_PLANAR,
            src_color_range=source.range,
            dst_color_range=target.range,
            threads=1,
        )
        wanted_width, wanted_height = self._target
        luma, cb, cr = plane_views(frame.planes, self.format.dtype)
        luma = luma[top : top + wanted_height, left : left + wanted_width]
        half = np.s_[
            top // 2 : top // 2 + (wanted_height + 1) // 2,
            left // 2 : left // 2 + (wanted_width + 1) // 2,
        ]
        shift = self.format.shift
        np.left_shift(self._upright(luma), shift, out=self.luma)
        np.left_shift(self._upright(cb[half]), shift, out=self.chroma[..., 0])
        np.left_shift(self._upright(cr[half]), shift, out=self.chroma[..., 1])
        self.version += 1

    def _upright(self, plane: Plane) -> Plane:
        if self._orientation.mirror:
            plane = plane[:, ::-1]
        return np.rot90(plane, -(self._orientation.rotation // 90))

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._clip.close()


class ClipBackground(Background):
    """A player's picture behind one frame.

    Args:
        placement: Device of the frames, or the host.
        player: Shared by the backgrounds of a batch; closed with any of them.
        copies: Counts the bytes copied to a device.
    """

    def __init__(
        self, placement: Placement, player: ClipPlayer, copies: CopyMeter | None = None
    ) -> None:
        self._player, self.notices = player, player.notices
        self._version = 0
        pictures = (player.luma, player.chroma)
        self._planes = [placement.xp.empty(picture.shape, picture.dtype) for picture in pictures]
        super().__init__("blend_plate", *self._planes)
        self._uploads = _Uploads(pictures, copies) if copies else None
        if not placement.on_device:  # uploads run on the stream that frames are blended on
            self._follow()

    def advance(self, frame: Frame) -> None:
        self._player.show(frame)
        self._follow()

    def _follow(self) -> None:
        if self._version == self._player.version:
            return
        self._version = self._player.version
        pictures = (self._player.luma, self._player.chroma)
        if self._uploads:
            self._uploads.send(pictures, self._planes)
        else:
            for picture, plane in zip(pictures, self._planes, strict=True):
                np.copyto(plane, picture)

    def close(self) -> None:
        self._player.close()


class _Uploads:
    """Asynchronous copies of pictures to the current device, from pinned memory."""

    def __init__(self, pictures: Sequence[Samples], copies: CopyMeter) -> None:
        import cupy

        from bgsoft.cuda.device import pinned_array

        self._cuda, self._copies = cupy.cuda, copies
        self._turns = cycle(
            [
                (
                    [pinned_array(picture.shape, picture.dtype) for picture in pictures],
                    cupy.cuda.Event(block=True, disable_timing=True),
                )
                for _ in range(_PINNED_BUFFERS)
            ]
        )

    def send(self, pictures: Sequence[Samples], planes: Sequence[Array]) -> None:
        buffers, uploaded = next(self._turns)
        # Usually finished, unless the device is three pictures behind. An event that was never
        # recorded counts as finished.
        uploaded.synchronize()
        stream = self._cuda.get_current_stream()
        for picture, pinned, plane in zip(pictures, buffers, planes, strict=True):
            np.copyto(pinned, picture)
            plane.set(pinned, stream=stream)
            self._copies.add_h2d(pinned.nbytes)
        uploaded.record(stream)
