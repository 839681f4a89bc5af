"""``bgsoft doctor --full``: every stage, codec, model and combination of backends, a row each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import bgsoft
from bgsoft.diagnose.checks import Checks, Finding, SkippedError, check_psnr, decibels
from bgsoft.diagnose.clips import CLIPS, ClipSpec, write_clip
from bgsoft.diagnose.machine import reason_of
from bgsoft.diagnose.parity import MIN_COMBINATION_DB, MIN_MATTE_DB, MIN_SCHEDULED_MATTE_DB
from bgsoft.diagnose.stages import DecodedFrame, decode_clip, lowest_psnr_db
from bgsoft.errors import VerificationError
from bgsoft.frame import PixelLayout
from bgsoft.models.catalog import catalog, is_present
from bgsoft.records import dataclass
from bgsoft.rendering import backends
from bgsoft.report import Progress, RenderReport
from bgsoft.settings.config import Codec, Precision, SegmentConfig

_ON_CPU = dict.fromkeys(backends.STAGES, "cpu")
_FULL_QUALITY = 8
"""Quality of combinations, for x264 and NVENC, high enough to show differences of other stages."""
_SMALL_BYTES = 10_240
"""Bytes per frame that may cross PCIe in addition to frames and the model's tensors."""
_MEMORY_FRAMES = 2000
_MEMORY_SLACK_BYTES = 16 << 20
"""Allowed variation of used device memory; a leak of 640x360 frames would be 691 MB."""
_CRASH_WORDS = ("CUDA error", "cudaError", "CUDA_ERROR", "terminate called", "Traceback", "Fatal")
"""Messages of CUDA's libraries and of Python after a wrong order of destruction."""


