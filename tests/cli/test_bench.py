from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bgsoft.cuda.driver import driver_problem
from bgsoft.selftest.clips import ClipSpec, write_clip

from .conftest import Run


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = ClipSpec(
        name="clip.mp4",
        width=320,
        height=180,
        frames=25,
        options={"preset": "ultrafast", "threads": "1"},
    )
    return write_clip(tmp_path_factory.mktemp("movie"), spec)


def test_a_quick_bench_measures_everything(run: Run, movie: Path, tmp_path: Path) -> None:
    results_file, trace_file = tmp_path / "results.json", tmp_path / "trace.json"
    outcome = run("bench", movie, "--quick", "--json", results_file, "--trace", trace_file)
    assert outcome.code == 0, outcome.err
    results = json.loads(results_file.read_text())
    assert results["schema"] == "bgsoft-bench/1"
    assert results["clip"]["frames"] == 50  # looped once
    assert results["clip"]["loops"] == 2

    first, *others = results["phases"]
    assert first["available"]
    assert first["fps"] > 0
    assert first["runs"][0]["frames"] == 50
    assert set(first["stage_ms"]) >= {"decode", "segment", "matte", "composite", "encode"}
    for phase in others:
        assert phase["available"] == (phase["reason"] is None)
        if phase["available"]:
            assert phase["speedup"] > 0
            assert phase["psnr_db"] > 30
        else:
            assert phase["fps"] is None
    if driver_problem(0) is not None:
        assert not any(phase["available"] for phase in others)
    assert results["transcodes"][0]["available"]
    assert results["bottleneck"]["phase"] in range(5)

    measured = {s["group"] for s in results["stages"] if s["available"]}
    assert measured >= {"decode", "preprocess", "segment", "face", "matte", "effect", "encode"}
    failed = [s for s in results["stages"] if (s["reason"] or "").startswith("failed")]
    assert failed == []
    for stage in results["stages"]:
        if stage["available"]:
            assert 0 < stage["median_ms"] <= stage["p95_ms"]
            assert stage["samples_ms"]
    encoders = [s for s in results["stages"] if s["group"] == "encode" and s["available"]]
    assert all(s["bitrate_kbps"] > 0 for s in encoders)

    timeline = results["timeline"]
    assert max(timeline["counters"]["slots in use"]) <= timeline["capacity"]["slots in use"]
    trace = json.loads(trace_file.read_text())
    spans = [e["name"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert spans.count("composite") >= 1
    rows = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert rows >= {"bgsoft-decode", "bgsoft-picture", "bgsoft-encode"}

    for word in ("Phases", "-bound", "Stages alone", "0 all CPU", "without picture stages"):
        assert word in outcome.out
    assert "renders: round 1 of 1" in outcome.err


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Options given to a stand-in for the measurement."""
    import bgsoft.bench.run as bench_run

    given: list[Any] = []

    def fake(options: Any, tell: Any) -> dict[str, Any]:
        given.append(options)
        rows = [{"what": "phase 0", "verdict": "slower", "change_pct": 12.0, "noise_pct": 3.0}]
        rows[0] |= {"before": 9.0, "after": 8.0, "unit": "frames/s"}
        compared = {"file": "old.json", "comparable": True, "notes": [], "rows": rows}
        empty = dict.fromkeys(("tune", "bottleneck", "timeline"))
        baseline = compared if options.baseline is not None else None
        return {"phases": [], "transcodes": [], "stages": [], "baseline": baseline, **empty}

    monkeypatch.setattr(bench_run, "run_bench", fake)
    return given


def test_options_reach_the_measurement(run: Run, measured: list[Any], movie: Path) -> None:
    flags = ("--only", "stages", "--seconds", "3", "--rounds", "5", "--threads", "2", "--tune")
    assert run("bench", movie, *flags, "--effect", "dim").code == 0
    (options,) = measured
    assert options.input == movie
    assert (options.phases, options.stages, options.tune) == (False, True, True)
    assert (options.effort.seconds, options.effort.rounds) == (3.0, 5)
    assert options.flags == {"effect": {"kind": "dim"}, "backends": {"threads": 2}}


@pytest.mark.parametrize(("percent", "code"), [("10", 1), ("15", 0)])
def test_slower_than_the_baseline_fails(
    run: Run, measured: list[Any], tmp_path: Path, percent: str, code: int
) -> None:
    outcome = run("bench", "--baseline", tmp_path / "old.json", "--fail-slower", percent)
    assert outcome.code == code
    assert "slower" in outcome.out
    if code:
        assert "phase 0" in outcome.error_line


def test_another_measurement_cannot_be_slower(
    run: Run, measured: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bgsoft.bench.run as bench_run

    fake = bench_run.run_bench

    def other(*args: Any, **options: Any) -> dict[str, Any]:
        results = fake(*args, **options)
        results["baseline"] |= {"comparable": False, "notes": ["clip: name differs"], "rows": []}
        return results

    monkeypatch.setattr(bench_run, "run_bench", other)
    outcome = run("bench", "-q", "--baseline", tmp_path / "old.json", "--fail-slower", "5")
    assert outcome.code == 1
    assert "not the same measurement" in outcome.error_line


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--only", "nothing"), 2, "--only"),
        (("--fail-slower", "5"), 2, "needs --baseline"),
        (("--plot", "page.pdf"), 2, "--plot"),
        (("--json", "/dev/null/results.json"), 5, "is no folder"),
        (("--threads", "1000"), 2, "--threads"),
        (("--baseline", "missing.json"), 2, "cannot read"),
        (("no-such-file.mp4", "--only", "phases"), 3, "no-such-file.mp4"),
    ],
)
def test_bad_usage(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("bench", *argv, "--quick")
    assert outcome.code == code, outcome.err
    assert words in outcome.err.splitlines()[-1]


def test_render_writes_a_trace(run: Run, movie: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    outcome = run("render", movie, tmp_path / "out.mp4", "--trace", trace, "-q", "--batch", "1")
    assert outcome.code == 0, outcome.err
    events = json.loads(trace.read_text())["traceEvents"]
    names = [e["name"] for e in events if e["ph"] == "X"]
    for stage in ("matte", "composite", "picture"):
        assert names.count(stage) == 25
    assert names.count("segment") == 2 * 25  # before and after scenes are told apart
    assert {e["name"] for e in events if e["ph"] == "C"} == {"decoded", "finished", "slots in use"}


def test_an_unwritable_trace_fails_before_the_render(run: Run, movie: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.mp4"
    outcome = run("render", movie, output, "--trace", movie / "trace.json")
    assert outcome.code == 5
    assert "the trace's folder" in outcome.error_line
    assert not output.exists()
