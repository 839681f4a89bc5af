"""Names for NVIDIA's profilers: the stages as NVTX ranges, while one is attached."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["NvtxRanges", "profiler_ranges"]

_PROFILER_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Set in a process that Nsight Systems or another NVTX tool has started."""


class NvtxRanges:
    """Pushes and pops a range on the calling thread; see :class:`bgsoft.pipeline.metrics.Observer`.

    Args:
        nvtx: Has ``RangePush(name)`` and ``RangePop()``.
    """

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx

    def begin(self, name: str) -> None:
        self._nvtx.RangePush(name)

    def end(self, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        self._nvtx.RangePop()

    def device_span(self, row: str, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """Nothing to tell: the profiler sees the device itself."""

    def counter(self, name: str, value: float) -> None:
        """Nothing to tell: NVTX 1's C interface, which CuPy wraps, has no counters."""


def profiler_ranges() -> NvtxRanges | None:
    """Ranges for the profiler that is attached; None where none is, or where there is no CuPy."""
    if not any(os.environ.get(name) for name in _PROFILER_VARIABLES):
        return None
    try:
        from cupy.cuda import nvtx
    except ImportError:
        return None
    return NvtxRanges(nvtx) if hasattr(nvtx, "RangePush") else None
