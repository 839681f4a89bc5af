"""Figures of a stream: those of an interval, and the line that shows them."""

from __future__ import annotations

from bgsoft.clock import StageClock
from bgsoft.live.figures import Figures, percentiles, stats_line


def test_figures_are_those_since_the_last_look() -> None:
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
    assert percentiles(range(1, 201)) == {"p50": 100, "p95": 190, "p99": 198}
    clock = StageClock("segment")
    figures = Figures([clock])
    clock.busy_ns, clock.calls = 6_000_000, 3
    figures.add(10_000_000)
    figures.add(20_000_000)
    first = figures.interval(2.0, {"source": "it"})
    assert first["latency_ms"] == {"p50": 10.0, "p95": 20.0, "p99": 20.0}
    assert (first["fps"], first["stages_ms"]) == (1.0, {"segment": 2.0})
    second = figures.interval(2.0, {"source": "it"})
    assert (second["frames_out"], second["fps"], second["stages_ms"]) == (2, 0.0, {})
    counts = {"state": "live", "frames_in": 5, "dropped": 3, "level": 1}
    sinks = [{"name": "a.mkv", "dropped": 2}, {"name": "b.mkv", "dropped": 0}]
    line = stats_line({**first, **counts, "sinks": sinks})
    assert line == (
        "it: live | in 5 out 2 dropped 3 | 1.0 frames/s | latency p50 10 p95 20 p99 20 ms | "
        "stages segment 2.0 ms | quality down 1 | sinks dropped a.mkv 2"
    )
