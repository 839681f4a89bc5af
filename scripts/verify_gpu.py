#!/usr/bin/env python3
"""Does every stage of bgsoft work on this machine's NVIDIA GPU? One command, one table.

    python scripts/verify_gpu.py [--gpu 0] [--require-gpu] [--json FILE] [--only GROUP ...]

Groups, in order: environment, memory, decode, inference, parity, mattes, encode, combinations,
exit. Each row passes, fails or is skipped, with figures or the reason. Whatever has a reference on
the CPU is compared with it. Skipped is what is not installed or what this GPU's own answer leaves
out; what should run and does not has failed. Without a GPU the CPU rows still run.

``--only mattes --model rvm-mobilenetv3 --clip CLIP.mp4`` compares the mattes that a model makes of
a clip; by default those of all models that are here, on the sample.

The exit code is 0 where nothing failed, 4 where the GPU that was named is not there; with
``--require-gpu`` a skipped row counts as failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import bgsoft
from bgsoft import backends
from bgsoft.config import (
    Codec,
    CompositeBackend,
    DecodeBackend,
    EncodeBackend,
    InferBackend,
    Precision,
)
from bgsoft.doctor import examine
from bgsoft.errors import BackendUnavailableError, BgsoftError, VerificationError
from bgsoft.frame import PixelLayout
from bgsoft.models.catalog import SEGMENTATION_FAMILIES, catalog, resolve, spec_path
from bgsoft.report import Progress, RenderReport
from bgsoft.selftest import parity
from bgsoft.selftest.checks import Checks, Finding, SkippedError, decibels
from bgsoft.selftest.clips import CLIPS, ClipSpec, write_clip
from bgsoft.selftest.stages import DecodedFrame, decode_clip, lowest_psnr_db

SAMPLE = Path(__file__).parents[1] / "samples" / "person.mp4"
LEAST_MATTE_DB = {"cuda": 45.0, "tensorrt": 35.0}
"""PSNR of every matte from the CPU's; TensorRT computes with ten bits of a number's fraction."""
LEAST_COMBINATION_DB = 40.0
"""PSNR of luma between any combination of backends and the CPU alone, both after encoding."""
FULL_QUALITY = 8
"""Of combinations, for x264 and NVENC alike, so that encoders hide nothing."""
MATTE_SECONDS = 2.0
MEMORY_FRAMES = 2000
MEMORY_SLACK_BYTES = 16 << 20
"""By how much device memory in use may vary; a leak of one 640x360 frame each would be 691 MB."""
CRASH_WORDS = ("CUDA error", "cudaError", "CUDA_ERROR", "terminate called", "Traceback", "Fatal")
"""Of CUDA's libraries and of Python, when something is torn down in the wrong order."""


def check_events(report: RenderReport) -> None:
    """Raise where a backend failed, though the render went on."""
    for event in report.events:
        if event.kind in ("fault", "retry", "fallback"):
            raise VerificationError(event.message)


