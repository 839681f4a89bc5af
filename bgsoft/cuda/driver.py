"""The NVIDIA driver, asked without any of CUDA's libraries."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path

NO_GPU = "no NVIDIA GPU found"
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_only: int | None = None
"""The GPU that alone is shown to this process."""


def show_only(gpu: int) -> None:
    """Hide all GPUs but one from this process, before CUDA first looks at them.

    Some libraries touch other GPUs than the chosen one. Only for a process of our own; ``gpu``
    counts from 0 among those that are visible now.
    """
    global _only
    visible = os.environ.get(_VISIBLE)
    listed = None if visible is None else visible.split(",")
    if listed is not None and gpu >= len(listed):
        return  # it is not there: its first use says so
    os.environ[_VISIBLE] = str(gpu) if listed is None else listed[gpu]
    _only = gpu


def shown_by_parent(gpu: int | None) -> None:
    """The same, for a process whose parent has done it for both."""
    global _only
    _only = gpu


def shown_gpu() -> int | None:
    """The GPU that alone is shown, if one is."""
    return _only


def cuda_number(gpu: int) -> int:
    """CUDA's number, in this process, of the GPU that the user calls ``gpu``."""
    return 0 if gpu == _only else gpu


def shown_number(number: int) -> int:
    """The user's number of a GPU by CUDA's."""
    return number if _only is None else _only


def driver_problem(gpu: int) -> str | None:
    """Why no work can be put on a CUDA device; None where the driver offers it."""
    count, problem = _count_gpus()
    if problem is None and gpu >= count:
        return f"there is no GPU {gpu}: this machine has {count}"
    return problem


def gpu_count() -> int:
    """Number of GPUs that the driver offers."""
    return _count_gpus()[0]


@functools.cache
def _count_gpus() -> tuple[int, str | None]:
    """Return the number of GPUs and, where there are none, the reason."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no NVIDIA driver found (libcuda.so.1)"
    count = ctypes.c_int(0)
    started = driver.cuInit(0)
    if started == _NO_DEVICE:
        return 0, NO_GPU
    if started != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0, "the NVIDIA driver does not start"
    return count.value, None if count.value else NO_GPU


def open_context(gpu: int) -> None:
    """Make a device's primary context, which takes the driver half a second.

    Every CUDA library works in it, until the process ends. Where it cannot be made nothing is
    reported: its first use will fail.
    """
    if driver_problem(gpu) is not None:
        return
    driver = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(device), gpu) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def context_fault() -> str | None:
    """Why a GPU's primary context is lost for the rest of this process; None where all are well.

    After an illegal address or a failed launch, every call returns the same error.
    """
    if driver_problem(0) is not None:
        return None
    driver = ctypes.CDLL("libcuda.so.1")
    count, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    for gpu in range(count.value):
        driver.cuDevicePrimaryCtxGetState(gpu, ctypes.byref(flags), ctypes.byref(active))
        if not active.value:
            continue
        context = ctypes.c_void_p()
        fault = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
        if fault == 0:
            driver.cuCtxPushCurrent_v2(context)
            fault = driver.cuCtxSynchronize()
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
            driver.cuDevicePrimaryCtxRelease_v2(gpu)
        if fault != 0:
            return f"CUDA error {fault}: the GPU's context is lost"
    return None


def driver_version() -> str | None:
    """Version of the NVIDIA driver; None where there is none."""
    try:
        text = _DRIVER_FILE.read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return version.group() if version else "unknown"
