"""PyAV: its errors as ours, and what PyAV 18 and PyAV 19 answer differently."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, Protocol

import av

from bgsoft.errors import errors_as

_MAJOR = int(av.__version__.split(".", 1)[0])

TAG_OPTIONS: dict[str, Any] = {} if _MAJOR >= 19 else {"metadata_errors": "surrogateescape"}
"""Arguments of ``av.open`` for tags that are no UTF-8: their bytes pass through unchanged.

PyAV 19 always does that and takes no such argument.
"""


PYAV_ERRORS = (av.FFmpegError, OSError, ValueError)
"""What PyAV raises: FFmpeg's errors, the system's, and refusals of its own."""
pyav_errors_as = partial(errors_as, PYAV_ERRORS)
""":func:`bgsoft.errors.errors_as` of PyAV's."""


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