class GpuChecks(Checks):
    """Whole renders, and what only a whole process shows."""

    def mattes(self, clip: Path, model: str, infer: str, composite: str) -> Finding:
        """Compare the mattes that a model makes of a clip with the CPU's."""
        self.need("infer", infer)
        self.need("composite", composite)
        report, shown = self._render_mattes(clip, model, infer, composite)
        worst = lowest_psnr_db(shown, self._render_mattes(clip, model, "cpu", "cpu")[1])
        detail = f"{decibels(worst)} to the CPU's, {report.d2h_bytes:,.0f} bytes back"
        if worst < LEAST_MATTE_DB[infer]:
            raise VerificationError(f"{detail}: less than {LEAST_MATTE_DB[infer]:g} dB")
        return Finding(detail, report.stages["segment"].ms_per_frame)

    def _render_mattes(
        self, clip: Path, model: str, infer: str, composite: str
    ) -> tuple[RenderReport, list[DecodedFrame]]:
        target = self.folder / f"mattes-{infer}-{composite}.mkv"
        report = bgsoft.render(
            clip,
            target,
            overwrite=True,
            duration=MATTE_SECONDS,
            effect="matte",
            codec="ffv1",
            face="off",
            model=model,
            gpu=None if infer == composite == "cpu" else self.gpu,
            decode="cpu",
            infer=InferBackend(infer),
            composite=CompositeBackend(composite),
            encode="cpu",
        )
        check_events(report)
        return report, decode_clip(target)[0]

    def combination(self, chosen: Mapping[str, str]) -> Finding:
        """Render with a backend for each stage; the CPU alone must make the same of the clip."""
        for stage, backend in chosen.items():
            self.need(stage, backend)
        clip = write_clip(self.folder, CLIPS[1])
        self.need_decoder(chosen["decode"], clip)
        self.need_encoder(chosen["encode"])
        report, shown = self._render(clip, chosen)
        ran = {stage: report.stages["segment" if stage == "infer" else stage] for stage in chosen}
        if {stage: stage_report.backend for stage, stage_report in ran.items()} != chosen:
            raise VerificationError("another backend ran")
        if [frame.pts for frame in shown] != [frame.pts for frame in decode_clip(clip)[0]]:
            raise VerificationError("timestamps changed")
        cpu = dict.fromkeys(chosen, "cpu")
        reference = shown if chosen == cpu else self._render(clip, cpu)[1]
        worst = lowest_psnr_db(shown, reference)
        detail = (
            f"{decibels(worst)} to the CPU's, per frame {report.h2d_bytes:,.0f} bytes to the "
            f"device, {report.d2h_bytes:,.0f} back"
        )
        if worst < LEAST_COMBINATION_DB:
            raise VerificationError(f"{detail}: less than {LEAST_COMBINATION_DB:g} dB")
        return Finding(detail)

    def _render(
        self, clip: Path, chosen: Mapping[str, str]
    ) -> tuple[RenderReport, list[DecodedFrame]]:
        target = self.folder / f"{'-'.join(chosen.values())}.mp4"
        report = bgsoft.render(
            clip,
            target,
            overwrite=True,
            gpu=None if set(chosen.values()) == {"cpu"} else self.gpu,
            quality=FULL_QUALITY,
            speed="P4" if chosen["encode"] == "nvenc" else "ultrafast",
            decode=DecodeBackend(chosen["decode"]),
            infer=InferBackend(chosen["infer"]),
            composite=CompositeBackend(chosen["composite"]),
            encode=EncodeBackend(chosen["encode"]),
        )
        check_events(report)
        return report, decode_clip(target)[0]

    def memory(self) -> Finding:
        """Device memory in use stays flat over a long render."""
        device = self.device
        self.need("composite", "cuda")
        spec = ClipSpec(name="long.mp4", options=CLIPS[0].options, frames=MEMORY_FRAMES)
        clip = write_clip(self.folder, spec)
        used: list[int] = []

        def sample(progress: Progress) -> None:
            # After the last frame models and decoder have been freed.
            if MEMORY_FRAMES // 10 < progress.frames < MEMORY_FRAMES:
                used.append(device.used_bytes())

        target = self.folder / "long-out.mp4"
        report = bgsoft.render(clip, target, gpu=self.gpu, composite="cuda", on_progress=sample)
        if report.frames_encoded != MEMORY_FRAMES:
            raise VerificationError(f"{report.frames_encoded} frames, not {MEMORY_FRAMES}")
        if len(used) <= 3:
            raise VerificationError("too fast to look")
        growth = max(used) - min(used)
        detail = f"{max(used) / 1e6:.0f} MB in use on the device, varies by {growth / 1e6:.1f} MB"
        if growth > MEMORY_SLACK_BYTES:
            raise VerificationError(detail)
        peak = report.peak_vram_bytes
        by_nvml = "unknown" if peak is None else f"{peak / 1e6:.0f} MB"
        return Finding(f"{detail}; peak by NVML {by_nvml}; {report.fps:.0f} frames/s")

    def exit(self) -> Finding:
        """A process that has used the GPU ends without a word from CUDA's libraries."""
        self.need("composite", "cuda")
        clip, target = write_clip(self.folder, CLIPS[0]), self.folder / "exit.mp4"
        command = [sys.executable, "-X", "faulthandler", "-m", "bgsoft", "render", str(clip)]
        command += [str(target), "-y", "--composite", "cuda", "--gpu", str(self.gpu)]
        done = subprocess.run(
            [*command, "--progress", "none"], capture_output=True, text=True, check=False
        )
        lines = done.stderr.strip().splitlines()
        if done.returncode != 0:
            raise VerificationError(f"exit code {done.returncode}: {lines[-1] if lines else ''}")
        for line in lines:
            if any(word in line for word in CRASH_WORDS):
                raise VerificationError(line)
        return Finding("exit code 0, no message")


Rows = Iterator[tuple[str, Callable[[], Finding]]]
"""(name, check) of each row of a group."""


@dataclass(frozen=True)
class Row:
    group: str
    name: str
    status: str
    detail: str
    seconds: float


def environment(checks: Checks, gpu: int) -> Rows:
    report = examine(gpu, self_test=False)

    def render_needs() -> Finding:
        if report.problems:
            raise VerificationError(report.problems[0])
        return Finding(", ".join(f"{n} {v}" for n, v in report.versions.items() if v))

    def describe() -> Finding:
        checks.device  # noqa: B018 - starts it
        found = report.gpu
        if found is None:
            raise VerificationError("the GPU cannot be described")
        return Finding(
            f"{found.name}, {found.memory_bytes / 2**30:.0f} GiB, compute capability "
            f"{found.compute_capability}, driver {found.driver}, CUDA runtime {found.runtime}"
        )

    yield "a render on the CPU", render_needs
    yield "GPU", describe


def decode(checks: Checks) -> Rows:
    for backend, spec in product(("cpu", "nvdec"), CLIPS):
        yield f"{backend} {spec.name}", partial(checks.decode, backend, spec)


