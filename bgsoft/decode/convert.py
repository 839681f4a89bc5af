"""Conversion of PyAV frames into ring slots: semi-planar, 4:2:0, upright.

8-bit and 10-bit samples of 4:2:0 and grey sources are copied unchanged. 4:2:2 keeps its luma, and
pairs of chroma rows are averaged. swscale converts all other formats to planar 4:2:0 first, and
pictures of another range or matrix than the stream's to these. A picture of another shape is scaled
to fit; black bars fill the rest. The source's chroma is attached to the frame where the encoder
keeps it.
"""

from __future__ import annotations

from collections.abc import Set
from fractions import Fraction

import cv2
import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from bgsoft.errors import DecodeError, translated
from bgsoft.frame import OriginalChroma, PixelLayout, Planes
from bgsoft.media.info import Crop, Orientation, VideoInfo
from bgsoft.media.planes import Plane, plane_views
from bgsoft.media.pyav import PYAV_ERRORS
from bgsoft.media.swscale import TO_PLANAR, Coding

_TALL_CHROMA = {
    PixelLayout.NV12: frozenset({"yuv422p", "yuvj422p", "yuva422p"}),
    PixelLayout.P010: frozenset({"yuv422p10le", "yuva422p10le"}),
}
"""Formats with twice the chroma rows. For 1080p, swscale takes 5 ms a frame, averaging 0.1 ms."""
_DIRECT = {
    PixelLayout.NV12: _TALL_CHROMA[PixelLayout.NV12] | {"yuv420p", "yuvj420p", "yuva420p", "gray"},
    PixelLayout.P010: _TALL_CHROMA[PixelLayout.P010] | {"yuv420p10le", "yuva420p10le", "gray10le"},
}
"""Formats that need no swscale."""
_DEPTH = {PixelLayout.NV12: "", PixelLayout.P010: "10le"}
"""Suffixes in the names of planar formats."""
_KEPT = {"4:2:2": "422", "4:4:0": "440", "4:4:4": "444"}
"""Subsampling of the attached chroma, in names of formats."""
_TURNED = {"4:2:2": "4:4:0", "4:4:0": "4:2:2"}
"""Subsampling after a quarter turn."""
_GRAY = frozenset({"gray", "gray10le"})

_LEFT_RIGHT, _UPSIDE_DOWN, _BOTH = 1, 0, -1  # OpenCV's flip codes
_TURNS: dict[tuple[bool, int], tuple[bool, int | None]] = {
    (True, 0): (False, _LEFT_RIGHT),
    (False, 180): (False, _BOTH),
    (True, 180): (False, _UPSIDE_DOWN),
    (False, 90): (True, _LEFT_RIGHT),
    (True, 90): (True, _BOTH),
    (False, 270): (True, _UPSIDE_DOWN),
    (True, 270): (True, None),
}
"""(mirror, rotation) → whether to transpose, and the flip that follows. A transposition is a
mirrored quarter turn."""


def turn_plane(source: Plane, target: Plane, orientation: Orientation) -> None:
    """Write a plane upright: mirror first, then rotate clockwise."""
    transpose, flip = _TURNS[orientation.mirror, orientation.rotation]
    if transpose:
        cv2.transpose(source, dst=target)
        source = target
    if flip is not None:
        cv2.flip(source, flip, dst=target)


def _halve(source: Plane, target: Plane) -> Plane:
    """Average pairs of rows; the last of an odd number is copied.

    The mean lies halfway between two luma rows, where 4:2:0 chroma is sited (ITU-T H.273, chroma
    sample location types 0 and 1, the most common ones).
    """
    pairs = source.shape[0] // 2
    if pairs:
        cv2.addWeighted(source[: 2 * pairs : 2], 0.5, source[1::2], 0.5, 0, dst=target[:pairs])
    if source.shape[0] % 2:
        target[pairs] = source[-1]
    return target


def fitted_size(
    size: tuple[int, int], into: tuple[int, int], pixel_aspect: Fraction
) -> tuple[int, int]:
    """Return the (width, height) of a picture scaled to fit into another without distortion.

    Args:
        size: (width, height) of the picture, pixels.
        into: (width, height) to fit into, pixels.
        pixel_aspect: Display width of the picture's pixels over that of the other's.
    """
    width, height = size[0] * pixel_aspect, size[1]
    scale = min(into[0] / width, Fraction(into[1], height))

    def rounded(length: Fraction, full: int) -> int:
        """Round to whole chroma samples; a bar narrower than one is dropped."""
        even = max(2, 2 * round(length / 2))
        return full if full - even < 2 else even

    return rounded(width * scale, into[0]), rounded(height * scale, into[1])


