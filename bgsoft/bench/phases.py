"""Whole renders: from all-CPU to all-GPU, one step at a time, and a plain transcode beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.backends import chosen_gpu, driver_problem
from bgsoft.bench.bottleneck import find_bottleneck
from bgsoft.bench.process import (
    Run,
    mapping_median,
    preset_text,
    python_command,
    run_process,
    run_render,
    stage_load,
)
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
from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import choose_encoder
from bgsoft.errors import BackendUnavailableError, BgsoftError
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo

__all__ = ["PHASES", "Phase", "measure_phases"]


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


_GPU_INFERENCE = (InferBackend.TENSORRT, InferBackend.CUDA)
PHASES = (
    Phase(id=0, name="all CPU"),
    Phase(id=1, name="+ GPU inference", infer=_GPU_INFERENCE),
    Phase(id=2, name="+ NVDEC", decode=DecodeBackend.NVDEC, infer=_GPU_INFERENCE),
    Phase(
        id=3,
        name="+ CuPy matte and composite",
        decode=DecodeBackend.NVDEC,
        infer=_GPU_INFERENCE,
        composite=CompositeBackend.CUDA,
    ),
    Phase(
        id=4,
        name="+ NVENC",
        decode=DecodeBackend.NVDEC,
        infer=_GPU_INFERENCE,
        composite=CompositeBackend.CUDA,
        encode=EncodeBackend.NVENC,
    ),
)


_NVDEC = Phase(id=0, name="NVDEC", decode=DecodeBackend.NVDEC)
_LEFT_OUT = (
    ("bgsoft without picture stages", "picture", PHASES[0]),
    ("bgsoft without picture stages: NVDEC", "picture", _NVDEC),
    # Frames stay on the GPU, as in the last phase.
    (
        "bgsoft without picture stages: NVDEC, NVENC",
        "picture",
        replace(PHASES[-1], infer=(InferBackend.CPU,)),
    ),
    ("bgsoft without encoder", "encode", PHASES[0]),
    ("bgsoft without encoder: NVDEC, GPU", "encode", PHASES[3]),
)
"""(name, what is left out, backends of the rest)."""


@dataclass(slots=True)
class _Row:
    """A phase or transcode, with its runs so far."""

    measure: Callable[[], Run]
    runs: list[Run] = field(default_factory=list)
    reason: str | None = None

    def take(self, keep: bool) -> None:
        if self.reason is not None:
            return
        try:
            run = self.measure()
        except BackendUnavailableError as exc:
            self.reason = str(exc)
        else:
            if keep:
                self.runs.append(run)


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


class _PhaseRow:
    """Runs one phase, on the first inference backend that works.

    Args:
        phase: Which.
        config: What to render, and where to.
        folder: For settings and report.
        run: Runs one render; None: ``bgsoft render``.
    """

    def __init__(
        self,
        phase: Phase,
        config: RenderConfig,
        folder: Path,
        run: Callable[[RenderConfig, Path], Run] | None = None,
    ) -> None:
        self.phase = phase
        self.output = config.output
        self._left = list(phase.infer)
        self._config = config
        self._folder = folder
        self._run = run

    @property
    def config(self) -> RenderConfig:
        """Of the inference backend that is left."""
        return _phase_config(self._config, self.phase, self._left[0])

    def __call__(self) -> Run:
        refused: list[str] = []
        while True:
            try:
                return (self._run or run_render)(self.config, self._folder)
            except BackendUnavailableError as exc:
                refused.append(str(exc))
                if len(self._left) == 1 or "--infer" not in str(exc):
                    raise BackendUnavailableError(_joined(refused)) from exc
                self._left.pop(0)


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
    phases: tuple[Phase, ...] = PHASES,
    tell: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Run every phase and the transcodes, each in processes of their own, in turns.

    Args:
        config: What to render; its backends are set by each phase.
        info: Of the input.
        folder: For the outputs.
        rounds: Runs of each that count; one more goes before them and is dropped.
        cores: That the processes may use.
        phases: To run.
        tell: Told what is being done.

    Returns:
        ``phases``, ``transcodes``, ``bottleneck`` of the results, and ``best``: the config of the
        fastest phase.

    Raises:
        BgsoftError: A render failed, for another reason than a backend that is unavailable.
    """
    outputs = {p.id: folder / f"phase{p.id}{config.output.suffix}" for p in phases}
    makers = {p.id: _PhaseRow(p, replace(config, output=outputs[p.id]), folder) for p in phases}
    rows = {f"phase {phase.id}": _Row(makers[phase.id]) for phase in phases}
    transcodes = _transcode_rows(config, info, folder)
    rows.update(transcodes)

    def told(number: int) -> None:
        what = "warm-up" if number == 0 else f"round {number} of {rounds}"
        tell(f"renders: {what}")

    for number, name in interleaved(list(rows), rounds + 1, told):
        rows[name].take(keep=number > 0)
    results = [_phase_result(makers[p.id], rows[f"phase {p.id}"], cores) for p in phases]
    _compare(results, makers, tell)
    best = max(
        (result for result in results if result["available"]),
        key=lambda result: result["run_fps"],
        default=None,
    )
    made = [_transcode_result(name, row, best) for name, row in transcodes.items()]
    return {
        "phases": results,
        "transcodes": made,
        "bottleneck": None if best is None else _bottleneck(best, makers, cores),
        "best": None if best is None else makers[best["id"]].config,
    }


