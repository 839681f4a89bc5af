"""What is made of samples: medians, noise, comparisons, words and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bgsoft.bench import baseline
from bgsoft.bench.bottleneck import find_bottleneck
from bgsoft.bench.run import read_timeline
from bgsoft.bench.sampling import interleaved, median, noise, percentile
from bgsoft.bench.tables import baseline_tables, tables
from bgsoft.config import EncodeConfig
from bgsoft.errors import ConfigError
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.tables import plain_text
from tests.unit.bench_results import results

CPU = dict.fromkeys(("decode", "infer", "composite", "encode"), "cpu")
GPU = {"decode": "nvdec", "infer": "cuda", "composite": "cuda", "encode": "nvenc"}


def test_rounds_turn_round() -> None:
    told: list[str] = []
    order = list(interleaved("ab", 2, "renders", told.append))
    warm_up, counts = False, True
    assert order[:2] == [(warm_up, "a"), (warm_up, "b")]
    assert order[2:] == [(counts, "b"), (counts, "a"), (counts, "a"), (counts, "b")]
    assert told == ["renders: warm-up", "renders: round 1 of 2", "renders: round 2 of 2"]


def test_median_and_percentile() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([]) is None
    assert percentile([float(n) for n in range(1, 101)], 0.95) == 95.0
    assert percentile([4.0], 0.95) == 4.0
    assert percentile([], 0.95) is None


def test_noise_is_the_spread_and_forgives_outliers() -> None:
    assert noise([100.0, 104.0]) == pytest.approx(4 / 2 / 102)
    steady = [100.0] * 50
    assert noise(steady) == 0.0
    assert noise([*steady, 1000.0]) == 0.0
    assert noise([]) == 0.0


def load(**shares: float) -> dict[str, float]:
    stages = ("decode", "segment", "matte", "composite", "encode")
    return {stage: shares.get(stage, 0.1) for stage in stages}


@pytest.mark.parametrize(
    ("shares", "cpu", "backends", "speed", "expected"),
    [
        (
            {"encode": 0.97},
            0.5,
            CPU,
            None,
            "encode-bound: the encoder is busy 97 % of the time; "
            "faster: --speed ultrafast, or --encode nvenc",
        ),
        (
            {"encode": 0.97},
            0.5,
            CPU,
            "ultrafast",
            "encode-bound: the encoder is busy 97 % of the time; faster: --encode nvenc",
        ),
        (
            {"encode": 0.99},
            0.1,
            GPU,
            "P1",
            "encode-bound: the encoder is busy 99 % of the time",
        ),
        (
            {"decode": 0.9},
            0.95,
            CPU,
            None,
            "decode-bound: the decoder is busy 90 % of the time, and all 4 cores 95 %; "
            "faster: --decode nvdec",
        ),
        (
            {"segment": 0.5, "matte": 0.3},
            0.5,
            CPU,
            None,
            "segment-bound: the picture stages together are busy 90 % of the time, the model the "
            "most (50 %); faster: --mask-every 2, or --infer cuda",
        ),
        (
            {"encode": 0.6},
            0.99,
            CPU,
            None,
            "CPU-bound: all 4 cores are busy 99 % of the time, and of the stages most in encode "
            "(60 % of its thread's time); faster: --speed ultrafast, or --encode nvenc",
        ),
    ],
)
def test_bottleneck_in_words(
    shares: dict[str, float],
    cpu: float,
    backends: dict[str, str],
    speed: str | None,
    expected: str,
) -> None:
    found = find_bottleneck(load(**shares), cpu, 4, backends, EncodeConfig(speed=speed))
    assert found is not None
    assert found["text"] == expected


def test_no_bottleneck_without_figures() -> None:
    assert find_bottleneck({}, 0.0, 4, CPU, EncodeConfig()) is None


def verdicts(compared: dict[str, Any]) -> dict[str, str]:
    return {row["what"]: row["verdict"] for row in compared["rows"]}


def test_equal_results_are_the_same() -> None:
    compared = baseline.compare(results(), results(), "old.json")
    assert compared["comparable"]
    assert set(verdicts(compared).values()) == {"same"}
    assert len(compared["rows"]) == 4


def test_slower_and_faster_are_told_apart_for_rates_and_times() -> None:
    compared = baseline.compare(results(fps=80, stage_ms=1.0), results(), "old.json")
    told = {what: verdict for what, verdict in verdicts(compared).items() if verdict != "same"}
    assert told == {"phase 0 (all CPU)": "slower", "matte: soft (cpu)": "faster"}
    rate = compared["rows"][0]
    assert rate["change_pct"] == pytest.approx(25.0)
    assert baseline.slower_than(compared, 20) == ["phase 0 (all CPU)"]
    assert baseline.slower_than(compared, 30) == []


def test_differences_within_the_noise_are_none() -> None:
    before = results()
    before["phases"][0]["fps_samples"] = [60.0, 100.0, 140.0]
    compared = baseline.compare(results(fps=80), before, "old.json")
    assert verdicts(compared)["phase 0 (all CPU)"] == "same"


def test_another_machine_is_noted() -> None:
    before = results()
    before["hardware"]["cpu"] = "y"
    compared = baseline.compare(results(), before, "old.json")
    assert compared["notes"] == ["hardware: cpu differs (y then, x now)"]
    assert table_of(compared)[0] == "Against old.json (hardware: cpu differs (y then, x now))"
    assert verdicts(compared)


def test_another_clip_is_not_compared() -> None:
    before = results(fps=1.0)
    before["clip"]["name"] = "another.mp4"
    compared = baseline.compare(results(), before, "old.json")
    assert not compared["comparable"]
    assert compared["rows"] == []
    first, last = table_of(compared)
    assert "clip: name differs (another.mp4 then" in first
    assert "not the same measurement" in last


def test_a_change_is_told_in_words() -> None:
    compared = baseline.compare(results(fps=80, stage_ms=1.0), results(), "old.json")
    text = "\n".join(table_of(compared))
    assert "25.0 % more time" in text
    assert "% less time" in text
    assert "-" not in text.partition("\n")[2]


def table_of(compared: dict[str, Any]) -> list[str]:
    """A comparison as it is printed."""
    (table,) = baseline_tables({"baseline": compared})
    return plain_text(table).splitlines()


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "another/1"}'])
def test_a_baseline_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="--baseline"):
        baseline.load(path)


def test_a_missing_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        baseline.load(tmp_path / "old.json")


def test_results_survive_json(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(results()))
    assert baseline.compare(results(), baseline.load(path), str(path))["comparable"]


def test_tables_name_reasons_and_never_draw_zeros() -> None:
    made = list(tables(results()))
    text = [line for table in made for line in plain_text(table).splitlines()]
    assert "  phase 1: infer: no GPU here" in text
    assert "  not here: matte cuda: no GPU here" in text
    assert "  phase 0 is encode-bound: words" in text
    assert "  batch = 4" in text  # the tuned preset
    missing = next(line for line in text if line.startswith(" 1 + GPU inference"))
    assert set(missing.split()[4:]) == {"–"}
    for table in made:
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_timeline_is_the_trace_at_even_times() -> None:
    recorder = TraceRecorder()
    for value in (0, 1, 2, 1):
        recorder.counter("decoded", value)
        recorder.counter("finished", value)
        recorder.counter("slots in use", 2 * value)
    recorder.counter("sm_pct", 40)
    timeline = read_timeline(recorder.to_dict(ring_slots=8), 3)
    assert timeline["phase"] == 3
    assert timeline["capacity"] == {"decoded": 4, "finished": 4, "slots in use": 8}
    assert timeline["counters"]["slots in use"][-1] == 2
    assert timeline["t_s"][0] == 0
    assert timeline["t_s"] == sorted(timeline["t_s"])
    assert {len(v) for v in timeline["counters"].values()} == {len(timeline["t_s"])}
    assert timeline["gpu"]["counters"] == {"sm_pct": [40]}
