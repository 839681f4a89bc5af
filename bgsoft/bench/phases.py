"""Whole renders: from all-CPU to all-GPU, one step at a time, and a plain transcode beside them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.backends import chosen_gpu
from bgsoft.bench.bottleneck import find_bottleneck
from bgsoft.bench.process import Run, preset_text, run_process, run_render
from bgsoft.bench.sampling import interleaved, median
from bgsoft.compare.pictures import compare_pictures
from bgsoft.compare.vmaf import ask_ffmpeg, ffmpeg_executables
from bgsoft.config import (
    CompositeBackend,
    DecodeBackend,
    EncodeBackend,
    InferBackend,
    Precision,
    RenderConfig,
)
from bgsoft.cuda.driver import driver_problem
from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import choose_encoder
from bgsoft.errors import BackendUnavailableError, BgsoftError
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One combination of backends."""

    id: int
    name: str
    decode: DecodeBackend = DecodeBackend.CPU
    infer: tuple[InferBackend, ...] = (InferBackend.CPU,)
    """The first that runs here is taken."""
    composite: CompositeBackend = CompositeBackend.CPU
    encode: EncodeBackend = EncodeBackend.CPU


_ALL_CPU = Phase(id=0, name="all CPU")
_GPU_INFERENCE = replace(
    _ALL_CPU, id=1, name="+ GPU inference", infer=(InferBackend.TENSORRT, InferBackend.CUDA)
)
_NVDEC = replace(_GPU_INFERENCE, id=2, name="+ NVDEC", decode=DecodeBackend.NVDEC)
_CUPY = replace(_NVDEC, id=3, name="+ CuPy matte and composite", composite=CompositeBackend.CUDA)
_NVENC = replace(_CUPY, id=4, name="+ NVENC", encode=EncodeBackend.NVENC)
PHASES = (_ALL_CPU, _GPU_INFERENCE, _NVDEC, _CUPY, _NVENC)

_LEFT_OUT = (
    ("bgsoft without picture stages", "picture", _ALL_CPU),
    (
        "bgsoft without picture stages: NVDEC",
        "picture",
        replace(_ALL_CPU, decode=DecodeBackend.NVDEC),
    ),
    # Frames stay on the GPU, as in the last phase.
    (
        "bgsoft without picture stages: NVDEC, NVENC",
        "picture",
        replace(_NVENC, infer=(InferBackend.CPU,)),
    ),
    ("bgsoft without encoder", "encode", _ALL_CPU),
    ("bgsoft without encoder: NVDEC, GPU", "encode", _CUPY),
)
"""(name, what is left out, backends of the rest)."""


class _Row:
    """A phase or transcode, with its runs so far.

    Args:
        measure: Runs it once.
        reason: Why it cannot be run.
    """

    def __init__(self, measure: Callable[[], Run], reason: str | None = None) -> None:
        self.runs: list[Run] = []
        self.reason = reason
        self._measure = measure

    def take(self, keep: bool) -> None:
        """Run once more, unless that has turned out to be impossible."""
        if self.reason is None:
            try:
                run = self._measure()
            except BackendUnavailableError as exc:
                self.reason = str(exc)
            else:
                self.runs += [run] if keep else []

    def median_of(self, figure: Callable[[Run], float]) -> float | None:
        return median([figure(run) for run in self.runs])

    def medians_of(self, figures: Callable[[Run], Mapping[str, float]]) -> dict[str, float]:
        """The median of every key."""
        rows = [figures(run) for run in self.runs]
        return {key: median([row[key] for row in rows]) or 0.0 for key in (rows[0] if rows else {})}


class _PhaseRow(_Row):
    """Runs one phase, on the first inference backend that works.

    Args:
        phase: Which.
        config: What to render, and where to.
        run: Runs one render.
    """

    def __init__(
        self, phase: Phase, config: RenderConfig, run: Callable[[RenderConfig], Run]
    ) -> None:
        super().__init__(self._on_what_works)
        self.phase = phase
        self._left = list(phase.infer)
        self._config = config
        self._run = run

    @property
    def config(self) -> RenderConfig:
        """Of the inference backend that is left."""
        return _phase_config(self._config, self.phase, self._left[0])

    def _on_what_works(self) -> Run:
        refused: list[str] = []
        while True:
            try:
                return self._run(self.config)
            except BackendUnavailableError as exc:
                refused.append(str(exc))
                if len(self._left) == 1 or "--infer" not in str(exc):
                    raise BackendUnavailableError(_joined(refused)) from exc
                self._left.pop(0)


