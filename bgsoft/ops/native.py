"""The host's side of the operations: a shared library, one variant per instruction set."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def host_operation(name: str) -> Callable[..., None]:
    """Runs a kernel by its name and sample bits, e.g. ``blend_grid_8``; see calls.cpp.

    Raises:
        BackendUnavailableError: As :func:`library` does.
    """
    kernel = ctypes.c_char.in_dll(library(), f"{name}_kernel")
    make = _maker("host_operation", ctypes.c_char_p, ctypes.c_void_p)
    return make(name.encode(), ctypes.addressof(kernel))


def device_operation(
    kernel: Any, block: tuple[int, int, int], shared_bytes: int
) -> Callable[..., None]:
    """Launches a ``cupy.RawKernel`` of the current device on the current stream."""
    import cupy

    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    numbers = ctypes.c_void_p, *(ctypes.c_uint,) * 4
    make = _maker(
        "device_operation",
        *(ctypes.c_char_p, ctypes.c_void_p, *numbers, *(ctypes.py_object,) * 3),
    )
    return make(
        *(kernel.name.encode(), launch, kernel.kernel.ptr, *block, shared_bytes),
        *(cupy.ndarray, cupy.cuda.get_current_stream, cupy.cuda.driver.check_status),
    )


def _maker(name: str, *types: Any) -> Callable[..., Callable[..., None]]:
    made: Callable[..., Callable[..., None]] = ctypes.PYFUNCTYPE(ctypes.py_object, *types)(
        (name, library())
    )
    return made


def description() -> str:
    """Variant and compiler of the library, e.g. ``avx2, Clang 20.1.2``.

    Raises:
        BackendUnavailableError: As :func:`library` does.
    """
    compiler = ctypes.c_char_p.in_dll(library(), "compiler").value or b""
    return f"{variant()}, {compiler.decode().partition(' (')[0]}"
