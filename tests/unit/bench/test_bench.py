"""Benchmarks: their runs, noise, comparisons, words and charts."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import pytest

from bgsoft.bench import baseline, phases
from bgsoft.bench.bottleneck import find_bottleneck
from bgsoft.bench.process import Run, preset_text, run_process
from bgsoft.cli.bench_tables import tables, write_bench_plot
from bgsoft.cli.results import plain_text
from bgsoft.compare.compare import compare
from bgsoft.diagnose.clips import ClipSpec, write_clip
from bgsoft.errors import BackendUnavailableError, BgsoftError, ConfigError, OutputError
from bgsoft.media.probe import probe
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import EncodeConfig, InferBackend, Precision, RenderConfig
from tests.marks import slow

SPEC = ClipSpec(name="clip.mp4", width=128, height=96, frames=25, options={"threads": "1"})
CONFIG = RenderConfig(input=Path("in.mp4"), output=Path("out.mp4"))
CPU = dict.fromkeys(("decode", "infer", "composite", "encode"), "cpu")
NVENC = CPU | {"encode": "nvenc"}
STAGE_MS = {"decode": 1.0, "encode": 3.0}


def a_run() -> Run:
    """401 frames, 100 a second after the first one."""
    stages = {name: {"ms_per_frame": ms, "backend": "cpu"} for name, ms in STAGE_MS.items()}
    report = {"wall_s": 5.0, "first_frame_s": 1.0, "stages": stages}
    report |= {"peak_rss_bytes": 300_000_000, "peak_vram_bytes": None}
    return Run(frames=401, wall_s=8.02, cpu_s=8.02, report=report)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    def fake(config: RenderConfig, _folder: Path) -> Run:
        if config.backends.infer is not InferBackend.CPU:
            raise BackendUnavailableError("no GPU here")
        return a_run()

    def transcodes(*_: Any) -> list[phases.Measurement]:
        return [
            phases.Measurement("ffmpeg 9", lambda _config: replace(a_run(), report={}), [CONFIG])
        ]

    monkeypatch.setattr(phases, "run_render", fake)
    monkeypatch.setattr(phases, "transcode_rows", transcodes)
    info = probe(write_clip(tmp_path, SPEC))
    clip = {"name": "$a$ 🎬.mp4", "frames": 401, "width": 128, "height": 96, "codec": "h264"}
    return {
        "schema": baseline.SCHEMA,
        "settings": {"render": {}},
        "hardware": {"cpu": "x", "usable_cores": 2, "gpu": None, "gpu_reason": "no driver"},
        "clip": clip,
        **phases.measure_phases(CONFIG, info, tmp_path, rounds=3, cores=2, log=print),
        "baseline": None,
    }


def test_a_row_takes_the_next_backend_where_one_is_missing() -> None:
    asked: list[str] = []

    def fake(config: RenderConfig) -> Run:
        asked.append(str(config.backends.infer))
        if config.backends.infer is InferBackend.TENSORRT:
            raise BackendUnavailableError("no library")
        return a_run()

    row = phases.Measurement(
        "+ GPU inference", fake, phases.phase_configs(CONFIG, phases.PHASES[1])
    )
    row.take(keep=True)
    row.take(keep=True)
    assert asked == ["tensorrt", "cuda", "cuda"]
    assert row.result()["reason"] is None


def test_rows_take_turns_in_both_directions() -> None:
    logged: list[str] = []
    one, other = (phases.Measurement("", lambda _config: a_run(), []) for _ in range(2))
    order = [
        (counts, row is one) for counts, row in phases.in_turns([one, other], 2, logged.append)
    ]
    assert order[:2] == [(False, True), (False, False)]  # to warm up
    assert order[2:] == [(True, False), (True, True), (True, True), (True, False)]
    assert logged == ["renders: warm-up", "renders: round 1 of 2", "renders: round 2 of 2"]


def test_phases_add_one_stage_after_another() -> None:
    config = build_config(
        CONFIG.input,
        CONFIG.output,
        flags={"backends": {"batch": 4, "precision": Precision.FP16}, "encode": {"speed": "P5"}},
    )
    made = [phases.phase_configs(config, phase)[0] for phase in phases.PHASES]
    assert [c.backends.infer for c in made] == [InferBackend.CPU] + [InferBackend.TENSORRT] * 4
    assert [c.backends.decode for c in made] == ["cpu", "cpu", "nvdec", "nvdec", "nvdec"]
    assert [c.backends.composite for c in made] == ["cpu", "cpu", "cpu", "cuda", "cuda"]
    assert [c.backends.encode for c in made] == ["cpu", "cpu", "cpu", "cpu", "nvenc"]
    # Settings of one backend only are not given to the other.
    assert made[0].backends.precision is Precision.FP32
    assert [c.encode.speed for c in made] == [None] * 4 + ["P5"]


def test_the_likeness_of_a_phase_is_what_compare_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clip = write_clip(tmp_path, SPEC)
    rough = write_clip(tmp_path, replace(SPEC, name="rough.mp4", options={"crf": "40"}))

    def fake(config: RenderConfig, _folder: Path) -> Run:
        shutil.copy(clip if config.output.stem == "phase0" else rough, config.output)
        return a_run()

    monkeypatch.setattr(phases, "run_render", fake)
    monkeypatch.setattr(phases, "transcode_rows", lambda *_: [])
    monkeypatch.setattr(phases, "PHASES", phases.PHASES[:2])
    found = phases.measure_phases(CONFIG, probe(clip), tmp_path, rounds=1, cores=2, log=print)
    pictures = compare(clip, rough, vmaf=False).pictures
    assert pictures is not None
    psnr, ssim = (pictures.statistic(metric, "y") for metric in ("psnr", "ssim"))
    assert psnr is not None
    assert ssim is not None
    phase = found["phases"][1]
    assert (phase["psnr_db"], phase["ssim"]) == (psnr.mean, ssim.mean)
    assert 20 < psnr.mean < 50


def test_the_settings_of_a_run_are_all_in_its_preset(tmp_path: Path) -> None:
    config = build_config(
        CONFIG.input,
        CONFIG.output,
        preset="obs",
        flags={"backends": {"precision": Precision.FP16, "threads": 3}},
    )
    path = tmp_path / "settings.toml"
    path.write_text(preset_text(config))
    again = build_config(config.input, config.output, preset=str(path))
    assert replace(again, preset=config.preset) == config


@pytest.mark.parametrize(
    ("code", "error"), [(2, ConfigError), (4, BackendUnavailableError), (1, BgsoftError)]
)
def test_a_failed_process_raises_what_it_said(code: int, error: type[BgsoftError]) -> None:
    script = f"import sys; print('bgsoft: error: it broke', file=sys.stderr); sys.exit({code})"
    with pytest.raises(error, match=r"^it broke$"):
        run_process([sys.executable, "-c", script])


def test_a_signal_while_a_process_is_made_leaves_it_not_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []
    fork: Any = subprocess._fork_exec  # type: ignore[attr-defined]

    def interrupted(*args: Any) -> int:
        begun.append(fork(*args))
        signal.raise_signal(signal.SIGINT)
        return begun[0]

    monkeypatch.setattr(subprocess, "_USE_POSIX_SPAWN", False)  # as Python 3.13 would
    monkeypatch.setattr(subprocess, "_fork_exec", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_process([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(ProcessLookupError):
        os.kill(begun[0], 0)


def test_figures_of_a_run(measured: dict[str, Any]) -> None:
    first, *others = measured["phases"]
    assert (first["fps"], first["run_fps"], first["cpu_load"]) == (100.0, 50.0, 0.5)
    assert first["startup_s"] == pytest.approx(4.01)
    assert (first["stage_ms"], first["load"]) == (STAGE_MS, {"decode": 0.1, "encode": 0.3})
    assert {phase["reason"] for phase in others} == {"no GPU here"}
    (transcode,) = measured["transcodes"]
    assert (transcode["run_fps"], transcode["ratio"], transcode["ratio_phase"]) == (50.0, 1.0, 0)
    assert measured["bottleneck"]["phase"] == 0


def test_noise_is_the_spread_and_forgives_outliers() -> None:
    assert baseline.noise([100.0, 104.0]) == pytest.approx(4 / 2 / 102)
    assert baseline.noise([*[100.0] * 50, 1000.0]) == 0.0
    assert baseline.noise([]) == 0.0


@pytest.mark.parametrize(
    ("shares", "cpu", "backends", "speed", "expected"),
    [
        (
            {"encode": 0.97}, 0.5, CPU, None,
            "encode-bound: the encoder is busy 97 % of the time; "
            "faster: --speed ultrafast, or --encode nvenc",
        ),
        (
            {"encode": 0.99}, 0.1, NVENC, "P1",
            "encode-bound: the encoder is busy 99 % of the time",
        ),
        (
            {"decode": 0.9}, 0.95, CPU, None,
            "decode-bound: the decoder is busy 90 % of the time, and all 4 cores 95 %; "
            "faster: --decode nvdec",
        ),
        (
            {"segment": 0.5, "matte": 0.3}, 0.5, CPU, None,
            "segment-bound: the picture stages together are busy 90 % of the time, the model the "
            "most (50 %); faster: --mask-every 2, or --infer cuda",
        ),
        (
            {"encode": 0.6}, 0.99, CPU, "ultrafast",
            "CPU-bound: all 4 cores are busy 99 % of the time, and of the stages most in encode "
            "(60 % of its thread's time); faster: --encode nvenc",
        ),
    ],
)  # fmt: skip
def test_bottleneck_in_words(
    shares: dict[str, float], cpu: float, backends: dict[str, str], speed: str | None, expected: str
) -> None:
    load = dict.fromkeys(("decode", "segment", "composite", "encode"), 0.1) | shares
    found = find_bottleneck(load, cpu, 4, backends, EncodeConfig(speed=speed))
    assert found is not None
    assert found["text"] == expected
    assert find_bottleneck({}, cpu, 4, backends, EncodeConfig(speed=speed)) is None


def copied(results: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(results))
    return copy


def printed(results: dict[str, Any]) -> str:
    return "\n\n".join(plain_text(table) for table in tables(results))


def test_a_baseline_tells_slower_from_faster(measured: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(measured))
    now = copied(measured)
    now["hardware"]["cpu"] = "y"
    phase = now["phases"][0]
    phase["fps"] *= 0.8
    phase["stage_ms"]["decode"] = 0.5
    compared = baseline.compare(now, baseline.load(path), "old.json")
    assert compared["comparable"]
    assert compared["notes"] == ["hardware: cpu differs (x then, y now)"]
    verdicts = {row["what"]: row["verdict"] for row in compared["rows"]}
    assert verdicts == {
        "phase 0 (all CPU)": "slower",
        "phase 0 (all CPU): decode": "faster",
        "phase 0 (all CPU): encode": "same",
        "ffmpeg 9": "same",
    }
    assert compared["rows"][0]["change_pct"] == pytest.approx(25.0)
    assert baseline.slower_than(compared, 20) == ["phase 0 (all CPU)"]
    assert baseline.slower_than(compared, 30) == []
    text = printed(now | {"baseline": compared})
    assert "Against old.json (hardware: cpu differs (x then, y now))" in text
    assert "25.0 % more time" in text
    assert "50.0 % less time" in text
    assert "2 same, 1 faster, 1 slower" in text


def test_differences_within_the_noise_are_none(measured: dict[str, Any]) -> None:
    now = copied(measured)
    now["phases"][0] |= {"fps": 80.0, "fps_samples": [40.0, 80.0, 120.0]}
    compared = baseline.compare(now, measured, "old.json")
    assert {row["verdict"] for row in compared["rows"]} == {"same"}


def test_another_clip_is_not_compared(measured: dict[str, Any]) -> None:
    before = copied(measured)
    before["clip"]["name"] = "another.mp4"
    compared = baseline.compare(measured, before, "old.json")
    assert not compared["comparable"]
    assert compared["rows"] == []
    text = printed(measured | {"baseline": compared})
    assert "clip: name differs (another.mp4 then" in text
    assert "not the same measurement" in text


@pytest.mark.parametrize("text", [None, "", "[]", "[" * 100_000, '{"schema": "another/1"}'])
def test_a_baseline_of_another_kind_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match="--baseline"):
        baseline.load(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("clip",), None),
        (("phases",), 1),
        (("phases", 0, "fps"), "fast"),
        pytest.param(("phases", 0, "fps"), 10**400, id="large"),
        (("phases", 0, "fps"), math.inf),
        (("phases", 0, "fps_samples"), {"a": 1}),
        (("phases", 0, "stage_ms"), []),
        (("phases", 0, "runs"), [{}]),
        (("transcodes", 0, "name"), []),
    ],
)
def test_a_damaged_baseline_is_refused_before_anything_is_measured(
    measured: dict[str, Any], tmp_path: Path, place: tuple[str | int, ...], value: object
) -> None:
    path, results = tmp_path / "old.json", copied(measured)
    *way, last = place
    part: Any = results
    for key in way:
        part = part[key]
    part[last] = value
    path.write_text(json.dumps(results))
    with pytest.raises(ConfigError, match=r"^cannot use --baseline .*did not write it"):
        baseline.load(path)


def test_tables_name_reasons_and_never_draw_zeros(measured: dict[str, Any]) -> None:
    lines = printed(measured).splitlines()
    assert "  phase 1, phase 2, phase 3, phase 4: no GPU here" in lines
    assert any(line.startswith("  phase 0 is encode-bound:") for line in lines)
    missing = next(line for line in lines if line.startswith(" 1 + GPU inference"))
    assert set(missing.split()[4:]) == {"–"}
    measured["phases"][0]["gpu"] = {"mean": {"sm_pct": 37.4}}
    assert "37 %" in printed(measured)


@pytest.mark.parametrize("suffix", [slow(".png"), ".svg"])
def test_the_plot(measured: dict[str, Any], tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"p{suffix}"
    write_bench_plot(measured, path)
    if suffix == ".png":
        picture = cv2.imread(str(path))
        blue = (0xB4, 0x77, 0x1F)  # Matplotlib's first colour, as BGR
        assert cv2.countNonZero(cv2.inRange(picture, blue, blue)) > 1000
    else:
        text = path.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag.endswith("svg")
        for words in ("0 all CPU", "ffmpeg 9", "encode"):
            assert f"<!-- {words} -->" in text
        assert "GPU inference" not in text
    with pytest.raises(OutputError, match="cannot write"):
        write_bench_plot(measured, tmp_path / "none" / "p.png")
