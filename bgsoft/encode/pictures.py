"""Conversion of frames to the pictures that FFmpeg's encoders take.

8-bit semi-planar frames are passed on in their ring slot. All others are written into one picture,
which is reused.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from av.video.frame import VideoFrame

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import EncoderChoice
from bgsoft.encode.original import FineChroma, repeat
from bgsoft.frame import ColorInfo, Frame, FrameFormat, OriginalChroma
from bgsoft.media.planes import Plane, plane_views


def shared_picture(frame: Frame) -> VideoFrame:
    """Wrap an NV12 frame in a picture whose planes are the slot's own."""
    return VideoFrame.from_dlpack((frame.planes.luma, frame.planes.chroma), format="nv12")


class CopiedPictures:
    """Fills one reused picture, plane by plane.

    Args:
        choice: The pixel format and the planes. With MATTE, luma is the matte in the frames'
            range, and chroma is neutral. With COLOR_ALPHA, the matte is the alpha plane: full
            range, straight.
        format: Layout of the frames.
    """

    def __init__(self, choice: EncoderChoice, format: FrameFormat) -> None:
        self._format = format
        self._kind = choice.kind
        self._depth = choice.bit_depth
        self._dtype = np.dtype(np.uint16 if self._depth > 8 else np.uint8)
        self._picture = VideoFrame(format.width, format.height, choice.pixel_format)
        if self._kind is PictureKind.MATTE:
            for plane in self._picture.planes[1:]:
                np.frombuffer(memoryview(plane), self._dtype).fill(1 << (self._depth - 1))
        self._tables = _tables(format, choice)
        """Tables for luma and for chroma; None: samples only need a shift."""
        value = np.arange(256)
        self._alpha_table = (value << 2 | value >> 6).astype(np.uint16)
        """Table from alpha, 0–255, to the full range of ten bits."""
        self._matte_table = matte_table(coded_color(choice, format.color), self._depth)
        height, width, _ = format.chroma_shape
        # Where chroma is upsampled, it is deinterleaved here first; also where the depth changes.
        self._split = [np.empty((height, width), format.dtype) for _ in range(2)]
        self._small = np.empty(0, self._dtype)
        """Cb or Cr in the picture's depth, before it is upsampled."""
        self._fine: FineChroma | None = None

    def picture(self, frame: Frame) -> VideoFrame:
        # An encoder that still reads the last picture holds a reference to it. Then the buffers
        # are replaced and the old ones stay unchanged. No encoder here does; this makes it certain.
        self._picture.make_writable()
        planes = frame.planes
        targets = plane_views(self._picture.planes, self._dtype)
        if self._kind is PictureKind.MATTE:
            cv2.LUT(planes.alpha, self._matte_table, targets[0])
            return self._picture
        self._write(planes.luma, targets[0], self._format.shift, 0)
        original = frame.original
        if isinstance(original, OriginalChroma):
            self._fine = self._fine or FineChroma(self._format, original.fine.shape[:2])
            split, shift = self._fine.planes(frame, original), 0
        else:
            split, shift = self._split, self._format.shift
            cv2.split(planes.chroma, split)
        for source, target in zip(split, targets[1:3], strict=True):
            self._write_chroma(source, target, shift)
        if self._kind is PictureKind.COLOR_ALPHA:
            if self._depth == 8:
                np.copyto(targets[3], planes.alpha)
            else:
                cv2.LUT(planes.alpha, self._alpha_table, targets[3])
        return self._picture

    def _write_chroma(self, source: Plane, target: Plane, shift: int) -> None:
        """Write Cb or Cr, each sample repeated where the picture has more of them."""
        if target.shape == source.shape:
            self._write(source, target, shift, 1)
            return
        if self._small.shape != source.shape:
            self._small = np.empty(source.shape, self._dtype)
        self._write(source, self._small, shift, 1)
        repeat(self._small, target)

    def _write(self, source: Plane, target: Plane, shift: int, table: int) -> None:
        """Convert samples of the frames' depth, shifted left by ``shift``, to the picture's."""
        if self._tables is not None and self._format.bit_depth == 8:
            cv2.LUT(source, self._tables[table], target)
        elif self._tables is not None:
            np.take(self._tables[table], source >> shift, out=target)
        elif self._format.bit_depth == 8:
            np.copyto(target, source)
        elif self._depth == 8:
            cv2.convertScaleAbs(source, target, alpha=1 / (4 << shift))  # to nearest
        else:
            np.right_shift(source, shift, out=target)  # P010 to plain values


def coded_color(choice: EncoderChoice, color: ColorInfo) -> ColorInfo:
    """Return the colour description of an encoder's pictures."""
    limits = choice.limits_range and color.full_range
    return replace(color, full_range=False) if limits else color


def _tables(format: FrameFormat, choice: EncoderChoice) -> tuple[Plane, Plane] | None:
    """Return tables from code values of frames to those of pictures, for luma and chroma.

    Ten bits hold four times the 8-bit code value (ITU-T H.273, 8.3: limited range is scaled by
    2^(depth − 8)). In full range 255 becomes 1023.
    """
    color, coded = format.color, coded_color(choice, format.color)
    if color == coded and format.bit_depth >= choice.bit_depth:
        return None
    values = np.arange(1 << format.bit_depth)
    if color == coded:
        scale = 1023 / 255 if color.full_range else 4
        both = [values * scale] * 2
    else:  # H.273, 8.3: full range to limited
        share, unit = values / values[-1], 1 << (choice.bit_depth - 8)
        half = (values - (1 << (format.bit_depth - 1))) / values[-1]
        both = [(16 + 219 * share) * unit, (128 + 224 * half) * unit]
    kind = np.uint16 if choice.bit_depth > 8 else np.uint8
    luma, chroma = (np.round(each).astype(kind) for each in both)
    return luma, chroma


def matte_table(color: ColorInfo, depth: int) -> Plane:
    """Return a table from alpha, 0–255, to luma from black to white in a range."""
    black, white = color.luma_range(depth)
    values = np.round(black + np.arange(256) * ((white - black) / 255))
    return values.astype(np.uint16 if depth > 8 else np.uint8)
