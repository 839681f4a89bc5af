"""Whole renders, from all-CPU to all-GPU in steps, and a plain transcode for comparison."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.bench.bottleneck import find_bottleneck
from bgsoft.bench.process import Run, preset_text, run_process, run_render
from bgsoft.compare.pictures import compare_pictures
from bgsoft.compare.vmaf import ask_ffmpeg, ffmpeg_executables
from bgsoft.cuda.driver import driver_problem
from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import choose_encoder
from bgsoft.errors import BackendUnavailableError, BgsoftError
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.records import NamedTuple, dataclass
from bgsoft.rendering.backends import STAGES, chosen_gpu
from bgsoft.settings.config import (
    CompositeBackend,
    DecodeBackend,
    EncodeBackend,
    InferBackend,
    Precision,
    RenderConfig,
)


class Phase(NamedTuple):
    """A combination of backends; for inference, the first that runs here is used."""

    name: str
    decode: DecodeBackend = DecodeBackend.CPU
    infer: tuple[InferBackend, ...] = (InferBackend.CPU,)
    composite: CompositeBackend = CompositeBackend.CPU
    encode: EncodeBackend = EncodeBackend.CPU


_ALL_CPU = Phase("all CPU")
_GPU_INFERENCE = Phase("+ GPU inference", infer=(InferBackend.TENSORRT, InferBackend.CUDA))
_NVDEC = _GPU_INFERENCE._replace(name="+ NVDEC", decode=DecodeBackend.NVDEC)
_CUPY = _NVDEC._replace(name="+ CuPy matte and composite", composite=CompositeBackend.CUDA)
_NVENC = _CUPY._replace(name="+ NVENC", encode=EncodeBackend.NVENC)
PHASES = (_ALL_CPU, _GPU_INFERENCE, _NVDEC, _CUPY, _NVENC)

_FLOORS = {
    "bgsoft without encoder": ("picture", _ALL_CPU),
    "bgsoft without encoder (NVDEC, GPU)": ("picture", _CUPY),
    "bgsoft's decoder alone": ("decode", _ALL_CPU),
    "bgsoft's decoder alone (NVDEC)": ("decode", _CUPY._replace(infer=(InferBackend.CPU,))),
}
"""Name → part of a render, and its backends."""


@dataclass(slots=True)
class Measurement:
    """A phase, a part of one, or a transcode, with its runs so far."""

    name: str
    run: Callable[[RenderConfig], Run]
    configs: list[RenderConfig]
    """Settings to try; the first that works is used, and others are dropped."""
    refused: list[str] = field(default_factory=list)
    """Reasons why others do not work."""
    runs: list[Run] = field(default_factory=list)

    def take(self, *, keep: bool) -> None:
        """Run once more, unless it has proved impossible."""
        while self.configs:
            try:
                run = self.run(self.configs[0])
            except BackendUnavailableError as exc:
                self.refused.append(str(exc))
                del self.configs[0]
            else:
                self.runs += [run] if keep else []
                return

    def median(self, figure: Callable[[Run], float]) -> float | None:
        return _median(map(figure, self.runs))

    def medians(self, figures: Callable[[Run], Mapping[str, float]]) -> dict[str, float]:
        """Return the median of every key."""
        rows = [figures(run) for run in self.runs]
        return {key: statistics.median(row[key] for row in rows) for key in (rows or [{}])[0]}

    def result(self) -> dict[str, Any]:
        """Return the figures that results have of any row."""
        steady = [run.fps for run in self.runs if run.report]
        return {
            "name": self.name,
            "available": bool(self.runs),
            "reason": None if self.configs else "; ".join(dict.fromkeys(self.refused)),
            "fps": _median(steady),
            "fps_samples": steady,
            "run_fps": self.median(lambda run: run.run_fps),
            "run_fps_samples": [run.run_fps for run in self.runs],
        }


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def phase_configs(config: RenderConfig, phase: Phase) -> list[RenderConfig]:
    """Return a phase's settings, for each of its inference backends."""
    encode = config.encode
    speed = encode.speed or ""
    if (phase.encode is EncodeBackend.NVENC) != (speed.upper()[:1] == "P" and speed[1:].isdigit()):
        encode = replace(encode, speed=None)  # a setting of the other encoder
    configs = []
    for infer in phase.infer:
        on_cpu = infer is InferBackend.CPU
        backends = replace(
            config.backends,
            decode=phase.decode,
            infer=infer,
            composite=phase.composite,
            encode=phase.encode,
            precision=Precision.FP32 if on_cpu else config.backends.precision,
            require_gpu=False,
        )
        configs.append(replace(config, encode=encode, backends=backends))
    return configs


