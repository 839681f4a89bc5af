"""Records what a pipeline does, for Perfetto (https://ui.perfetto.dev) and ``chrome://tracing``;
names its stages to NVIDIA's profilers.

The file is the Trace Event Format's JSON object: complete events (``X``) on a row for each thread
and device stream, counters (``C``), instants (``i``) and the rows' names (``M``). Times are
microseconds since the process began.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bgsoft.outputs import write_whole
from bgsoft.pipeline.metrics import Observer
from bgsoft.startup import Span, process_start_ns

__all__ = ["NvtxRanges", "TraceRecorder", "profiler_ranges"]

_PROFILER_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Set in a process that Nsight Systems or another NVTX tool has started."""

_HOST, _DEVICE, _START = 1, 2, 3
"""Process numbers in the file: one group of rows each."""
_MAX_EVENTS = 1_000_000
"""About 150 MB of memory, and the most that the viewers take with ease: an hour of video."""


class _Span(NamedTuple):
    group: int
    row: int
    name: str
    started_ns: int
    ended_ns: int
    call: int


class _Count(NamedTuple):
    name: str
    at_ns: int
    value: float


class _Instant(NamedTuple):
    row: int
    name: str
    at_ns: int


class TraceRecorder:
    """Keeps every event in memory until :meth:`write`. Thread-safe.

    Args:
        also: Another observer that is told the same.
        max_events: What comes after so many is counted, but not kept.
    """

    def __init__(self, also: Observer | None = None, max_events: int = _MAX_EVENTS) -> None:
        self._also = also
        self._max = max_events
        self._start_ns = process_start_ns()
        # Appending to a list is atomic: recording takes no lock.
        self._events: list[_Span | _Count | _Instant] = []
        self._threads: dict[int, str] = {}
        self._device_rows: dict[str, int] = {}
        self._start_rows: dict[str, int] = {}
        self.dropped = 0
        """Events that found no room."""

    def begin(self, name: str) -> None:
        """See :class:`bgsoft.pipeline.metrics.Observer`, as for the next three."""
        if self._also is not None:
            self._also.begin(name)

    def end(self, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        if self._also is not None:
            self._also.end(name, started_ns, ended_ns, call)
        self._keep(_Span(_HOST, self._thread(), name, started_ns, ended_ns, call))

    def device_span(self, row: str, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        number = self._device_rows.setdefault(row, len(self._device_rows) + 1)
        self._keep(_Span(_DEVICE, number, name, started_ns, ended_ns, call))

    def counter(self, name: str, value: float) -> None:
        self._keep(_Count(name, time.perf_counter_ns(), value))

    def instant(self, name: str) -> None:
        """Something happened now, in the calling thread."""
        self._keep(_Instant(self._thread(), name, time.perf_counter_ns()))

    def add_start(self, spans: Iterable[Span]) -> None:
        """What was done before the first frame, on a row for each thread."""
        for thread, name, started_ns, ended_ns in spans:
            number = self._start_rows.setdefault(thread, len(self._start_rows) + 1)
            self._keep(_Span(_START, number, name, started_ns, ended_ns, 0))

    def _thread(self) -> int:
        number = threading.get_native_id()
        if number not in self._threads:
            self._threads[number] = threading.current_thread().name
        return number

    def _keep(self, event: _Span | _Count | _Instant) -> None:
        if len(self._events) < self._max:
            self._events.append(event)
        else:
            self.dropped += 1

    def counters(self) -> dict[str, list[tuple[float, float]]]:
        """Every counter's (seconds since the process began, value), in order of time."""
        found: dict[str, list[tuple[float, float]]] = {}
        for event in self._events:
            if isinstance(event, _Count):
                at = (event.at_ns - self._start_ns) / 1e9
                found.setdefault(event.name, []).append((at, event.value))
        return {name: sorted(values) for name, values in found.items()}

    def to_dict(self, **other: Any) -> dict[str, Any]:
        """The trace as plain JSON types.

        Args:
            **other: Goes into ``otherData``.
        """
        events = [*self._names(), *sorted(map(self._event, self._events), key=lambda e: e["ts"])]
        other["dropped_events"] = self.dropped
        return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}

    def _names(self) -> Iterator[dict[str, Any]]:
        groups = {_HOST: "bgsoft: threads"}
        if self._device_rows:
            groups[_DEVICE] = "bgsoft: GPU streams"
        if self._start_rows:
            groups[_START] = "bgsoft: start"
        for group, name in groups.items():
            yield {"ph": "M", "name": "process_name", "pid": group, "args": {"name": name}}
        for number, name in self._threads.items():
            yield _row_name(_HOST, number, name)
        for name, number in self._device_rows.items():
            yield _row_name(_DEVICE, number, name)
        for name, number in self._start_rows.items():
            yield _row_name(_START, number, name)

    def _event(self, event: _Span | _Count | _Instant) -> dict[str, Any]:
        if isinstance(event, _Span):
            return {
                "ph": "X",
                "name": event.name,
                "pid": event.group,
                "tid": event.row,
                "ts": self._microseconds(event.started_ns),
                "dur": (event.ended_ns - event.started_ns) / 1000,
                "args": {"call": event.call},
            }
        if isinstance(event, _Count):
            return {
                "ph": "C",
                "name": event.name,
                "pid": _HOST,
                "ts": self._microseconds(event.at_ns),
                "args": {"value": event.value},
            }
        return {
            "ph": "i",
            "s": "t",
            "name": event.name,
            "pid": _HOST,
            "tid": event.row,
            "ts": self._microseconds(event.at_ns),
        }

    def _microseconds(self, at_ns: int) -> float:
        return (at_ns - self._start_ns) / 1000

    def write(self, path: Path, **other: Any) -> None:
        """Write the file.

        Args:
            path: Replaced where it exists.
            **other: Goes into ``otherData``.

        Raises:
            OutputError: It cannot be written.
        """
        text = json.dumps(self.to_dict(**other), separators=(",", ":"))
        write_whole(path, "trace", text + "\n")


def _row_name(group: int, number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": group, "tid": number, "args": {"name": name}}


class NvtxRanges:
    """Stages as NVTX ranges for NVIDIA's profilers; see :class:`Observer`.

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