class PlaneWriter:
    """Writes frames of one stream into ring slots, converted to its probed size and format."""

    def __init__(self, info: VideoInfo) -> None:
        self._size = (info.coded_width, info.coded_height)
        self._crop = info.crop
        self._format = info.format
        self._tall_chroma = _TALL_CHROMA[info.format.layout]
        self._direct = _DIRECT[info.format.layout]
        depth = _DEPTH[info.format.layout]
        self._planar = f"yuv420p{depth}"
        sampling = info.sampling
        if info.orientation.swaps_axes:
            sampling = _TURNED.get(sampling, sampling)
        kept = f"{_KEPT.get(sampling, '420')}p{depth}"
        self._kept = f"yuv{kept}"
        self._kept_as_it_is = {self._kept, f"yuvj{kept}", f"yuva{kept}"}
        self._dtype = np.dtype(info.format.dtype)
        self._orientation = info.orientation
        self._turns = not info.orientation.is_identity
        upright = info.format.chroma_shape[:2]
        stored = upright[::-1] if info.orientation.swaps_axes else upright
        self._upright = (np.empty(upright, self._dtype), np.empty(upright, self._dtype))
        self._halved = (np.empty(stored, self._dtype), np.empty(stored, self._dtype))
        self.coding = Coding.of(info.format)
        """Range and matrix of the written samples."""
        self._reformatter = VideoReformatter()

    def write(
        self, frame: VideoFrame, planes: Planes, pixel_aspect: Fraction | None = None
    ) -> None:
        """Convert one frame into the luma and chroma of a slot on the host.

        Args:
            frame: A decoded software frame.
            planes: Buffers of this stream's frame format.
            pixel_aspect: Display width of the frame's pixels over that of the stream's, where its
                size differs; None: 1.

        Raises:
            DecodeError: The frame's pixel format cannot be converted.
        """
        frame = self._conform(frame, pixel_aspect, self._planar, self._direct)
        name = frame.format.name
        sources = self._shown(frame, slice(3))
        self._write_luma(sources[0], planes.luma)
        if name in _GRAY:
            planes.chroma.fill(self._format.chroma_neutral)
            return
        cb, cr = sources[1:]
        if name in self._tall_chroma:
            cb, cr = _halve(cb, self._halved[0]), _halve(cr, self._halved[1])
        self._write_chroma(cb, cr, planes.chroma)

    def original(
        self, frame: VideoFrame, planes: Planes, pixel_aspect: Fraction | None = None
    ) -> OriginalChroma:
        """Return the chroma of a frame at the stream's own resolution.

        Arguments and errors as :meth:`write`, which must have filled the planes.
        """
        frame = self._conform(frame, pixel_aspect, self._kept, self._kept_as_it_is)
        stored = self._shown(frame, slice(1, 3))
        if self._turns:
            swapped = -1 if self._orientation.swaps_axes else 1
            upright = [np.empty(plane.shape[::swapped], self._dtype) for plane in stored]
            for source, target in zip(stored, upright, strict=True):
                turn_plane(source, target, self._orientation)
            stored = upright
        return OriginalChroma(chroma=planes.chroma.copy(), fine=cv2.merge(stored))

    def _shown(self, frame: VideoFrame, which: slice) -> list[Plane]:
        """Return planes of a picture as stored, without cropped margins."""
        planes = plane_views(frame.planes[which], self._dtype)
        if self._crop == Crop():
            return planes
        width, height = self._size
        left, top, right, bottom = self._crop
        shown = []
        for plane in planes:
            across, down = -(-width // plane.shape[1]), -(-height // plane.shape[0])
            rows = slice(top // down, -(-(height - bottom) // down))
            shown.append(plane[rows, left // across : -(-(width - right) // across)])
        return shown

    def _write_luma(self, source: Plane, target: Plane) -> None:
        if self._turns:
            turn_plane(source, target, self._orientation)
            source = target
        if self._format.shift:
            np.left_shift(source, self._format.shift, out=target)
        elif source is not target:
            target[...] = source

    def _write_chroma(self, cb: Plane, cr: Plane, target: Plane) -> None:
        if self._turns:
            turn_plane(cb, self._upright[0], self._orientation)
            turn_plane(cr, self._upright[1], self._orientation)
            cb, cr = self._upright
        cv2.merge((cb, cr), dst=target)
        if self._format.shift:
            np.left_shift(target, self._format.shift, out=target)

    def _conform(
        self, frame: VideoFrame, pixel_aspect: Fraction | None, planar: str, direct: Set[str]
    ) -> VideoFrame:
        """Return the frame in a planar format, with the stream's shape, range and matrix.

        It is unchanged if it has them.
        """
        width, height = stored = frame.width, frame.height
        coding = self.coding.of_picture(frame)
        if stored != self._size:
            width, height = fitted_size(stored, self._size, pixel_aspect or Fraction(1))
        elif frame.format.name in direct and coding == self.coding:
            return frame
        problem = f"cannot convert pixel format {frame.format.name} to {planar}"
        with translated(
            *PYAV_ERRORS, to=lambda _: DecodeError(problem, stage="decode", pts=frame.pts)
        ):
            picture = self._reformatter.reformat(
                frame,
                width=width,
                height=height,
                format=planar,
                src_colorspace=coding.matrix,
                dst_colorspace=self.coding.matrix,
                interpolation=TO_PLANAR,
                src_color_range=coding.range,
                dst_color_range=self.coding.range,
                threads=1,
            )
        return picture if (width, height) == self._size else self._between_bars(picture)

    def _between_bars(self, picture: VideoFrame) -> VideoFrame:
        """Centre a planar picture in a black one of the stream's size."""
        whole = VideoFrame(*self._size, picture.format.name)
        shift = self._format.shift
        black = self._format.luma_range[0] >> shift, self._format.chroma_neutral >> shift
        views = plane_views(whole.planes, self._dtype), plane_views(picture.planes, self._dtype)
        for number, (rows, inner) in enumerate(zip(*views, strict=True)):
            rows.fill(black[min(number, 1)])
            # The offsets in luma are even, so that chroma stays aligned.
            pair = (
                (2, 2)
                if number == 0
                else (whole.format.chroma_height(2), whole.format.chroma_width(2))
            )
            top = (whole.height - picture.height) // 4 * pair[0]
            left = (whole.width - picture.width) // 4 * pair[1]
            rows[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
        return whole
