"""PyAV: its errors as ours, and differences between its versions."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, Protocol

import av

from bgsoft.errors import errors_as

TAG_OPTIONS: dict[str, Any] = {}
"""Arguments of ``av.open`` for tags that are no UTF-8: their bytes pass through unchanged.

PyAV 19 always does that and takes no such argument.
"""
if int(av.__version__.split(".", 1)[0]) < 19:
    TAG_OPTIONS["metadata_errors"] = "surrogateescape"

PYAV_ERRORS = (av.FFmpegError, OSError, ValueError)
"""PyAV's exceptions: FFmpeg's errors, the system's, and refusals of its own."""
DAMAGED_ERRORS = (av.error.InvalidDataError, av.error.ArgumentError, av.error.PatchWelcomeError)
"""FFmpeg's errors for a packet that a muxer or its bitstream filter cannot take."""
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
