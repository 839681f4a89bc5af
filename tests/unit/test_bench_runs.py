"""Cases, phases and tuning: that they run what they say, and how failures come out."""

from __future__ import annotations

import itertools
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bgsoft.bench.tune as tuning
from bgsoft.bench import clip as clips
from bgsoft.bench import phases
from bgsoft.bench.cases import Case, Sampler, repeat, run_cases
from bgsoft.bench.clip import prepare
from bgsoft.bench.process import Run, preset_text, run_process
from bgsoft.bench.tune import candidates, chosen_preset, tune
from bgsoft.compare.compare import compare
from bgsoft.config import InferBackend, Precision, RenderConfig
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import BackendUnavailableError, BgsoftError, ConfigError, InferenceError
from bgsoft.media.probe import probe
from bgsoft.presets import build_config, load_preset
from bgsoft.selftest.clips import ClipSpec, write_clip
from bgsoft.selftest.stages import decode_clip

SPEC = ClipSpec(
    name="clip.mp4",
    width=128,
    height=96,
    frames=25,
    options={"preset": "veryfast", "bf": "2", "threads": "1"},
)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"), SPEC)


def case(make: Any) -> Case:
    return Case("matte", "x", "cpu", make)


def test_warm_up_is_dropped_and_rounds_are_kept() -> None:
    calls: list[int] = []

    def make(_stack: ExitStack) -> Sampler:
        def sample() -> list[float]:
            calls.append(len(calls))
            return [float(len(calls))]

        return sample

    (result,) = run_cases([case(make)], 3, print)
    assert result["samples_ms"] == [2.0, 3.0, 4.0]
    assert result["median_ms"] == 3.0
    assert result["fps"] == pytest.approx(1000 / 3)
    assert result["available"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BackendUnavailableError("no GPU here"), "no GPU here"),
        (InferenceError("it broke"), "failed: it broke"),
        (ZeroDivisionError("by zero"), "failed: ZeroDivisionError: by zero"),
    ],
)
def test_a_case_that_fails_keeps_its_reason(error: Exception, reason: str) -> None:
    def make(_stack: ExitStack) -> Sampler:
        raise error

    good = case(lambda _stack: lambda: [1.0])
    failed, other = run_cases([case(make), good], 1, print)
    assert failed["reason"] == reason
    assert not failed["available"]
    assert failed["median_ms"] is None
    assert other["available"]


def test_what_was_opened_is_closed_whatever_happens() -> None:
    closed: list[str] = []

    def make(stack: ExitStack) -> Sampler:
        stack.callback(closed.append, "closed")
        raise BackendUnavailableError("later")

    run_cases([case(make)], 1, print)
    assert closed == ["closed"]


def test_repeat_shares_the_time_of_a_batch_and_waits_once_a_sample() -> None:
    ran: list[str] = []
    host = repeat(lambda: ran.append("run"), seconds=0.0, least=3)
    assert len(host()) == 3
    assert ran == ["run"] * 3
    ran.clear()
    device = repeat(lambda: ran.append("run"), lambda: ran.append("wait"), seconds=0.0, least=1)
    assert len(device()) == 1
    assert ran == ["run"] * 8 + ["wait"]


def test_a_short_clip_is_looped_without_a_gap(clip: Path, tmp_path: Path) -> None:
    made = prepare(clip, tmp_path, 2.5)
    assert made.loops == 3
    shown, _ = decode_clip(made.info.path)
    assert len(shown) == 3 * SPEC.frames
    steps = {b.pts - a.pts for a, b in itertools.pairwise(shown)}
    assert len(steps) == 1
    with CpuDecoder(clip) as decoder:
        assert decoder.info.format == made.info.format


def test_a_long_clip_is_measured_in_part(clip: Path, tmp_path: Path) -> None:
    made = prepare(clip, tmp_path, 0.5)
    assert (made.info.path, made.loops, made.duration_seconds) == (clip, 1, 0.5)


def test_without_a_sample_a_clip_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clips, "sample_path", lambda: None)
    made = clips.prepare(None, tmp_path, 1.0)
    assert made.info.path.is_file()
    assert (made.info.format.width, made.info.format.height) == (1280, 720)
    assert made.duration_seconds == 1.0