def in_turns(
    rows: Sequence[Measurement], rounds: int, log: Callable[[str], None]
) -> Iterator[tuple[bool, Measurement]]:
    """Yield every row once a round, after a warm-up round; every other round backwards.

    So a change of the machine's speed affects all rows alike, and no row always follows the same
    one.

    Yields:
        (whether the round counts, row).
    """
    for number in range(rounds + 1):
        log(f"renders: round {number} of {rounds}" if number else "renders: warm-up")
        for row in rows[:: 1 if number % 2 == 0 else -1]:
            yield number > 0, row


def measure_phases(
    config: RenderConfig,
    info: VideoInfo,
    folder: Path,
    *,
    rounds: int,
    cores: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Run every phase and the transcodes, each in its own processes, in turns.

    Returns:
        ``phases``, ``transcodes`` and ``bottleneck`` of the results.

    Raises:
        BgsoftError: A render failed, unless a backend is unavailable.
    """
    phases, outputs = [], []
    for number, phase in enumerate(PHASES):
        outputs.append(folder / f"phase{number}{config.output.suffix}")
        configs = phase_configs(replace(config, output=outputs[-1]), phase)
        phases.append(Measurement(phase.name, lambda made: run_render(made, folder), configs))
    transcodes = transcode_rows(config, info, folder)
    for counts, row in in_turns([*phases, *transcodes], rounds, log):
        row.take(keep=counts)
    results = [_phase_result(number, row, cores) for number, row in enumerate(phases)]
    _compare(results, outputs, log)
    available = [result for result in results if result["available"]]
    best = max(available, key=lambda result: result["run_fps"], default=None)
    bottleneck: dict[str, Any] | None = None
    if best is not None:
        encode = phases[best["id"]].configs[0].encode
        found = find_bottleneck(best["load"], best["cpu_load"], cores, best["backends"], encode)
        bottleneck = None if found is None else {"phase": best["id"], **found}
    floors = []
    for row in transcodes:
        result = row.result()
        ratio = best["run_fps"] / result["run_fps"] if best and result["run_fps"] else None
        ratio_phase = best["id"] if best and ratio else None
        floors.append({**result, "ratio": ratio, "ratio_phase": ratio_phase})
    return {"phases": results, "transcodes": floors, "bottleneck": bottleneck}


def _phase_result(number: int, row: Measurement, cores: int) -> dict[str, Any]:
    reports = [run.report for run in row.runs]
    last = reports[-1] if reports else {}
    vram = [report["peak_vram_bytes"] for report in reports if report["peak_vram_bytes"]]
    return {
        "id": number,
        **row.result(),
        "backends": {
            stage: str(getattr(row.configs[0].backends, stage)) for stage in STAGES if row.configs
        },
        "startup_s": row.median(lambda run: run.wall_s - run.frames / run.fps),
        "speedup": None,
        "stage_ms": row.medians(lambda run: run.stage_ms),
        "load": row.medians(lambda run: run.stage_load),
        "cpu_load": row.median(lambda run: min(1.0, run.cpu_s / run.wall_s / cores)),
        **{key: last.get(key) for key in ("gpu", "h2d_bytes", "d2h_bytes", "versions")},
        "psnr_db": None,
        "ssim": None,
        "identical": False,
        "peak_rss_bytes": max((report["peak_rss_bytes"] for report in reports), default=None),
        "peak_vram_bytes": max(vram, default=None),
        "runs": [run.to_dict() for run in row.runs],
    }


def _compare(
    results: list[dict[str, Any]], outputs: Sequence[Path], log: Callable[[str], None]
) -> None:
    """Add the speed-up and the similarity of each phase to phase 0."""
    first = results[0]
    for result, output in zip(results, outputs, strict=True):
        if not (first["available"] and result["available"]):
            continue
        result["speedup"] = result["fps"] / first["fps"]
        if result is not first:
            log(f"comparing phase {result['id']} with phase 0")
            pictures = compare_pictures(outputs[0], output).pictures
            psnr, ssim = (pictures.statistic(metric, "y") for metric in ("psnr", "ssim"))
            if psnr is not None:
                result["identical"] = psnr.identical  # JSON has no infinity
                result["psnr_db"] = psnr.mean if math.isfinite(psnr.mean) else None
            result["ssim"] = None if ssim is None else ssim.mean


def transcode_rows(config: RenderConfig, info: VideoInfo, folder: Path) -> list[Measurement]:
    """Return rows of parts of a render, and of plain transcodes by ffmpeg."""
    rows = [
        Measurement(name, partial(render_part, part, folder), phase_configs(config, phase))
        for name, (part, phase) in _FLOORS.items()
    ]
    return [*rows, ffmpeg_row(config, info, folder), ffmpeg_row(config, info, folder, nvdec=True)]


def ffmpeg_row(
    config: RenderConfig, info: VideoInfo, folder: Path, *, nvdec: bool = False
) -> Measurement:
    """Return the row of a plain transcode by ffmpeg, decoded on the CPU or by NVDEC."""
    executable = (ffmpeg_executables() or [""])[-1]  # the system's own rather than the extra's
    missing = None if executable else "no ffmpeg was found: pip install '.[quality]'"
    problem = missing
    if nvdec:
        problem = missing or driver_problem(chosen_gpu(config.backends.gpu))
        if problem is None and "cuda" not in (ask_ffmpeg(executable, "-hwaccels") or "").split():
            problem = "this ffmpeg cannot decode on a GPU"
    version = (ask_ffmpeg(executable, "-version") or "").split()[2:3]
    name = " ".join(["ffmpeg", *version]).partition("-")[0] + " transcode"
    decoding = ["-hwaccel", "cuda"] if nvdec else []
    run = partial(_ffmpeg_transcode, executable, info, folder, decoding)
    configs = phase_configs(config, _ALL_CPU) if problem is None else []
    return Measurement(
        f"{name} (NVDEC)" if nvdec else name, run, configs, [problem] if problem else []
    )


def render_part(part: str, folder: Path, config: RenderConfig) -> Run:
    """Run a part of a render; :mod:`bgsoft.bench.floor` lists the parts."""
    settings = folder / "floor.toml"
    settings.write_text(preset_text(config), encoding="utf-8")
    command = [sys.executable, "-m", "bgsoft.bench.part", part, str(config.input), str(settings)]
    if config.duration_seconds is not None:
        command.append(repr(config.duration_seconds))
    wall, cpu, text = run_process(command)
    made = json.loads(text)
    return Run(frames=made["frames"], wall_s=wall, cpu_s=cpu, report=made)


def _ffmpeg_transcode(
    executable: str, info: VideoInfo, folder: Path, decoding: Sequence[str], config: RenderConfig
) -> Run:
    """Transcode with the same encoder and settings, and copied sound."""
    output = folder / f"ffmpeg{config.output.suffix}"
    container = container_for(config.output)
    threads = config.backends.threads
    choice = choose_encoder(config.encode, container, info, PictureKind.COLOR, threads)
    limit = [] if config.duration_seconds is None else ["-t", repr(config.duration_seconds)]
    coded = [part for key, value in choice.options.items() for part in (f"-{key}", value)]
    # ffmpeg passes frames through unchanged; PyAV's NV12 is its yuv420p in another layout.
    command = [
        *(executable, "-v", "error", "-nostdin", "-y", *limit, *decoding),
        *("-i", str(config.input)),
        *("-map", "0:v:0", "-map", "0:a?", "-c:a", "copy", "-c:v", choice.encoder),
        *(*coded, "-pix_fmt", choice.coded_format, "-progress", "pipe:1", str(output)),
    ]
    try:
        wall, cpu, text = run_process(command)
    except BgsoftError as exc:  # an ffmpeg without this encoder
        raise BackendUnavailableError(f"cannot transcode with ffmpeg: {exc}") from exc
    counts = [line.partition("=")[2] for line in text.splitlines() if line.startswith("frame=")]
    return Run(frames=int(counts[-1]), wall_s=wall, cpu_s=cpu, report={})
