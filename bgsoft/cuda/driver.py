"""Queries of the NVIDIA driver, without CUDA's libraries."""

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
_SHOWN = "BGSOFT_SHOWN_GPU"
"""Environment variable with the user's number of the only visible GPU, for this process and its
children."""


def show_only(gpu: int) -> None:
    """Hide all GPUs but one from this process, before CUDA is initialised.

    Some libraries use other GPUs than the chosen one. Call it only in a process of ours; ``gpu``
    counts from 0 among the GPUs that are visible now.
    """
    if gpu == shown_gpu():
        return
    visible = os.environ.get(_VISIBLE)
    listed = None if visible is None else visible.split(",")
    if listed is not None and gpu >= len(listed):
        return  # there is no such GPU: its first use reports that
    os.environ |= {_VISIBLE: str(gpu) if listed is None else listed[gpu], _SHOWN: str(gpu)}


def shown_gpu() -> int | None:
    """Return the only visible GPU; None if all are."""
    number = os.environ.get(_SHOWN, "")
    return int(number) if number.isdecimal() else None


def cuda_number(gpu: int) -> int:
    """Return CUDA's number, in this process, of the user's GPU number."""
    return 0 if gpu == shown_gpu() else gpu


def shown_number(number: int) -> int:
    """Return the user's number of a GPU from CUDA's."""
    shown = shown_gpu()
    return number if shown is None else shown


def driver_problem(gpu: int) -> str | None:
    """Return why a CUDA device cannot be used; None if the driver offers it."""
    count, problem = _count_gpus()
    if problem is None and gpu >= count:
        return f"there is no GPU {gpu}: this machine has {count}"
    return problem


def gpu_count() -> int:
    """Return the number of GPUs that the driver offers."""
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
        return 0, "the NVIDIA driver cannot be initialised"
    return count.value, None if count.value else NO_GPU


def open_context(gpu: int) -> None:
    """Create a device's primary context, which takes the driver half a second.

    Every CUDA library uses it until the process ends. Failures are ignored: its first use will
    report them.
    """
    if driver_problem(gpu) is not None:
        return
    driver = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(device), gpu) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def context_fault() -> str | None:
    """Return why a GPU's primary context is unusable in this process; None if it is intact.

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
    """Return the version of the NVIDIA driver; None without one."""
    try:
        text = _DRIVER_FILE.read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return version.group() if version else "unknown"
