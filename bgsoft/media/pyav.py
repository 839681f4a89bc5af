"""PyAV: its errors as ours, and differences between its versions."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, Protocol

import av
from av.video.reformatter import Colorspace, Interpolation

from bgsoft.errors import errors_as
from bgsoft.frame import FrameFormat

TAG_OPTIONS: dict[str, Any] = {}
"""Arguments of ``av.open`` for tags that are no UTF-8: their bytes pass through unchanged.

PyAV 19 always does that and takes no such argument.
"""
if int(av.__version__.split(".", 1)[0]) < 19:
    TAG_OPTIONS["metadata_errors"] = "surrogateescape"

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
TO_PLANAR = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INP
"""Options with which swscale converts any format to planar Y'CbCr."""

PYAV_ERRORS = (av.FFmpegError, OSError, ValueError)
"""PyAV's exceptions: FFmpeg's errors, the system's, and refusals of its own."""
pyav_errors_as = partial(errors_as, PYAV_ERRORS)


class _Rational(Protocol):
    @property
    def numerator(self) -> int: ...
    @property
    def denominator(self) -> int: ...


def exact(value: _Rational | None) -> Fraction | None:
    """A time base, rate or aspect of PyAV's as a fraction; None where it is not set.

    PyAV 18 answers with a ``Fraction`` or None. PyAV 19 answers with an ``AVRational``, whose
    products are rounded to 32 bits and whose unset value is 0/1.
    """
    return Fraction(value.numerator, value.denominator) if value else None


def swscale_matrix(format: FrameFormat) -> Colorspace:
    """Return swscale's name of the matrix, guessed by height where unspecified, as players do."""
    return _MATRICES[format.color.with_matrix(format.height).matrix]
