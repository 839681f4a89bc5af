"""The whole benchmark: from options to the results that are printed, stored and plotted."""

from __future__ import annotations

import dataclasses
import datetime
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from bgsoft import __version__
from bgsoft.backends import chosen_gpu
from bgsoft.bench import baseline as baselines
from bgsoft.bench.cases import run_cases
from bgsoft.bench.clip import BenchClip, prepare
from bgsoft.bench.codec_cases import codec_cases
from bgsoft.bench.context import BenchContext
from bgsoft.bench.phases import measure_phases
from bgsoft.bench.process import run_render
from bgsoft.bench.stage_cases import stage_cases
from bgsoft.bench.tune import tune
from bgsoft.config import Codec, RenderConfig
from bgsoft.errors import UnsupportedFormatError
from bgsoft.machine import hardware, installed_versions
from bgsoft.media.containers import container_for
from bgsoft.outputs import made_folders, write_whole
from bgsoft.presets import Layer, build_config
from bgsoft.workers import usable_cores

_QUEUES = ("decoded", "finished", "slots in use")
_TIMELINE_POINTS = 300
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
    quick: bool = False
    """Fewer encoder presets and batches, no VMAF."""


QUICK = Effort(seconds=2.0, rounds=1, frames=12, case_seconds=0.03, quick=True)
"""Enough to see that everything works, and roughly how fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to measure."""

    input: Path | None
    """None: the sample."""
    preset: str
    flags: Layer
    """Settings of the renders."""
    effort: Effort
    phases: bool
    stages: bool
    tune: bool
    trace: Path | None
    baseline: Path | None
    command: Sequence[str]
    """For the record."""


def run_bench(options: BenchOptions, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure; ``tell`` is told what is being done.

    Returns:
        The results: plain JSON types under stable names.

    Raises:
        ConfigError: A setting, or the baseline, is wrong.
        BgsoftError: The clip cannot be read, or a render failed.
    """
    before = None if options.baseline is None else baselines.load(options.baseline)
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
    suffix = _CODEC_SUFFIXES.get(codec, clip.info.path.suffix.lower())
    try:
        container_for(folder / f"out{suffix}")
    except UnsupportedFormatError:
        suffix = ".mp4"
    config = build_config(
        clip.info.path.absolute(),
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
            "quick": effort.quick,
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
        run_render(best or config, folder, "--trace", str(trace))
        results["timeline"] = read_timeline(json.loads(trace.read_text(encoding="utf-8")), phase)
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
            *codec_cases(context, quick=effort.quick),
            *stage_cases(context, quick=effort.quick),
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


def read_timeline(trace: Mapping[str, Any], phase: int | None) -> dict[str, Any]:
    """Counters of a trace as curves over a common time.

    Args:
        trace: As :meth:`bgsoft.pipeline.trace.TraceRecorder.to_dict` makes it.
        phase: Which phase was traced; None: none of them.
    """
    counters: dict[str, list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            at = (event["ts"] / 1e6, event["args"]["value"])
            counters.setdefault(event["name"], []).append(at)
    queues = {name: counters.pop(name) for name in _QUEUES if name in counters}
    slots = trace["otherData"]["ring_slots"]
    depth = max(1, slots // 2)
    return {
        "phase": phase,
        **_curves(queues),
        "capacity": {"decoded": depth, "finished": depth, "slots in use": slots},
        "gpu": _curves(counters) if counters else None,
    }


def _curves(counters: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """The last value of every counter at evenly spaced times, from the first sample on."""
    if not counters:
        return {"t_s": [], "counters": {}}
    sampled = {name: np.array(samples).T for name, samples in counters.items()}
    start = min(times[0] for times, _ in sampled.values())
    end = max(times[-1] for times, _ in sampled.values())
    at = np.linspace(start, end, min(_TIMELINE_POINTS, max(map(len, counters.values()))))
    return {
        "t_s": (at - start).tolist(),
        "counters": {
            name: values[np.searchsorted(times, at, side="right").clip(1) - 1].tolist()
            for name, (times, values) in sampled.items()
        },
    }