class FullChecks(Checks):
    """Checks by whole renders and whole processes."""

    def mattes(self, model: str, matte: str, infer: str, composite: str) -> Finding:
        """Compare a model's mattes of a clip with the CPU's."""
        self.need("infer", infer)
        self.need("composite", composite)
        clip = write_clip(self.folder, CLIPS[0])
        options = {"effect": "matte", "codec": "ffv1", "model": model, "matte": matte}
        chosen = {**_ON_CPU, "infer": infer, "composite": composite}
        report, shown = self._render(clip, "mattes.mkv", chosen, **options)
        worst = lowest_psnr_db(shown, self._render(clip, "mattes.mkv", _ON_CPU, **options)[1])
        detail = f"{decibels(worst)} to the CPU's, {report.d2h_bytes:,.0f} bytes back"
        min_db = MIN_MATTE_DB[infer] if matte == "fast" else MIN_SCHEDULED_MATTE_DB
        check_psnr(worst, min_db, detail)
        return Finding(detail, report.stages["segment"].ms_per_frame)

    def combination(self, chosen: Mapping[str, str]) -> Finding:
        """Render with a backend for each stage, and compare with the CPU alone."""
        for stage, backend in chosen.items():
            self.need(stage, backend)
        clip = write_clip(self.folder, CLIPS[1])
        self.need_decoder(chosen["decode"], clip)
        self.need_encoder(chosen["encode"])
        speed = "P4" if chosen["encode"] == "nvenc" else "ultrafast"
        report, shown = self._render(clip, "c.mp4", chosen, quality=_FULL_QUALITY, speed=speed)
        ran = {stage: report.stages["segment" if stage == "infer" else stage] for stage in chosen}
        if {stage: stage_report.backend for stage, stage_report in ran.items()} != chosen:
            raise VerificationError("another backend ran")
        if [frame.pts for frame in shown] != [frame.pts for frame in decode_clip(clip)[0]]:
            raise VerificationError("timestamps changed")
        crossed = (
            f"per frame {report.h2d_bytes:,.0f} bytes to the device, {report.d2h_bytes:,.0f} back"
        )
        stays = chosen["decode"] == "nvdec" and chosen["infer"] == chosen["composite"] == "cuda"
        if stays and report.h2d_bytes > _SMALL_BYTES:
            raise VerificationError(f"frames should stay on the device: {crossed}")
        reference = shown
        if chosen != _ON_CPU:
            options: dict[str, Any] = {"quality": _FULL_QUALITY, "speed": "ultrafast"}
            reference = self._render(clip, "c.mp4", _ON_CPU, **options)[1]
        worst = lowest_psnr_db(shown, reference)
        detail = f"{decibels(worst)} to the CPU's, {crossed}"
        check_psnr(worst, MIN_COMBINATION_DB, detail)
        return Finding(detail)

    def _render(
        self, clip: Path, name: str, chosen: Mapping[str, str], **options: Any
    ) -> tuple[RenderReport, list[DecodedFrame]]:
        gpu = None if set(chosen.values()) == {"cpu"} else self.gpu
        options = {"matte": "fast", **options, **chosen, "gpu": gpu}
        target = self.folder / name
        report = bgsoft.render(clip, target, overwrite=True, face="off", **options)
        for event in report.events:
            if event.kind in ("fault", "retry", "fallback"):
                raise VerificationError(event.message)
        return report, decode_clip(target)[0]

    def memory(self) -> Finding:
        """Check that used device memory is constant over a long render."""
        device = self.device
        self.need("composite", "cuda")
        spec = ClipSpec(name="long.mp4", options=CLIPS[0].options, frames=_MEMORY_FRAMES)
        clip = write_clip(self.folder, spec)
        used: list[int] = []

        def sample(progress: Progress) -> None:
            # After the last frame, models and decoder have been freed.
            if _MEMORY_FRAMES // 10 < progress.frames < _MEMORY_FRAMES:
                used.append(device.used_bytes())

        target = self.folder / "long-out.mp4"
        report = bgsoft.render(clip, target, gpu=self.gpu, composite="cuda", on_progress=sample)
        if report.frames_encoded != _MEMORY_FRAMES:
            raise VerificationError(f"{report.frames_encoded} frames, not {_MEMORY_FRAMES}")
        if len(used) <= 3:
            raise VerificationError("the render was too fast to sample")
        growth = max(used) - min(used)
        detail = f"{max(used) / 1e6:.0f} MB in use on the device, varies by {growth / 1e6:.1f} MB"
        if growth > _MEMORY_SLACK_BYTES:
            raise VerificationError(detail)
        peak = report.peak_vram_bytes
        by_nvml = "unknown" if peak is None else f"{peak / 1e6:.0f} MB"
        return Finding(f"{detail}; peak by NVML {by_nvml}; {report.fps:.0f} frames/s")

    def exit(self) -> Finding:
        """Check that a process which has used the GPU exits without a message from CUDA."""
        self.need("composite", "cuda")
        clip, target = write_clip(self.folder, CLIPS[0]), self.folder / "exit.mp4"
        command = [sys.executable, "-X", "faulthandler", "-m", "bgsoft", "render", str(clip)]
        command += [str(target), "-y", "--composite", "cuda", "--gpu", str(self.gpu)]
        command += ["--progress", "none"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stderr.strip().splitlines()
        if done.returncode != 0:
            raise VerificationError(f"exit code {done.returncode}: {lines[-1] if lines else ''}")
        for line in lines:
            if any(word in line for word in _CRASH_WORDS):
                raise VerificationError(line)
        return Finding("exit code 0, no message")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A row of the table."""

    group: str
    name: str
    status: str
    """``pass``, ``FAIL``, or ``skip``: not installed, or not supported by this GPU."""
    detail: str
    seconds: float


Check = Callable[[FullChecks], Finding]
_CODECS = (
    ("h264", Codec.H264, PixelLayout.NV12),
    ("hevc", Codec.HEVC, PixelLayout.NV12),
    ("hevc10", Codec.HEVC, PixelLayout.P010),
    ("av1", Codec.AV1, PixelLayout.NV12),
)


def _decode() -> dict[str, Check]:
    return {
        f"{backend} {spec.name}": partial(FullChecks.decode, backend=backend, spec=spec)
        for backend, spec in product(("cpu", "nvdec"), CLIPS)
    }


def _inference() -> dict[str, Check]:
    models = [m.name for m in catalog().values() if m.embedded and m.family == "single-shot"]
    choices = [("cpu", Precision.FP32), *product(("cuda", "tensorrt"), Precision)]
    return {
        f"{model} {backend} {precision}": partial(
            FullChecks.infer, backend=backend, model=model, precision=precision
        )
        for model, (backend, precision) in product(models, choices)
    }


def _mattes() -> dict[str, Check]:
    models = [
        spec.name for spec in catalog().values() if spec.of_family.makes_masks and is_present(spec)
    ]
    places = ("cuda", "cpu")
    cases = [
        *product(models, ["fast"], MIN_MATTE_DB, places),
        *product([SegmentConfig().model], ["standard", "best"], ["cuda"], places),
    ]
    return {
        f"{model} {matte} {infer} {composite}": partial(
            FullChecks.mattes, model=model, matte=matte, infer=infer, composite=composite
        )
        for model, matte, infer, composite in cases
    }


def _encode() -> dict[str, Check]:
    return {
        f"{backend} {name}": partial(FullChecks.encode, backend=backend, codec=codec, layout=layout)
        for backend, (name, codec, layout) in product(("cpu", "nvenc"), _CODECS)
    }


def _combinations() -> dict[str, Check]:
    names = [list(reversed(backends.names(stage))) for stage in backends.STAGES]
    return {
        " ".join(chosen): partial(
            FullChecks.combination, chosen=dict(zip(backends.STAGES, chosen, strict=True))
        )
        for chosen in product(*names)
    }


GROUPS: dict[str, Callable[[], dict[str, Check]]] = {
    # Memory comes first: leftovers of other rows would disturb it.
    "memory": lambda: {"flat over a long render": FullChecks.memory},
    "decode": _decode,
    "inference": _inference,
    "mattes": _mattes,
    "encode": _encode,
    "combinations": _combinations,
    "exit": lambda: {"a process ends without a CUDA error": FullChecks.exit},
}
"""The checks of each group, by name; the GPU tests run them too."""


def run_group(group: str, gpu: int = 0) -> Iterator[CheckResult]:
    """Run the checks of one of :data:`GROUPS`, and yield each result."""
    with tempfile.TemporaryDirectory(prefix="bgsoft-doctor-") as folder:
        checks = FullChecks(Path(folder), gpu, backends.probe_all(gpu))
        for name, check in GROUPS[group]().items():
            yield _run(group, name, partial(check, checks))


def _run(group: str, name: str, check: Callable[[], Finding]) -> CheckResult:
    started = time.perf_counter()
    try:
        found = check()
        ms = found.ms_per_frame
        status, detail = "pass", found.detail if ms is None else f"{ms:.2f} ms, {found.detail}"
    except SkippedError as exc:
        status, detail = "skip", exc.message
    except Exception as exc:  # vendors' libraries raise any type
        status, detail = "FAIL", reason_of(exc)
    return CheckResult(group, name, status, detail, time.perf_counter() - started)