def _phase_result(maker: _PhaseRow, row: _Row, cores: int) -> dict[str, Any]:
    phase = maker.phase
    runs = row.runs
    report = runs[-1].report if runs else {}
    settings = maker.config.backends
    result: dict[str, Any] = {
        "id": phase.id,
        "name": phase.name,
        "backends": {
            "decode": str(settings.decode),
            "infer": str(settings.infer),
            "composite": str(settings.composite),
            "encode": str(settings.encode),
        },
        "available": bool(runs),
        "reason": row.reason,
        "fps": median([run.fps for run in runs]),
        "fps_samples": [run.fps for run in runs],
        "run_fps": median([run.run_fps for run in runs]),
        "run_fps_samples": [run.run_fps for run in runs],
        "startup_s": median([run.wall_s - run.frames / run.fps for run in runs]),
        "speedup": None,
        "stage_ms": mapping_median([run.stage_ms for run in runs]),
        "load": mapping_median([stage_load(run) for run in runs]),
        "cpu_load": median([min(1.0, run.cpu_s / run.wall_s / cores) for run in runs]),
        "psnr_db": None,
        "ssim": None,
        "identical": False,
        "h2d_bytes": report.get("h2d_bytes"),
        "d2h_bytes": report.get("d2h_bytes"),
        "peak_rss_bytes": max((run.report["peak_rss_bytes"] for run in runs), default=None),
        "peak_vram_bytes": max(
            (run.report["peak_vram_bytes"] for run in runs if run.report["peak_vram_bytes"]),
            default=None,
        ),
        "runs": [run.to_dict() for run in runs],
    }
    return result


def _compare(
    results: list[dict[str, Any]], makers: dict[int, _PhaseRow], tell: Callable[[str], None]
) -> None:
    """Speed-up and likeness of each phase to phase 0."""
    first = next((r for r in results if r["id"] == 0 and r["available"]), None)
    if first is None:
        return
    for result in results:
        if not result["available"]:
            continue
        result["speedup"] = result["fps"] / first["fps"]
        if result is not first:
            tell(f"comparing phase {result['id']} with phase 0")
            pictures = compare_pictures(makers[0].output, makers[result["id"]].output).pictures
            psnr, ssim = (pictures.statistic(metric, "y") for metric in ("psnr", "ssim"))
            if psnr is not None:
                result["identical"] = psnr.identical  # JSON has no infinity
                result["psnr_db"] = psnr.mean if math.isfinite(psnr.mean) else None
            result["ssim"] = None if ssim is None else ssim.mean


def _bottleneck(
    best: dict[str, Any], makers: dict[int, _PhaseRow], cores: int
) -> dict[str, Any] | None:
    config = makers[best["id"]].config
    found = find_bottleneck(best["load"], best["cpu_load"], cores, best["backends"], config.encode)
    if found is None:
        return None
    return {"phase": best["id"], "stage": found.stage, "load": found.load, "text": found.text}


def _transcode_rows(config: RenderConfig, info: VideoInfo, folder: Path) -> dict[str, _Row]:
    """Renders with parts left out, and plain transcodes by ffmpeg."""
    config = replace(config, output=folder / f"floor{config.output.suffix}")
    rows = {
        name: _Row(_PhaseRow(phase, config, folder, partial(_render_without, part)))
        for name, part, phase in _LEFT_OUT
    }
    plain = _phase_config(config, PHASES[0], InferBackend.CPU)
    executables = ffmpeg_executables()
    if not executables:
        rows["ffmpeg"] = _Row(_never, reason="no ffmpeg found: pip install '.[quality]'")
        return rows
    executable = executables[-1]  # the user's own rather than the extra's
    words = (ask_ffmpeg(executable, "-version") or "").split()
    name = f"ffmpeg {words[2].partition('-')[0]}" if len(words) > 2 else "ffmpeg"
    rows[name] = _Row(partial(_ffmpeg_transcode, executable, (), plain, info, folder))
    problem = driver_problem(chosen_gpu(config.backends.gpu))
    if problem is None and "cuda" not in (ask_ffmpeg(executable, "-hwaccels") or "").split():
        problem = "this ffmpeg cannot decode on a GPU"
    decoding = ("-hwaccel", "cuda")
    rows[f"{name}: NVDEC"] = _Row(
        partial(_ffmpeg_transcode, executable, decoding, plain, info, folder), reason=problem
    )
    return rows


def _never() -> Run:
    raise BackendUnavailableError("not measured")


def _render_without(part: str, config: RenderConfig, folder: Path) -> Run:
    settings = folder / "floor.toml"
    settings.write_text(preset_text(config), encoding="utf-8")
    command = [
        *python_command("bgsoft.bench.floor"),
        *(part, str(config.input), str(config.output), str(settings)),
    ]
    if config.duration_seconds is not None:
        command.append(repr(config.duration_seconds))
    wall, cpu, text = run_process(command)
    made = json.loads(text)
    return Run(frames=made["frames"], wall_s=wall, cpu_s=cpu, report=made)


def _ffmpeg_transcode(
    executable: str, decoding: Sequence[str], config: RenderConfig, info: VideoInfo, folder: Path
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
    runs = row.runs
    whole = median([run.run_fps for run in runs])
    steady = [run.fps for run in runs if run.report]
    return {
        "name": name,
        "available": bool(runs),
        "reason": row.reason,
        "fps": median(steady),
        "fps_samples": steady,
        "run_fps": whole,
        "run_fps_samples": [run.run_fps for run in runs],
        "ratio": best["run_fps"] / whole if best is not None and whole else None,
        "ratio_phase": None if best is None or not whole else best["id"],
    }
