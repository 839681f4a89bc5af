from __future__ import annotations

import pytest

from bgsoft.cli.progress import progress_parts
from bgsoft.pipeline.metrics import Metrics, ProgressMeter
from bgsoft.report import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def perf_counter_ns(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("bgsoft.pipeline.metrics.time", clock)
    monkeypatch.setattr("bgsoft.clock.time", clock)
    return clock


def test_rate_eta_and_load(clock: Clock) -> None:
    metrics, seen = Metrics(), list[Progress]()
    meter = ProgressMeter(100, metrics, seen.append)
    decode = metrics.stages["decode"]
    for step in range(1, 6):
        clock.now += 1.0
        decode.busy_ns += 250_000_000
        meter.tick(step * 10)
    assert [p.frames for p in seen] == [10, 20, 30, 40, 50]
    last = seen[-1]
    assert last.fps == pytest.approx(10)
    assert last.eta_seconds == pytest.approx(5)
    assert last.elapsed_seconds == pytest.approx(5)
    assert last.load["decode"] == pytest.approx(0.25)


def test_rate_follows_a_change_within_its_window(clock: Clock) -> None:
    seen = list[Progress]()
    meter = ProgressMeter(None, Metrics(), seen.append)
    frames = 0
    for rate in [100] * 20 + [10] * 10:
        clock.now += 0.5
        frames += rate // 2
        meter.tick(frames)
    assert seen[19].fps == pytest.approx(100)
    assert seen[-1].fps == pytest.approx(10)
    assert seen[-1].eta_seconds is None


def test_a_slow_model_has_a_speed_and_a_load(clock: Clock) -> None:
    """Batches of eight frames take 40 seconds; the meter ticks every 50 ms."""
    metrics, seen = Metrics(), list[Progress]()
    meter = ProgressMeter(800, metrics, seen.append)
    segment = metrics.stages["segment"]
    for batch in range(5):
        with segment:
            for _ in range(800):
                clock.now += 0.05
                meter.tick(8 * batch)
    later = [p for p in seen if p.frames >= 16]
    assert later
    assert all(0.1 < p.fps < 0.21 for p in later)
    assert all(p.load["segment"] > 0.95 for p in seen[1:])
    assert len(meter._recent._history) < 50
    assert "0.1" in progress_parts(seen[-1])[2]


def test_a_header_count_that_is_too_low_gives_no_negative_eta(clock: Clock) -> None:
    seen = list[Progress]()
    meter = ProgressMeter(5, Metrics(), seen.append)
    clock.now += 1
    meter.tick(9)
    assert seen[-1].total is None
    assert seen[-1].eta_seconds is None


def test_reports_no_more_often_than_asked_but_always_at_the_end(clock: Clock) -> None:
    seen = list[Progress]()
    meter = ProgressMeter(10, Metrics(), seen.append)
    for frames in range(8):
        clock.now += 0.01
        meter.tick(frames)
    assert seen == []
    meter.finish(10)
    assert (seen[-1].frames, seen[-1].total) == (10, 10)
