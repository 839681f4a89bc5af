"""The whole benchmark: from options to the results that are printed, stored and plotted."""

from __future__ import annotations

import dataclasses
import datetime
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2

from bgsoft import __version__
from bgsoft.backends import chosen_gpu
from bgsoft.bench import baseline as baselines
from bgsoft.bench.cases import run_cases
from bgsoft.bench.clip import BenchClip, prepare
from bgsoft.bench.codec_cases import codec_cases
from bgsoft.bench.context import BenchContext
from bgsoft.bench.phases import measure_phases
from bgsoft.bench.stage_cases import stage_cases
from bgsoft.bench.timeline import traced_render
from bgsoft.bench.tune import tune
from bgsoft.config import Codec, RenderConfig
from bgsoft.errors import UnsupportedFormatError
from bgsoft.machine import hardware
from bgsoft.media.containers import container_for
from bgsoft.outputs import made_folders, write_whole
from bgsoft.presets import Layer, build_config
from bgsoft.versions import installed_versions
from bgsoft.workers import usable_cores

__all__ = ["BenchOptions", "Effort", "run_bench"]

_CODEC_SUFFIXES = {Codec.PRORES: ".mov", Codec.FFV1: ".mkv", Codec.VP9: ".webm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long everything is measured."""

    seconds: float = 10.0
    """Of video in each render."""
    rounds: int = 3
    """Renders and samples of each row that count."""
    frames: int = 60
    """Encoded by each encoder."""
    case_seconds: float = 0.3
    """For each stage and round."""

    @classmethod
    def quick(cls) -> Effort:
        """Enough to see that everything works, and roughly how fast."""
        return cls(seconds=2.0, rounds=1, frames=12, case_seconds=0.03)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to measure."""

    input: Path | None = None
    """None: the sample."""
    preset: str | None = "soft"
    flags: Layer = dataclasses.field(default_factory=dict)
    """Settings of the renders."""
    effort: Effort = dataclasses.field(default_factory=Effort)
    quick: bool = False
    phases: bool = True
    stages: bool = True
    tune: bool = False
    trace: Path | None = None
    baseline: Path | None = None
    command: Sequence[str] = ()
    """For the record."""


def run_bench(
    options: BenchOptions, tell: Callable[[str], None] = lambda _text: None
) -> dict[str, Any]:
    """Measure.

    Args:
        options: What.
        tell: Told what is being done.

    Returns:
        The results: plain JSON types under stable names.

    Raises:
        ConfigError: A setting, or the baseline, is wrong.
        BgsoftError: The clip cannot be read, or a render failed.
    """
    before = baselines.load(options.baseline) if options.baseline is not None else None
    cv2.setNumThreads(1)  # as in a render
    with tempfile.TemporaryDirectory(prefix="bgsoft-bench-") as name:
        folder = Path(name)
        tell("clip")
        clip = prepare(options.input, folder, options.effort.seconds)
        config = _config(options, clip, folder)
        results = _measure(options, clip, config, folder, tell)
    if before is not None and options.baseline is not None:
        results["baseline"] = baselines.compare(results, before, str(options.baseline))
    return results


def _config(options: BenchOptions, clip: BenchClip, folder: Path) -> RenderConfig:
    """The render's settings, with an output that can hold them."""
    codec = options.flags.get("encode", {}).get("codec", Codec.AUTO)
    suffix = _CODEC_SUFFIXES.get(codec, clip.path.suffix.lower())
    try:
        container_for(folder / f"out{suffix}")
    except UnsupportedFormatError:
        suffix = ".mp4"
    config = build_config(
        clip.path.absolute(),
        folder / f"out{suffix}",
        preset=options.preset,
        flags=options.flags,
        duration_seconds=clip.duration_seconds,
    )
    # The renders read these from a preset file that lies elsewhere.
    effect, segment = config.effect, config.segment
    if effect.background and Path(effect.background).is_file():
        effect = dataclasses.replace(effect, background=str(Path(effect.background).absolute()))
    if Path(segment.model).is_file():
        segment = dataclasses.replace(segment, model=str(Path(segment.model).absolute()))
    return dataclasses.replace(config, effect=effect, segment=segment)


def _measure(
    options: BenchOptions,
    clip: BenchClip,
    config: RenderConfig,
    folder: Path,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    effort = options.effort
    cores = usable_cores()
    results: dict[str, Any] = {
        "schema": baselines.SCHEMA,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "bgsoft_version": __version__,
        "settings": {
            "quick": options.quick,
            "rounds": effort.rounds,
            "seconds": effort.seconds,
            "preset": options.preset,
            "command": list(options.command),
            "render": _settings(config),
        },
        "hardware": hardware(chosen_gpu(config.backends.gpu)),
        "versions": installed_versions(),
        "clip": clip.to_dict(clip.info.estimated_frames or 0),
        "phases": [],
        "transcodes": [],
        "bottleneck": None,
        "stages": [],
        "timeline": None,
        "tune": None,
        "baseline": None,
    }
    best: RenderConfig | None = None
    if options.phases:
        found = measure_phases(
            config, clip.info, folder, rounds=effort.rounds, cores=cores, tell=tell
        )
        best = found.pop("best")
        results.update(found)
        frames = [run["frames"] for phase in found["phases"] for run in phase["runs"]]
        if frames:
            results["clip"] = clip.to_dict(frames[0])
    if options.phases or options.trace is not None:
        tell("one render with a trace")
        trace = folder / "trace.json"
        bottleneck = results["bottleneck"]
        phase = bottleneck["phase"] if bottleneck is not None else None
        results["timeline"] = traced_render(best or config, phase, folder, trace)
        if options.trace is not None:
            with made_folders([options.trace], tell):
                write_whole(options.trace, "trace", trace.read_bytes())
    if options.stages:
        context = BenchContext(
            config,
            clip.info,
            folder,
            frames=effort.frames,
            seconds=effort.case_seconds,
            tell=tell,
        )
        cases = [
            *codec_cases(context, quick=options.quick),
            *stage_cases(context, quick=options.quick),
        ]
        results["stages"] = run_cases(cases, effort.rounds, tell)
    if options.tune:
        results["tune"] = tune(config, folder, rounds=effort.rounds, tell=tell)
    return results


def _settings(config: RenderConfig) -> dict[str, Any]:
    """The settings that say what was measured; no file names."""
    plain = dataclasses.asdict(config)
    for key in ("input", "output", "matte_out", "overwrite"):
        del plain[key]
    return plain
