"""Recording of a pipeline's activity, for Perfetto (https://ui.perfetto.dev).

The file is a JSON object of the Trace Event Format: complete events (``X``) on a row for each
thread and device stream, counters (``C``), instants (``i``) and the rows' names (``M``). Times are
microseconds since the process began.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bgsoft.outputs import write_whole
from bgsoft.records import NamedTuple
from bgsoft.startup import Span, process_start_ns

_HOST, _DEVICE, _START = 1, 2, 3
_GROUPS = {_HOST: "threads", _DEVICE: "GPU streams", _START: "start"}
"""Process number in the file → title of its rows."""
MAX_EVENTS = 1_000_000
"""About 150 MB of memory, an hour of video: viewers become slow beyond. Further events are counted
and dropped."""


class _Event(NamedTuple):
    phase: str
    group: int
    row: int
    name: str
    at_ns: int
    value: float = 0.0
    """End of a span, ns (``X``), or value of a counter (``C``)."""
    call: int = 0


class TraceRecorder:
    """Keeps events in memory until :meth:`write`. Thread-safe.

    Times are nanoseconds of :func:`time.perf_counter_ns`.
    """

    def __init__(self) -> None:
        self._start_ns = process_start_ns()
        # Appending to a list is atomic: recording takes no lock.
        self._events: list[_Event] = []
        self._threads: dict[int, str] = {}
        self._rows: dict[int, dict[str, int]] = {_DEVICE: {}, _START: {}}
        self.dropped = 0
        """Number of events that were dropped."""

    def thread_span(self, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """Record work of the calling thread; ``call`` counts from 0."""
        self._keep(_Event("X", _HOST, self._thread(), name, started_ns, ended_ns, call))

    def device_span(self, row: str, name: str, started_ns: int, ended_ns: int, call: int) -> None:
        """Record work of a device, in the order of its row."""
        number = self._row(_DEVICE, row)
        self._keep(_Event("X", _DEVICE, number, name, started_ns, ended_ns, call))

    def counter(self, name: str, value: float) -> None:
        """Record a counter's value from now on."""
        self._keep(_Event("C", _HOST, 0, name, time.perf_counter_ns(), value))

    def instant(self, name: str) -> None:
        """Record a moment in the calling thread."""
        self._keep(_Event("i", _HOST, self._thread(), name, time.perf_counter_ns()))

    def add_start(self, spans: Iterable[Span]) -> None:
        """Record the work before the first frame, on a row for each thread."""
        for thread, name, started_ns, ended_ns in spans:
            row = self._row(_START, thread)
            self._keep(_Event("X", _START, row, name, started_ns, ended_ns))

    def _row(self, group: int, name: str) -> int:
        rows = self._rows[group]
        return rows.setdefault(name, len(rows) + 1)

    def _thread(self) -> int:
        number = threading.get_native_id()
        self._threads.setdefault(number, threading.current_thread().name)
        return number

    def _keep(self, event: _Event) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        else:
            self.dropped += 1

    def to_dict(self, **other: Any) -> dict[str, Any]:
        """Return the trace as plain JSON types; ``other`` goes into ``otherData``."""
        events = [*self._names(), *sorted(map(self._plain, self._events), key=lambda e: e["ts"])]
        other["dropped_events"] = self.dropped
        return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}

    def _names(self) -> Iterator[dict[str, Any]]:
        rows = {_HOST: list(self._threads.items())}
        for group, named in self._rows.items():
            rows[group] = [(number, name) for name, number in named.items()]
        for group, title in _GROUPS.items():
            if group == _HOST or rows[group]:
                args = {"name": f"bgsoft: {title}"}
                yield {"ph": "M", "name": "process_name", "pid": group, "args": args}
            for number, name in rows[group]:
                args = {"name": name}
                yield {"ph": "M", "name": "thread_name", "pid": group, "tid": number, "args": args}

    def _plain(self, event: _Event) -> dict[str, Any]:
        phase, group, row, name, at_ns, value, call = event
        at = (at_ns - self._start_ns) / 1000
        plain = {"ph": phase, "name": name, "pid": group, "ts": at}
        if phase == "C":
            return plain | {"args": {"value": value}}
        if phase == "i":
            return plain | {"s": "t", "tid": row}
        return plain | {"tid": row, "dur": (value - at_ns) / 1000, "args": {"call": call}}

    def write(self, path: Path, **other: Any) -> None:
        """Write or replace the file; ``other`` goes into ``otherData``.

        Raises:
            OutputError: It cannot be written.
        """
        text = json.dumps(self.to_dict(**other), separators=(",", ":"))
        write_whole(path, "trace", text + "\n")
