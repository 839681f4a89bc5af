"""The NVIDIA driver, asked without any of CUDA's libraries; no context is made."""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

__all__ = ["driver_problem", "driver_version"]

_DRIVER_FILE = Path("/proc/driver/nvidia/version")


@functools.cache
def driver_problem(gpu: int) -> str | None:
    """Why no work can be put on a CUDA device, or None where the driver offers it.

    Args:
        gpu: CUDA device number.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver found (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return "the NVIDIA driver does not start"
    if count.value == 0:
        return "no NVIDIA GPU found"
    if gpu >= count.value:
        return f"there is no GPU {gpu}: this machine has {count.value}"
    return None


def driver_version() -> str | None:
    """Version of the NVIDIA driver; None where there is none."""
    try:
        text = _DRIVER_FILE.read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return version.group() if version else "unknown"
