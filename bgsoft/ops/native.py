"""The host's side of the operations: a shared library, one variant per instruction set."""

from __future__ import annotations

import ctypes
import functools
import platform
from pathlib import Path

import cv2

from bgsoft.errors import BackendUnavailableError
from bgsoft.ops.build import VARIANTS, library_name

_NEEDS = {"avx512": (256,), "avx2": (11, 12), "sse4": (6, 8)}
"""What a processor must have for a variant, by OpenCV's numbers (``CpuFeatures`` in
``opencv2/core/cvdef.h``): AVX-512 as of Skylake-X, which is x86-64-v4's; AVX2 and FMA, with which
comes the rest of x86-64-v3; SSE4.1, POPCNT."""


def variant() -> str:
    """The best variant that this processor runs, e.g. ``avx2``.

    Raises:
        BackendUnavailableError: There is none.
    """
    machine = platform.machine()
    for name, _ in VARIANTS.get(machine, ()):
        if all(map(cv2.checkHardwareSupport, _NEEDS.get(name, ()))):
            return name
    raise BackendUnavailableError(f"bgsoft does not run on this processor ({machine})")


@functools.cache
def library() -> ctypes.CDLL:
    """The library for this processor.

    Raises:
        BackendUnavailableError: There is none, or the package was not built.
    """
    path = Path(__file__).parent / "lib" / library_name(platform.machine(), variant())
    try:
        return ctypes.CDLL(str(path))
    except OSError as exc:
        raise BackendUnavailableError(
            f"{path.name} cannot be loaded: install bgsoft with pip, which builds it ({exc})"
        ) from exc


def description() -> str:
    """Variant and compiler of the library, e.g. ``avx2, Clang 20.1.2``.

    Raises:
        BackendUnavailableError: As :func:`library` does.
    """
    compiler = ctypes.c_char_p.in_dll(library(), "compiler").value or b""
    return f"{variant()}, {compiler.decode().partition(' (')[0]}"
