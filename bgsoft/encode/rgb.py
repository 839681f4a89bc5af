"""Frames as R'G'B' arrays: for Python callers, picture files and previews."""

from __future__ import annotations

from typing import Any

import numpy as np
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from numpy.typing import NDArray

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import EncoderChoice
from bgsoft.encode.pictures import CopiedPictures
from bgsoft.errors import EncodeError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.pyav import pyav_errors_as
from bgsoft.media.swscale import Coding
from bgsoft.settings.config import Codec

EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
"""Within 1 of 255 of the equations of ITU-T H.273, with linearly interpolated chroma."""


class RgbPictures:
    """Converts frames to R'G'B', as a decoder of a lossless output would.

    Args:
        format: Layout of the frames.
        kind: Picture to make: the colour, or the matte.
        interpolation: Flags of swscale; bicubic alone is the default of FFmpeg and OpenCV.
        blue_first: B'G'R', as in OpenCV.
        depth: Bits of a sample, 8 or 16. None: 8, or 16 for deeper sources with red first.
    """

    def __init__(
        self,
        format: FrameFormat,
        kind: PictureKind = PictureKind.COLOR,
        interpolation: Interpolation = Interpolation.BICUBIC,
        *,
        blue_first: bool = False,
        depth: int | None = None,
    ) -> None:
        deep = format.bit_depth > 8 and kind is not PictureKind.MATTE
        choice = EncoderChoice(
            codec=Codec.FFV1,
            encoder="none",
            pixel_format="yuv420p10le" if deep else "yuv420p",
            bit_depth=10 if deep else 8,
            kind=PictureKind.MATTE if kind is PictureKind.MATTE else PictureKind.COLOR,
        )
        self._pictures = CopiedPictures(choice, format)
        if depth is None:
            depth = 16 if deep and not blue_first else 8
        self._reformatter, coding = VideoReformatter(), Coding.of(format)
        self._arguments: dict[str, Any] = {
            "format": f"{'bgr' if blue_first else 'rgb'}{'48le' if depth == 16 else '24'}",
            "interpolation": interpolation,
            "src_colorspace": coding.matrix,
            "src_color_range": coding.range,
            "dst_color_range": ColorRange.JPEG,
            "threads": 1,
        }

    def picture(self, frame: Frame) -> NDArray[Any]:
        """Return a frame on the host as a new (H, W, 3) array.

        Raises:
            EncodeError: swscale fails.
        """
        with pyav_errors_as(
            EncodeError, "cannot convert a frame to RGB", stage="encode", pts=frame.pts
        ):
            made = self._reformatter.reformat(self._pictures.picture(frame), **self._arguments)
        return np.ascontiguousarray(made.to_ndarray())
