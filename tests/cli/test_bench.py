from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bgsoft.bench import run as bench_run
from bgsoft.cuda.driver import driver_problem
from bgsoft.diagnose.clips import ClipSpec, write_clip

from .conftest import Run


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"preset": "ultrafast", "threads": "1"}
    spec = ClipSpec(name="clip.mp4", width=320, height=180, frames=25, options=options)
    return write_clip(tmp_path_factory.mktemp("clip"), spec)


@pytest.mark.slow
def test_a_bench_measures_everything(run: Run, clip: Path, tmp_path: Path) -> None:
    results_file = tmp_path / "results.json"
    outcome = run("bench", clip, "--rounds", "1", "--seconds", "0.6", "--json", results_file)
    assert outcome.code == 0, outcome.err
    results = json.loads(results_file.read_text())
    assert results["schema"] == "bgsoft-bench/1"
    assert (results["clip"]["frames"], results["clip"]["duration_s"]) == (15, 0.6)

    first, *others = results["phases"]
    assert first["available"]
    assert first["fps"] > 0
    assert first["runs"][0]["frames"] == 15
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
    floors = {row["name"]: row["available"] for row in results["transcodes"]}
    assert floors["bgsoft without encoder"]
    assert floors["bgsoft's decoder alone"]
    assert results["bottleneck"]["phase"] in range(5)
    for word in ("Phases", "-bound", "0 all CPU", "decoder alone"):
        assert word in outcome.out
    assert "renders: round 1 of 1" in outcome.err


def test_settings_reach_the_renders(run: Run, monkeypatch: pytest.MonkeyPatch, clip: Path) -> None:
    given: list[Any] = []

    def measure(config: Any, *_: Any, **__: Any) -> dict[str, Any]:
        given.append(config)
        return {"phases": [], "transcodes": [], "bottleneck": None}

    monkeypatch.setattr(bench_run, "measure_phases", measure)
    flags = ("--seconds", "0.5", "--effect", "dim", "--threads", "2", "--face", "off")
    assert run("bench", clip, *flags).code == 0
    (config,) = given
    assert (config.duration_seconds, config.backends.threads) == (0.5, 2)
    assert (config.effect.kind, config.face.mode) == ("dim", "off")


def test_without_a_sample_a_video_is_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_run, "SAMPLE", tmp_path / "none.mp4")
    outcome = run("bench")
    assert outcome.code == 2
    assert "name a video" in outcome.error_line


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Value of ``baseline`` that a stand-in for the measurement returns."""
    row = {"what": "phase 0", "verdict": "slower", "change_pct": 12.0, "noise_pct": 3.0}
    row |= {"before": 9.0, "after": 8.0, "unit": "frames/s"}
    found = {"file": "old.json", "comparable": True, "notes": [], "rows": [row]}
    clip = {"name": "a.mp4", "frames": 1, "width": 2, "height": 2}
    machine = {"cpu": "x", "usable_cores": 2, "gpu": None, "gpu_reason": "none"}
    results = {"clip": clip, "hardware": machine, "phases": [], "transcodes": []}
    results |= {"bottleneck": None, "baseline": found}
    monkeypatch.setattr(bench_run, "run_bench", lambda *_, **__: results)
    return found


@pytest.mark.parametrize(("percent", "code"), [("10", 1), ("15", 0)])
def test_slower_than_the_baseline_fails(
    run: Run, compared: dict[str, Any], tmp_path: Path, percent: str, code: int
) -> None:
    outcome = run("bench", "--baseline", tmp_path / "old.json", "--fail-slower", percent)
    assert outcome.code == code
    assert "slower" in outcome.out
    if code:
        assert "phase 0" in outcome.error_line


def test_another_measurement_cannot_be_slower(
    run: Run, compared: dict[str, Any], tmp_path: Path
) -> None:
    compared |= {"comparable": False, "notes": ["clip: name differs"], "rows": []}
    outcome = run("bench", "-q", "--baseline", tmp_path / "old.json", "--fail-slower", "5")
    assert outcome.code == 1
    assert "not the same measurement" in outcome.error_line


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--fail-slower", "5"), 2, "needs --baseline"),
        (("--plot", "page.pdf"), 2, ".png or .svg"),
        (("--json", "mine.json"), 5, "exists; use --overwrite to replace it"),
        (("-y",), 2, "cannot use --overwrite"),
        (("--json", "/dev/null/results.json"), 5, "is not a folder"),
        (("--threads", "1000"), 2, "--threads"),
        (("--chunks", "0,2"), 2, "numbers from 1 on, such as 1,2,4"),
        (("--chunks", "2", "--files", "3"), 2, "cannot combine --chunks and --files"),
        (("--files", "3", "--plot", "a.png"), 2, "--plot with --files"),
        (("--chunks", "2", "--baseline", "a.json"), 2, "--baseline with --chunks"),
        (("--baseline", "missing.json"), 2, "cannot read"),
        (("no-such-file.mp4",), 3, "no-such-file.mp4"),
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
    (tmp_path / "mine.json").touch()
    outcome = run("bench", *argv)
    assert outcome.code == code, outcome.err
    assert words in outcome.err.splitlines()[-1]


@pytest.mark.parametrize("result", [("--json", "r.json"), ("--plot", "r.png")])
@pytest.mark.parametrize("reads", ["--background", "--preset", "--baseline", None])
def test_no_result_replaces_a_file_that_is_read(
    run: Run,
    compared: dict[str, Any],
    clip: Path,
    tmp_path: Path,
    reads: str | None,
    result: tuple[str, str],
) -> None:
    flag, file = result[0], tmp_path / result[1]
    source, given = tmp_path / "preset.toml", [clip]
    source.write_bytes(b"")
    if reads is None:
        given = [source]
    elif reads != "--background":
        given += [reads, source]
    else:
        source = source.rename(tmp_path / "background.png")
        given += [reads, source]
    file.symlink_to(source)
    outcome = run("bench", *given, flag, file, "-y")
    assert outcome.code == 5
    assert outcome.error_line.endswith(f"{file}: it is the same file as {source}; name another")
    assert source.read_bytes() == b""


def test_two_results_need_two_files(run: Run, compared: dict[str, Any], clip: Path) -> None:
    outcome = run("bench", clip, "--json", "r.png", "--plot", "./r.png", "-y")
    assert outcome.code == 5
    assert "plot r.png: it is the same file as r.png" in outcome.error_line


def test_render_writes_a_trace(run: Run, clip: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    outcome = run("render", clip, tmp_path / "out.mp4", "--trace", trace, "-q", "--batch", "1")
    assert outcome.code == 0, outcome.err
    events = json.loads(trace.read_text())["traceEvents"]
    names = [e["name"] for e in events if e["ph"] == "X"]
    # Picture: with the call that finishes what is kept back.
    for stage, count in (("matte", 25), ("composite", 25), ("picture", 26)):
        assert names.count(stage) == count
    assert names.count("segment") == 2 * 25  # before and after scenes are told apart
    assert {e["name"] for e in events if e["ph"] == "C"} == {"decoded", "finished", "slots in use"}


def test_an_unwritable_trace_fails_before_the_render(run: Run, clip: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.mp4"
    outcome = run("render", clip, output, "--trace", clip / "trace.json")
    assert outcome.code == 5
    assert "the folder of the trace" in outcome.error_line
    assert not output.exists()