def _phase_config(config: RenderConfig, phase: Phase, infer: InferBackend) -> RenderConfig:
    backends = replace(
        config.backends,
        decode=phase.decode,
        infer=infer,
        composite=phase.composite,
        encode=phase.encode,
        require_gpu=False,
        precision=Precision.FP32 if infer is InferBackend.CPU else config.backends.precision,
    )
    encode = config.encode
    speed = encode.speed or ""
    if (phase.encode is EncodeBackend.NVENC) != (speed.upper()[:1] == "P" and speed[1:].isdigit()):
        encode = replace(encode, speed=None)  # the other encoder's word
    return replace(config, backends=backends, encode=encode)


def _joined(reasons: list[str]) -> str:
    """Each reason once, behind all the backends that it holds for."""
    kept: dict[str, list[str]] = {}
    for reason in reasons:
        what, _, why = reason.partition(": ")
        kept.setdefault(why, []).append(what)
    return "; ".join(f"{', '.join(whats)}: {why}" for why, whats in kept.items())


def measure_phases(
    config: RenderConfig,
    info: VideoInfo,
    folder: Path,
    *,
    rounds: int,
    cores: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run every phase and the transcodes, each in processes of their own, in turns.

    The backends of ``config`` are set by each phase.

    Returns:
        ``phases``, ``transcodes``, ``bottleneck`` of the results, and ``best``: the config of the
        fastest phase.

    Raises:
        BgsoftError: A render failed, for another reason than a backend that is unavailable.
    """
    phases = []
    for phase in PHASES:
        output = folder / f"phase{phase.id}{config.output.suffix}"
        render = replace(config, output=output)
        phases.append(_PhaseRow(phase, render, lambda made: run_render(made, folder)))
    transcodes = _transcode_rows(config, info, folder)
    for counts, row in interleaved([*phases, *transcodes.values()], rounds, "renders", tell):
        row.take(keep=counts)
    results = [_phase_result(row, cores) for row in phases]
    _compare(results, phases, tell)
    best = max(
        (result for result in results if result["available"]),
        key=lambda result: result["run_fps"],
        default=None,
    )
    bottleneck: dict[str, Any] | None = None
    fastest: RenderConfig | None = None
    if best is not None:
        fastest = phases[best["id"]].config
        found = find_bottleneck(
            best["load"], best["cpu_load"], cores, best["backends"], fastest.encode
        )
        bottleneck = None if found is None else {"phase": best["id"], **found}
    return {
        "phases": results,
        "transcodes": [_transcode_result(name, row, best) for name, row in transcodes.items()],
        "bottleneck": bottleneck,
        "best": fastest,
    }


def _phase_result(row: _PhaseRow, cores: int) -> dict[str, Any]:
    runs = row.runs
    report = runs[-1].report if runs else {}
    settings = row.config.backends
    vram = [run.report["peak_vram_bytes"] for run in runs if run.report["peak_vram_bytes"]]
    return {
        "id": row.phase.id,
        "name": row.phase.name,
        "backends": {
            stage: str(getattr(settings, stage))
            for stage in ("decode", "infer", "composite", "encode")
        },
        "available": bool(runs),
        "reason": row.reason,
        "fps": row.median_of(lambda run: run.fps),
        "fps_samples": [run.fps for run in runs],
        "run_fps": row.median_of(lambda run: run.run_fps),
        "run_fps_samples": [run.run_fps for run in runs],
        "startup_s": row.median_of(lambda run: run.wall_s - run.frames / run.fps),
        "speedup": None,
        "stage_ms": row.medians_of(lambda run: run.stage_ms),
        "load": row.medians_of(lambda run: run.stage_load),
        "cpu_load": row.median_of(lambda run: min(1.0, run.cpu_s / run.wall_s / cores)),
        "psnr_db": None,
        "ssim": None,
        "identical": False,
        "h2d_bytes": report.get("h2d_bytes"),
        "d2h_bytes": report.get("d2h_bytes"),
        "peak_rss_bytes": max((run.report["peak_rss_bytes"] for run in runs), default=None),
        "peak_vram_bytes": max(vram, default=None),
        "runs": [run.to_dict() for run in runs],
    }


def _compare(
    results: list[dict[str, Any]], rows: Sequence[_PhaseRow], tell: Callable[[str], None]
) -> None:
    """Speed-up and likeness of each phase to phase 0."""
    first = results[0]
    for result, row in zip(results, rows, strict=True):
        if not (first["available"] and result["available"]):
            continue
        result["speedup"] = result["fps"] / first["fps"]
        if result is not first:
            tell(f"comparing phase {result['id']} with phase 0")
            pictures = compare_pictures(rows[0].config.output, row.config.output).pictures
            psnr, ssim = (pictures.statistic(metric, "y") for metric in ("psnr", "ssim"))
            if psnr is not None:
                result["identical"] = psnr.identical  # JSON has no infinity
                result["psnr_db"] = psnr.mean if math.isfinite(psnr.mean) else None
            result["ssim"] = None if ssim is None else ssim.mean


def _transcode_rows(config: RenderConfig, info: VideoInfo, folder: Path) -> dict[str, _Row]:
    """Renders with parts left out, and plain transcodes by ffmpeg."""
    config = replace(config, output=folder / f"floor{config.output.suffix}")
    rows: dict[str, _Row] = {
        name: _PhaseRow(phase, config, partial(_render_without, part, folder))
        for name, part, phase in _LEFT_OUT
    }
    executables = ffmpeg_executables()
    executable = executables[-1] if executables else ""  # the user's own rather than the extra's
    plain = _phase_config(config, _ALL_CPU, InferBackend.CPU)
    transcode = partial(_ffmpeg_transcode, executable, plain, info, folder)
    if not executable:
        return {**rows, "ffmpeg": _Row(transcode, "no ffmpeg found: pip install '.[quality]'")}
    words = (ask_ffmpeg(executable, "-version") or "").split()
    name = f"ffmpeg {words[2].partition('-')[0]}" if len(words) > 2 else "ffmpeg"
    problem = driver_problem(chosen_gpu(config.backends.gpu))
    if problem is None and "cuda" not in (ask_ffmpeg(executable, "-hwaccels") or "").split():
        problem = "this ffmpeg cannot decode on a GPU"
    rows[name] = _Row(transcode)
    rows[f"{name}: NVDEC"] = _Row(partial(transcode, "-hwaccel", "cuda"), problem)
    return rows


def _render_without(part: str, folder: Path, config: RenderConfig) -> Run:
    settings = folder / "floor.toml"
    settings.write_text(preset_text(config), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "bgsoft.bench.floor"),
        *(part, str(config.input), str(config.output), str(settings)),
    ]
    if config.duration_seconds is not None:
        command.append(repr(config.duration_seconds))
    wall, cpu, text = run_process(command)
    made = json.loads(text)
    return Run(frames=made["frames"], wall_s=wall, cpu_s=cpu, report=made)


def _ffmpeg_transcode(
    executable: str, config: RenderConfig, info: VideoInfo, folder: Path, *decoding: str
) -> Run:
    """The same encoder with the same settings, sound copied."""
    output = folder / f"ffmpeg{config.output.suffix}"
    container = container_for(config.output)
    choice = choose_encoder(config.encode, container, info, PictureKind.COLOR)
    limit = [] if config.duration_seconds is None else ["-t", repr(config.duration_seconds)]
    options = choice.with_threads(config.backends.threads)
    if config.backends.threads and choice.thread_parameter is None:
        options["threads"] = str(config.backends.threads)
    coded = [part for key, value in options.items() for part in (f"-{key}", value)]
    # ffmpeg copies frames through as they are; PyAV's NV12 is its own yuv420p in another layout.
    pixel_format = "yuv420p" if choice.pixel_format == "nv12" else choice.pixel_format
    try:
        wall, cpu, text = run_process(
            [
                *(executable, "-v", "error", "-nostdin", "-y", *limit, *decoding),
                *("-i", str(config.input)),
                *("-map", "0:v:0", "-map", "0:a?", "-c:a", "copy", "-c:v", choice.encoder),
                *(*coded, "-pix_fmt", pixel_format, "-progress", "pipe:1", str(output)),
            ]
        )
    except BgsoftError as exc:  # an ffmpeg without this encoder
        raise BackendUnavailableError(f"ffmpeg failed: {exc}") from exc
    counts = [line.partition("=")[2] for line in text.splitlines() if line.startswith("frame=")]
    return Run(frames=int(counts[-1]), wall_s=wall, cpu_s=cpu, report={})


def _transcode_result(name: str, row: _Row, best: dict[str, Any] | None) -> dict[str, Any]:
    whole = row.median_of(lambda run: run.run_fps)
    steady = [run.fps for run in row.runs if run.report]
    return {
        "name": name,
        "available": bool(row.runs),
        "reason": row.reason,
        "fps": median(steady),
        "fps_samples": steady,
        "run_fps": whole,
        "run_fps_samples": [run.run_fps for run in row.runs],
        "ratio": best["run_fps"] / whole if best is not None and whole else None,
        "ratio_phase": None if best is None or not whole else best["id"],
    }
