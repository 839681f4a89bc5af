"""The operations for the host: a shared library, one variant per instruction set."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bgsoft.errors import BackendUnavailableError
from bgsoft.ops.build import VARIANTS, library_name, runnable

_FOLDER = Path(__file__).parent / "lib"


@functools.cache
def variant() -> str:
    """Return the best variant in the package that this processor can run, e.g. ``avx2``.

    Raises:
        BackendUnavailableError: There is none.
    """
    machine = platform.machine()
    built = [
        name
        for name, *_ in VARIANTS.get(machine, ())
        if (_FOLDER / library_name(machine, name)).is_file()
    ]
    if not built:
        raise BackendUnavailableError(
            f"cannot load the CPU library: {_FOLDER} has none for {machine}; "
            "install bgsoft with pip, which compiles it"
        )
    for name, *_ in runnable(machine):
        if name in built:
            return name
    raise BackendUnavailableError(
        f"cannot load the CPU library: it was compiled for {' and '.join(built)}, which "
        "this processor lacks; install bgsoft again on this machine (pip: --force-reinstall "
        "--no-cache-dir), or with BGSOFT_VARIANTS=all for both"
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Load the library for this processor.

    Raises:
        BackendUnavailableError: There is none that it can run, or it cannot be loaded.
    """
    path = _FOLDER / library_name(platform.machine(), variant())
    try:
        # It is linked with no library. This one has exp(), and may not be loaded for all.
        ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(path))
    except OSError as exc:
        raise BackendUnavailableError(
            f"cannot load {path.name}: {exc}; install bgsoft again"
        ) from exc


def host_operation(name: str) -> Callable[..., None]:
    """Return a function that runs a kernel, e.g. ``blend_grid_8``; see calls.cpp.

    Raises:
        BackendUnavailableError: As :func:`library` does.
    """
    kernel = ctypes.c_char.in_dll(library(), f"{name}_kernel")
    make = _maker("host_operation", ctypes.c_char_p, ctypes.c_void_p)
    return make(name.encode(), ctypes.addressof(kernel))


def device_operation(
    kernel: Any, block: tuple[int, int, int], shared_bytes: int
) -> Callable[..., None]:
    """Return a function that launches a ``cupy.RawKernel`` on the current device and stream."""
    import cupy

    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    numbers = ctypes.c_void_p, *(ctypes.c_uint,) * 4
    make = _maker(
        "device_operation", *(ctypes.c_char_p, ctypes.c_void_p, *numbers, *(ctypes.py_object,) * 3)
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
    """Return variant and compiler of the library, e.g. ``avx2, Clang 20.1.2``.

    Raises:
        BackendUnavailableError: As :func:`library` does.
    """
    compiler = ctypes.c_char_p.in_dll(library(), "compiler").value or b""
    return f"{variant()}, {compiler.decode().partition(' (')[0]}"
