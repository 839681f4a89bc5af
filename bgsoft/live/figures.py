"""Figures of a stream: counts, latencies and loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bgsoft.clock import StageClock

_KEPT = 10_000
"""Number of latencies that are kept between two reports."""


def percentiles(values: Iterable[float]) -> dict[str, float | None]:
    """Return p50, p95 and p99: the smallest values that these percentages do not exceed."""
    ordered = sorted(values)
    count = len(ordered)
    return {
        f"p{percent}": round(ordered[-(-percent * count // 100) - 1], 2) if count else None
        for percent in (50, 95, 99)
    }


class Figures:
    """Counts of one stream, in total and since the last report."""

    def __init__(self, clocks: Iterable[StageClock]) -> None:
        self.frames_out = 0
        self.busy_ns = 0
        """Busy time of the stream's picture thread."""
        self.newest: dict[str, Any] = {}
        """The last result of :meth:`interval`."""
        self._clocks = list(clocks)
        self._latencies: list[float] = []
        self._before: dict[str, tuple[int, int]] = {}

    def add(self, latency_ns: int) -> None:
        """Count a frame that all sinks have received, with its latency."""
        self.frames_out += 1
        if len(self._latencies) < _KEPT:
            self._latencies.append(latency_ns / 1e6)

    def interval(self, seconds: float, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figures since the last call, with ``counts`` added unchanged."""
        latencies, self._latencies = self._latencies, []
        stages: dict[str, float] = {}
        for clock in self._clocks:
            now = clock.busy_ns, clock.calls
            busy_before, calls_before = self._before.get(clock.name, (0, 0))
            self._before[clock.name] = now
            if calls := now[1] - calls_before:
                stages[clock.name] = round((now[0] - busy_before) / 1e6 / calls, 2)
        self.newest = {
            **counts,
            "frames_out": self.frames_out,
            "fps": round(len(latencies) / seconds, 1) if seconds > 0 else 0.0,
            "latency_ms": percentiles(latencies),
            "stages_ms": stages,
        }
        return self.newest


def stats_line(figures: Mapping[str, Any]) -> str:
    """Format figures as a line of text."""
    latency = figures["latency_ms"]
    shown = " ".join(f"{name} {value:.0f}" for name, value in latency.items() if value is not None)
    stages = " ".join(f"{name} {value:.1f}" for name, value in figures["stages_ms"].items())
    parts = [
        f"{figures['source']}: {figures['state']}",
        f"in {figures['frames_in']} out {figures['frames_out']} dropped {figures['dropped']}",
        f"{figures['fps']} frames/s",
        f"latency {shown or '-'} ms",
        f"stages {stages or '-'} ms",
    ]
    if figures["level"]:
        parts.append(f"quality down {figures['level']}")
    lost = [f"{sink['name']} {sink['dropped']}" for sink in figures["sinks"] if sink["dropped"]]
    if lost:
        parts.append("sinks dropped " + ", ".join(lost))
    return " | ".join(parts)