def test_the_settings_of_a_run_are_all_in_its_preset(tmp_path: Path) -> None:
    config = build_config(
        tmp_path / "in.mp4",
        tmp_path / "out.mp4",
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


def test_figures_of_a_run() -> None:
    stages = {
        "decode": {"ms_per_frame": 2.0, "backend": "cpu"},
        "face": {"ms_per_frame": 0.0, "backend": "off"},
    }
    report = {"wall_s": 5.0, "first_frame_s": 1.0, "stages": stages}
    run = Run(frames=401, wall_s=8.02, cpu_s=6.0, report=report)
    assert run.fps == 100.0
    assert run.run_fps == 50.0
    assert run.stage_ms == {"decode": 2.0}
    assert run.stage_load == {"decode": 0.2}


def test_phases_add_one_stage_after_another() -> None:
    config = RenderConfig(input=Path("in.mp4"), output=Path("out.mp4"))
    config = build_config(
        config.input,
        config.output,
        flags={"backends": {"batch": 4, "precision": Precision.FP16}, "encode": {"speed": "P5"}},
    )
    made = [phases._phase_config(config, phase, phase.infer[0]) for phase in phases.PHASES]
    assert [c.backends.infer for c in made] == [InferBackend.CPU] + [InferBackend.TENSORRT] * 4
    assert [c.backends.decode for c in made] == ["cpu", "cpu", "nvdec", "nvdec", "nvdec"]
    assert [c.backends.composite for c in made] == ["cpu", "cpu", "cpu", "cuda", "cuda"]
    assert [c.backends.encode for c in made] == ["cpu", "cpu", "cpu", "cpu", "nvenc"]
    # What one backend alone understands is not given to the other.
    assert [c.backends.batch for c in made] == [4] * 5
    assert made[0].backends.precision is Precision.FP32
    assert [c.encode.speed for c in made] == [None] * 4 + ["P5"]


def test_a_phase_takes_the_next_provider_where_one_is_missing(tmp_path: Path) -> None:
    config = RenderConfig(input=Path("in.mp4"), output=tmp_path / "out.mp4")
    asked: list[str] = []

    def fake(config: RenderConfig) -> Run:
        asked.append(str(config.backends.infer))
        if config.backends.infer is InferBackend.TENSORRT:
            raise BackendUnavailableError("--infer tensorrt is unavailable: no library")
        return Run(frames=1, wall_s=1, cpu_s=1, report={})

    row = phases._PhaseRow(phases.PHASES[1], config, fake)
    row.take(keep=True)
    row.take(keep=True)
    assert asked == ["tensorrt", "cuda", "cuda"]


def test_a_phase_that_cannot_run_says_why(tmp_path: Path) -> None:
    def fake(config: RenderConfig) -> Run:
        raise BackendUnavailableError(f"--infer {config.backends.infer} is unavailable: no GPU")

    config = RenderConfig(input=Path("in.mp4"), output=tmp_path / "out.mp4")
    row = phases._PhaseRow(phases.PHASES[1], config, fake)
    row.take(keep=True)
    assert row.runs == []
    assert row.reason == "--infer tensorrt is unavailable, --infer cuda is unavailable: no GPU"


def test_the_likeness_of_a_phase_is_what_compare_says(
    monkeypatch: pytest.MonkeyPatch, clip: Path, tmp_path: Path
) -> None:
    rough = write_clip(tmp_path, replace(SPEC, name="rough.mp4", options={"crf": "40"}))
    phase_stages = {
        stage: {"ms_per_frame": 1.0, "backend": "cpu"} for stage in ("decode", "encode")
    }
    made = {"wall_s": 2.0, "first_frame_s": 1.0, "peak_rss_bytes": 1, "peak_vram_bytes": None}

    def fake(config: RenderConfig, _folder: Path) -> Run:
        source = clip if config.output.stem == "phase0" else rough
        shutil.copy(source, config.output)
        return Run(frames=25, wall_s=2.0, cpu_s=1.0, report={**made, "stages": phase_stages})

    monkeypatch.setattr(phases, "run_render", fake)
    monkeypatch.setattr(phases, "_transcode_rows", lambda *_: {})
    config = RenderConfig(input=clip, output=tmp_path / "out.mp4")
    monkeypatch.setattr(phases, "PHASES", phases.PHASES[:2])
    info = probe(clip)
    found = phases.measure_phases(config, info, tmp_path, rounds=1, cores=2, tell=print)
    pictures = compare(clip, rough, vmaf=False).pictures
    assert pictures is not None
    psnr, ssim = (pictures.statistic(metric, "y") for metric in ("psnr", "ssim"))
    assert psnr is not None
    assert ssim is not None
    phase = found["phases"][1]
    assert (phase["psnr_db"], phase["ssim"]) == (psnr.mean, ssim.mean)
    assert 20 < psnr.mean < 50


def test_tuning_candidates() -> None:
    cpu, gpu = ({"on_gpu": on_gpu, "cpu_encoder": not on_gpu} for on_gpu in (False, True))
    assert candidates("threads", 4, **cpu) == [0, 1, 2, 4, 6, 8]
    assert candidates("threads", 4, **gpu) == [0]
    assert candidates("ring_slots", 4, **cpu) == [None, 4, 8, 16, 32]
    assert candidates("batch", 4, **cpu) == [None]
    assert candidates("batch", 4, **gpu) == [None, 1, 2, 4, 8, 16]


def report(gpu: bool) -> dict[str, Any]:
    place = "cuda" if gpu else "cpu"
    stages = {
        "composite": {"backend": place, "ms_per_frame": 1.0},
        "encode": {"backend": "cpu", "ms_per_frame": 1.0},
    }
    return {"wall_s": 1.0, "first_frame_s": 0.0, "stages": stages}


def test_tuning_takes_what_is_faster_by_more_than_noise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fake(config: RenderConfig, _folder: Path) -> Run:
        frames = 1001
        if config.backends.threads == 1:
            frames += 300
        if config.backends.ring_slots == 16:
            frames += 5  # within the noise
        if config.backends.batch == 16:
            raise ConfigError("a batch of 16 needs 32 slots")
        if config.backends.batch == 8:
            frames += 200
        return Run(frames=frames, wall_s=1.0, cpu_s=1.0, report=report(gpu=True))

    config = RenderConfig(input=Path("in.mp4"), output=tmp_path / "out.mp4", preset="soft")
    monkeypatch.setattr(tuning, "run_render", fake)
    found = tune(config, tmp_path, rounds=2, tell=print)
    assert found["chosen"] == {"threads": 1, "ring_slots": None, "batch": 8}
    assert found["baseline_fps"] == 1000.0
    tried = {(t["setting"], t["value"]) for t in found["trials"]}
    assert ("ring_slots", 16) in tried
    assert ("batch", 16) not in tried


def test_a_cold_start_does_not_speak_against_the_automatic_choice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = iter(range(1000))

    def fake(_config: RenderConfig, _folder: Path) -> Run:
        cold = next(runs) < 3  # two more than the run that shows which backends there are
        return Run(frames=501 if cold else 1001, wall_s=1.0, cpu_s=1.0, report=report(gpu=False))

    config = RenderConfig(input=Path("in.mp4"), output=tmp_path / "out.mp4")
    monkeypatch.setattr(tuning, "run_render", fake)
    found = tune(config, tmp_path, rounds=1, tell=print)
    assert found["chosen"] == {"threads": 0, "ring_slots": None}
    assert {trial["fps"] for trial in found["trials"]} == {1000.0}


def test_the_tuned_preset_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(chosen_preset("obs", {"threads": 2, "ring_slots": None, "batch": 4}))
    preset = load_preset(str(path))
    assert preset.settings["backends"]["threads"] == 2
    assert preset.settings["backends"]["ring_slots"] is None
    assert preset.settings["backends"]["batch"] == 4
    assert preset.settings["matte"] == load_preset("obs").settings["matte"]
