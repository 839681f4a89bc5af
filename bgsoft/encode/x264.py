"""What x264 must be told to make the same pictures every time, on any machine."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

_ROWS_A_THREAD = 135
"""1080 rows make eight threads, each of them 20 MB. Eight keep up with 16 cores, on which frames
come at 145 a second at most."""
_THREADS = (2, 8)


def x264_threads(height: int) -> int:
    """Its threads for a picture of so many rows.

    Its pictures differ with their number, so cores must not decide it: on fewer cores, more threads
    take no more time (28 to 29 ms of CPU a frame of 1080 rows with 2 to 16 of them).
    """
    least, most = _THREADS
    return min(most, max(least, round(height / _ROWS_A_THREAD)))


def x264_parameters(width: int) -> str:
    """What to add to its parameters (``x264-params``) for a picture of so many columns; may be
    empty.

    Its AVX-512 code for the macroblock tree counts in what happens to lie in memory behind a row
    of macroblocks, unless their number is a multiple of eight: the pictures depended on what the
    process had done before. Without AVX-512 it takes up to a tenth more time, so it is kept where
    the number is (1280 and 1920 columns).
    """
    macroblocks = -(-width // 16)
    return "asm=AVX2" if macroblocks % 8 and _has_avx512() else ""


@cache
def _has_avx512() -> bool:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return "avx512f" in line.split()
    return False
