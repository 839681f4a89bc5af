"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from bgsoft.cuda.driver import driver_problem, driver_version
from bgsoft.versions import library_versions
from bgsoft.workers import usable_cores

__all__ = ["hardware", "versions"]

_PACKAGES = (
    ("av", "av"),
    ("numpy", "numpy"),
    ("cv2", "opencv-python-headless"),
    ("onnxruntime", "onnxruntime"),
    ("onnxruntime-gpu", "onnxruntime-gpu"),
    ("cupy", "cupy-cuda12x"),
    ("cupy-cuda13x", "cupy-cuda13x"),
    ("PyNvVideoCodec", "PyNvVideoCodec"),
)


def hardware(gpu: int) -> dict[str, Any]:
    """CPU, memory, system and GPU, as the results have them.

    Args:
        gpu: CUDA device number.
    """
    reason = driver_problem(gpu)
    device: dict[str, Any] | None = None
    if reason is None:
        device, reason = _gpu(gpu)
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 1,
        "usable_cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": f"{platform.system()} {platform.release()}",
        "gpu": device,
        "gpu_reason": reason,
    }


def _gpu(gpu: int) -> tuple[dict[str, Any] | None, str | None]:
    """(description, None), or (None, why there is none)."""
    try:
        from bgsoft.selftest.gpu_info import gpu_info

        found = gpu_info(gpu, driver_version())
    except Exception as exc:  # whatever a vendor's library raises is the answer
        return None, f"{type(exc).__name__}: {exc}"
    described = {
        "name": found.name,
        "memory_bytes": found.memory_bytes,
        "driver": found.driver,
        "compute_capability": found.compute_capability,
        "cuda_runtime": found.runtime,
        "cudnn": found.cudnn,
        "tensorrt": found.tensorrt,
    }
    return described, None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of bgsoft, Python and of every library a render may use."""
    found = library_versions()
    for name, package in _PACKAGES:
        if name not in found:
            try:
                found[name] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
    return found
