from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bgsoft.errors import OutputError
from bgsoft.frame import FrameFormat
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.host import host_planes
from bgsoft.ring import FrameRing
from bgsoft.startup import StartupPool, logged, span


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_clocks_without_an_observer_only_count() -> None:
    metrics = Metrics()
    clock = metrics.stages["decode"]
    with clock:
        time.sleep(0.001)
    assert clock.calls == 1
    assert clock.busy_ns >= 1_000_000
    assert metrics.busy()["decode"] == clock.busy_ns == sum(metrics.busy().values())


def test_a_start_has_a_row_for_each_thread() -> None:
    recorder = TraceRecorder()
    with logged() as log, StartupPool() as pool, span("body"):
        pool.submit("decoder", lambda: None)
    recorder.add_start(log)
    trace = recorder.to_dict()
    found = {(e["pid"], e["tid"], e["name"]) for e in spans(trace)}
    rows = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in trace["traceEvents"]
        if e["name"] == "thread_name"
    }
    assert {(rows[pid, row], name) for pid, row, name in found} == {
        (threading.current_thread().name, "body"),
        ("bgsoft-start decoder", "decoder"),
    }
    assert all(0 < e["ts"] / 1e6 < time.perf_counter() for e in spans(trace))


def test_every_measured_block_becomes_a_span_of_its_thread() -> None:
    recorder = TraceRecorder()
    metrics = Metrics(recorder)

    def work() -> None:
        for _ in range(3):
            with metrics.stages["encode"]:
                pass

    thread = threading.Thread(target=work, name="bgsoft-encode")
    thread.start()
    thread.join()
    with metrics.stages["decode"]:
        pass
    trace = recorder.to_dict()
    assert [(e["name"], e["args"]["call"]) for e in spans(trace)] == [
        ("encode", 0),
        ("encode", 1),
        ("encode", 2),
        ("decode", 0),
    ]
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert [names[e["tid"]] for e in spans(trace)] == ["bgsoft-encode"] * 3 + ["MainThread"]


def test_a_failing_block_is_recorded_too() -> None:
    recorder = TraceRecorder()
    metrics = Metrics(recorder)
    with pytest.raises(KeyError), metrics.stages["encode"]:
        raise KeyError
    assert [e["name"] for e in spans(recorder.to_dict())] == ["encode"]


def test_device_rows_counters_and_instants() -> None:
    recorder = TraceRecorder()
    recorder.device_span("picture stream", "matte", 3000, 5000, 7)
    recorder.counter("decoded", 2)
    recorder.counter("decoded", 3)
    recorder.instant("scene-cut: new scene")
    trace = recorder.to_dict(ring_slots=8)
    (span,) = spans(trace)
    assert span["dur"] == 2.0
    assert span["args"] == {"call": 7}
    rows = [e for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert {(r["pid"], r["args"]["name"]) for r in rows} >= {(span["pid"], "picture stream")}
    counts = [e["args"]["value"] for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counts == [2, 3]
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == ["scene-cut: new scene"]
    assert trace["otherData"] == {"ring_slots": 8, "dropped_events": 0}


def test_events_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bgsoft.pipeline.trace.MAX_EVENTS", 2)
    recorder = TraceRecorder()
    for value in range(5):
        recorder.counter("decoded", value)
    trace = recorder.to_dict()
    assert trace["otherData"]["dropped_events"] == 3
    assert sum(event["ph"] == "C" for event in trace["traceEvents"]) == 2


def test_the_file_is_sorted_json(tmp_path: Path) -> None:
    recorder = TraceRecorder()
    now = time.perf_counter_ns()
    recorder.device_span("stream", "late", now + 9000, now + 9500, 0)
    recorder.device_span("stream", "early", now, now + 10, 0)
    path = tmp_path / "trace.json"
    recorder.write(path)
    trace = json.loads(path.read_text())
    assert [e["name"] for e in spans(trace)] == ["early", "late"]


def test_an_unwritable_file_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write the trace"):
        TraceRecorder().write(tmp_path / "missing" / "trace.json")


def test_waiting_for_a_slot_is_shown() -> None:
    format = FrameFormat(width=16, height=16)
    ring = FrameRing(1, lambda slot: host_planes(format, slot))
    recorder = TraceRecorder()
    ring.waiting.observer = recorder
    planes = ring.acquire()
    timer = threading.Timer(0.05, ring.release, [planes])
    timer.start()
    ring.acquire()
    timer.join()
    (span,) = spans(recorder.to_dict())
    assert span["name"] == "wait for a slot"
    assert span["dur"] == pytest.approx(ring.waiting.busy_ns / 1000)
