"""This machine: libraries, CPU, system, and the GPU as reported by driver and CUDA libraries."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from bgsoft.cuda.driver import driver_problem, driver_version
from bgsoft.errors import BackendUnavailableError, BgsoftError
from bgsoft.records import dataclass
from bgsoft.threads import usable_cores

T = TypeVar("T")

_DECODED = (("H264", 8), *product(("HEVC", "VP9", "AV1"), (8, 10)))
_ENCODED = ("h264", "hevc", "av1")
_CUDNN_LIBRARY = "libcudnn.so.9"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """A CUDA device and its libraries; None for missing ones."""

    name: str
    memory_bytes: int
    compute_capability: str
    """e.g. ``9.0``."""
    driver: str | None
    """Version of the kernel module."""
    driver_cuda: str
    """Newest CUDA version that the driver supports."""
    runtime: str
    """CUDA runtime that CuPy uses."""
    nvrtc: str | None
    """Version of the kernels' compiler."""
    cudnn: str | None
    tensorrt: str | None


def hardware(gpu: int) -> dict[str, Any]:
    """Return CPU, memory, system and GPU (None with ``gpu_reason``), as plain JSON types."""
    device: dict[str, Any] | None = None
    reason = driver_problem(gpu)
    if reason is None:
        try:
            device = asdict(gpu_info(gpu))
        except Exception as exc:  # vendors' libraries raise any type
            reason = reason_of(exc)
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 1,
        "usable_cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": f"{platform.system()} {platform.release()}",
        "gpu": device,
        "gpu_reason": reason,
    }


def reason_of(exc: Exception) -> str:
    """Format an error in one line, with its type unless it is bgsoft's."""
    kind = "" if isinstance(exc, BgsoftError) else f"{type(exc).__name__}: "
    return kind + " ".join(str(exc).split())


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpu_info(gpu: int) -> GpuInfo:
    """Describe a device.

    Raises:
        ImportError: CuPy is missing.
        BackendUnavailableError: There is no such device.
    """
    import cupy

    from bgsoft.cuda.device import CudaDevice

    device = CudaDevice(gpu)
    runtime = cupy.cuda.runtime
    digits = cupy.cuda.Device(gpu).compute_capability
    with suppress(ImportError):  # without ONNX Runtime, nothing uses them
        from bgsoft.infer.providers import preload_libraries

        preload_libraries()
    return GpuInfo(
        name=device.name,
        memory_bytes=int(runtime.memGetInfo()[1]),
        compute_capability=f"{digits[:-1]}.{digits[-1]}",
        driver=driver_version(),
        driver_cuda=_cuda_version(runtime.driverGetVersion()),
        runtime=_cuda_version(runtime.runtimeGetVersion()),
        nvrtc=attempt(lambda: ".".join(map(str, cupy.cuda.nvrtc.getVersion()))),
        cudnn=attempt(_cudnn_version),
        tensorrt=attempt(_tensorrt_version),
    )


def attempt(question: Callable[[], T]) -> T | None:
    """Return the answer; None if a vendor's library fails, which must not end a report."""
    try:
        return question()
    except Exception:
        return None


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _cudnn_version() -> str:
    library: Any = ctypes.CDLL(_CUDNN_LIBRARY)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = library.cudnnGetVersion()  # 9 and later: major · 10000 + minor · 100 + patch
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _tensorrt_version() -> str:
    from bgsoft.infer.providers import missing_provider, tensorrt_version

    missing = missing_provider("tensorrt")
    if missing is not None:
        raise OSError(missing.reason)
    return tensorrt_version()


def video_engines(gpu: int) -> dict[str, str]:
    """Return the limits of NVDEC and NVENC, e.g. ``NVDEC HEVC 10 bits`` → ``up to 8192x8192``."""
    from bgsoft.cuda.video_codec import decoder_caps, encoder_caps

    said: dict[str, str] = {}
    for codec, depth in _DECODED:
        name = f"NVDEC {codec.replace('H264', 'H.264')} {depth} bits"
        try:
            caps = decoder_caps(gpu, codec, depth)
        except BackendUnavailableError as exc:
            said[name] = f"no: {exc.message}"
            continue
        if caps is not None and caps.get("supported", 1):
            said[name] = f"up to {caps['width_max']}x{caps['height_max']}"
        elif caps is not None:
            said[name] = "no: not on this GPU"
    for codec in _ENCODED:
        try:
            made = encoder_caps(gpu, codec)
        except BackendUnavailableError as exc:
            said[f"NVENC {codec}"] = f"no: {exc.message}"
        else:
            depths = "8 and 10" if made.get("support_10bit_encode") else "8"
            size = f"{made.get('width_max')}x{made.get('height_max')}"
            said[f"NVENC {codec}"] = f"{depths} bits, up to {size}"
    return said