def inference(checks: Checks) -> Rows:
    models = [m.name for m in catalog().values() if m.embedded and m.family == "single-shot"]
    choices = [("cpu", Precision.FP32), *product(("cuda", "tensorrt"), Precision)]
    for model, (backend, precision) in product(models, choices):
        yield (
            f"{model} {backend} {precision}",
            partial(checks.infer, backend, model, precision),
        )


def pictures(checks: Checks) -> Rows:
    def raised(error: Exception) -> Finding:
        raise error

    def judge(found: parity.Parity) -> Finding:
        figures = (
            f"max {found.max_difference:.3g}, mean {found.mean_difference:.2g}, "
            f"allowed: {found.tolerance}"
        )
        if not found.ok:
            raise VerificationError(figures)
        return Finding(figures)

    try:
        checks.need("composite", "cuda")
        side = parity.CudaSide(checks.device)
        for result in parity.measure_parity(side, resolve("selfie-general").spec):
            yield result.name, partial(judge, result)
    except Exception as exc:  # the rows that are left cannot be run
        yield "reduce, preprocess, matte, composite", partial(raised, exc)


def mattes(checks: GpuChecks, model: str | None, clip: Path) -> Rows:
    models = [
        spec.name
        for spec in catalog().values()
        if spec.family in SEGMENTATION_FAMILIES and spec_path(spec).is_file()
    ]
    choices = product([model] if model else models, LEAST_MATTE_DB, ("cuda", "cpu"))
    for name, infer, composite in choices:
        yield (
            f"{Path(name).stem} {infer} {composite}",
            partial(checks.mattes, clip, name, infer, composite),
        )


def encode(checks: Checks) -> Rows:
    kinds = (
        ("h264", Codec.H264, PixelLayout.NV12),
        ("hevc", Codec.HEVC, PixelLayout.NV12),
        ("hevc10", Codec.HEVC, PixelLayout.P010),
        ("av1", Codec.AV1, PixelLayout.NV12),
    )
    for backend, (name, codec, layout) in product(("cpu", "nvenc"), kinds):
        yield f"{backend} {name}", partial(checks.encode, backend, codec, layout)


def combinations(checks: GpuChecks) -> Rows:
    names = [[c.name for c in checks.stages[stage]][::-1] for stage in backends.STAGES]
    for chosen in product(*names):
        by_stage = dict(zip(backends.STAGES, chosen, strict=True))
        yield " ".join(chosen), partial(checks.combination, by_stage)


def groups(checks: GpuChecks, options: argparse.Namespace, gpu: int) -> dict[str, Rows]:
    return {
        "environment": environment(checks, gpu),
        # Memory comes early: what other rows leave in the process would blur it.
        "memory": iter([("flat over a long render", checks.memory)]),
        "decode": decode(checks),
        "inference": inference(checks),
        "parity": pictures(checks),
        "mattes": mattes(checks, options.model, options.clip),
        "encode": encode(checks),
        "combinations": combinations(checks),
        "exit": iter([("a process ends without a CUDA error", checks.exit)]),
    }


def run_row(group: str, name: str, check: Callable[[], Finding], verbose: bool) -> Row:
    started = time.perf_counter()
    try:
        found = check()
        ms = found.ms_per_frame
        status, detail = "pass", found.detail if ms is None else f"{ms:.2f} ms, {found.detail}"
    except SkippedError as exc:
        status, detail = "skip", exc.message
    except Exception as exc:  # whatever it is, it is this row's result
        if verbose:
            traceback.print_exc()
        what = "" if isinstance(exc, BgsoftError) else f"{type(exc).__name__}: "
        status, detail = "FAIL", what + " ".join(str(exc).split())
    return Row(group, name, status, detail, time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, metavar="N")
    parser.add_argument("--require-gpu", action="store_true", help="skipped rows count as failed")
    parser.add_argument("--only", nargs="+", metavar="GROUP")
    parser.add_argument("--model", metavar="NAME", help="of the group mattes; also FILE.onnx")
    parser.add_argument("--clip", type=Path, default=SAMPLE, metavar="FILE", help="of the same")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks of failures")
    options = parser.parse_args()
    try:
        gpu = backends.chosen_gpu(options.gpu)
    except BackendUnavailableError as exc:
        parser.exit(4, f"{exc}\n")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        found = groups(GpuChecks(Path(name), gpu), options, gpu)
        unknown = set(options.only or ()) - set(found)
        if unknown:
            parser.error(f"--only: {', '.join(sorted(unknown))}: choose from {', '.join(found)}")
        for group in options.only or found:
            print(group)
            for title, check in found[group]:
                row = run_row(group, title, check, options.verbose)
                rows.append(row)
                print(f"  {row.status}  {row.name:<40} {row.detail}", flush=True)
    counts = {s: sum(row.status == s for row in rows) for s in ("pass", "FAIL", "skip")}
    print(f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    if options.json:
        result = {"counts": counts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return int(counts["FAIL"] > 0 or (options.require_gpu and counts["skip"] > 0))


if __name__ == "__main__":
    sys.exit(main())
