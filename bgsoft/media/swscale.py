"""Names and options of swscale, FFmpeg's conversion of pictures, for our colours."""

from __future__ import annotations

from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation

from bgsoft.frame import FrameFormat
from bgsoft.media.probe import is_rgb
from bgsoft.records import NamedTuple

_MATRICES = {
    1: Colorspace.ITU709,
    4: Colorspace.FCC,
    5: Colorspace.ITU601,
    6: Colorspace.ITU601,
    7: Colorspace.SMPTE240M,
    9: Colorspace.BT2020,
    10: Colorspace.BT2020,
}
"""swscale's names of the H.273 matrices that :class:`bgsoft.frame.ColorInfo` knows."""
_RANGES = {int(each): each for each in (ColorRange.MPEG, ColorRange.JPEG)}
TO_PLANAR = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INP
"""Options with which swscale converts any format to planar Y'CbCr."""


class Coding(NamedTuple):
    """Range and matrix of samples, in swscale's names."""

    range: ColorRange
    matrix: Colorspace | None
    """None: they are RGB."""

    @classmethod
    def of(cls, format: FrameFormat) -> Coding:
        """Return that of a format; an unspecified matrix is guessed by height, as players do."""
        full, matrix = format.color.full_range, format.color.with_matrix(format.height).matrix
        return cls(ColorRange.JPEG if full else ColorRange.MPEG, _MATRICES[matrix])

    def of_picture(self, picture: VideoFrame) -> Coding:
        """Return that of a decoded picture, which has this one where it does not say."""
        if is_rgb(picture.format):
            return Coding(ColorRange.JPEG, None)
        full = picture.format.name.startswith("yuvj")
        range = ColorRange.JPEG if full else _RANGES.get(picture.color_range, self.range)
        return Coding(range, _MATRICES.get(picture.colorspace, self.matrix))
