#!/usr/bin/env python3
"""Does every stage of bgsoft work on this machine's NVIDIA GPU? One command, one table.

    python scripts/verify_gpu.py [--gpu 0] [--require-gpu] [--json FILE] [--only GROUP ...]

Groups, in order: environment, memory, decode, inference, parity, mattes, encode, combinations,
exit. Each row passes, fails or is skipped, with figures or the reason. Whatever has a reference on
the CPU is compared with it. Skipped is what is not installed or what this GPU's own answer leaves
out; what should run and does not has failed. Without a GPU the CPU rows still run.

``--only mattes --model rvm-mobilenetv3 --clip CLIP.mp4`` compares the mattes that a model makes of
a clip; unless told, those of all models that are here, on the sample.

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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

import bgsoft
from bgsoft import backends
from bgsoft.config import Codec, Precision
from bgsoft.doctor import examine
from bgsoft.errors import BackendUnavailableError
from bgsoft.frame import PixelLayout
from bgsoft.media.probe import probe
from bgsoft.models.catalog import SEGMENTATION_FAMILIES, catalog, resolve, spec_path
from bgsoft.report import Progress
from bgsoft.selftest.clips import CLIPS, ClipSpec, draw_frame, write_clip
from bgsoft.selftest.parity import mask_tolerance
from bgsoft.selftest.stages import (
    Shown,
    decode_clip,
    difference,
    encode_frames,
    lowest_psnr_db,
    run_model,
)

LEAST_ENCODED_DB = 34.0
"""PSNR of luma that an encoder must reach at its default quality."""
LEAST_COMBINATION_DB = 40.0
"""PSNR of luma between any combination of backends and the CPU alone, both after encoding."""
LEAST_MATTE_DB = {"cuda": 45.0, "tensorrt": 35.0}
"""PSNR of every matte from the CPU's; TensorRT computes with ten bits of a number's fraction."""
MATTE_SECONDS = 2.0
SAMPLE = Path(__file__).parents[1] / "samples" / "person.mp4"
MEMORY_FRAMES = 2000
MEMORY_SLACK_BYTES = 16 << 20
"""By how much device memory in use may vary; a leak of one 640x360 frame each would be 691 MB."""
CRASH_WORDS = ("CUDA error", "cudaError", "CUDA_ERROR", "terminate called", "Traceback", "Fatal")
"""Of CUDA's libraries and of Python, when something is torn down in the wrong order."""
FULL_QUALITY = 8
"""Of combinations, for x264 and NVENC alike, so that encoders hide nothing."""


class Skip(Exception):  # noqa: N818 - no error
    """This row cannot be checked here; the text says why."""


@dataclass(frozen=True)
class Row:
    group: str
    name: str
    status: str
    detail: str
    seconds: float


class Checks:
    """All rows; each method with a group's name yields (row name, what to run)."""

    def __init__(
        self, gpu: int, folder: Path, model: str | None = None, clip: Path = SAMPLE
    ) -> None:
        self._model = model
        self._clip = clip
        self._gpu = gpu
        self._folder = folder
        self._device = None
        self._problem = backends.driver_problem(gpu)
        self._stages = backends.probe_all(gpu)

    @property
    def device(self):
        if self._problem is not None:
            raise Skip(self._problem)
        if self._device is None:
            try:
                from bgsoft.cuda.device import CudaDevice
            except ImportError as exc:
                raise Skip(f"{exc}: pip install '.[gpu]'") from exc
            self._device = CudaDevice(self._gpu)
        return self._device

    def need(self, stage: str, backend: str):
        """The device for a backend, None for the CPU; skips what is not here."""
        candidate = next(c for c in self._stages[stage] if c.name == backend)
        if not candidate.available:
            raise Skip(candidate.explanation)
        return None if backend == "cpu" else self.device

    def need_decoder(self, backend: str, clip: Path):
        """The same for decoding a clip; skips what NVDEC itself says it does not decode."""
        device = self.need("decode", backend)
        if backend == "nvdec":
            from bgsoft.cuda.video_codec import decoder_caps
            from bgsoft.decode.nv_caps import caps_reason, nv_codec

            info = probe(clip)
            caps = decoder_caps(self._gpu, nv_codec(info).name, info.format.bit_depth)
            reason = caps_reason(caps, info)
            if reason is not None:
                raise Skip(f"NVDEC: {reason}")
        return device

    def need_encoder(self, backend: str, codec: str = "h264", bits: int = 8):
        """The same for encoding; skips what NVENC itself says it does not encode."""
        device = self.need("encode", backend)
        if backend == "nvenc":
            from bgsoft.cuda.video_codec import encoder_caps

            try:
                caps = encoder_caps(self._gpu, codec)
            except BackendUnavailableError as exc:
                raise Skip(str(exc)) from exc
            if bits > 8 and not caps.get("support_10bit_encode", 0):
                raise Skip(f"NVENC: this GPU does not encode {codec} at {bits} bits")
        return device

    def environment(self) -> Iterator[tuple[str, Callable[[], str]]]:
        report = examine(self._gpu, self_test=False)

        def gpu() -> str:
            self.device  # noqa: B018 - starts it
            found = report.gpu
            assert found is not None
            return (
                f"{found.name}, {found.memory_bytes / 2**30:.0f} GiB, compute capability "
                f"{found.compute_capability}, driver {found.driver}, CUDA runtime {found.runtime}"
            )

        def render_needs() -> str:
            assert not report.problems, report.problems[0]
            return ", ".join(f"{n} {v}" for n, v in report.versions.items() if v)

        yield "a render on the CPU", render_needs
        yield "GPU", gpu

    def decode(self) -> Iterator[tuple[str, Callable[[], str]]]:
        for backend, spec in product(("cpu", "nvdec"), CLIPS):
            yield f"{backend} {spec.name}", lambda b=backend, s=spec: self._decode(b, s)

    def _decode(self, backend: str, spec: ClipSpec) -> str:
        self.need("decode", backend)
        clip = write_clip(self._folder, spec)
        device = self.need_decoder(backend, clip)
        shown, seconds = decode_clip(clip, backend, device)
        assert len(shown) == spec.frames, f"{len(shown)} frames, not {spec.frames}"
        figure = f"{len(shown)} frames, {1000 * seconds / len(shown):.2f} ms a frame"
        if backend == "cpu":
            return figure
        problem = difference(shown, decode_clip(clip)[0])
        assert problem is None, problem
        return f"{figure}, frames and timestamps equal to the CPU's"

    def inference(self) -> Iterator[tuple[str, Callable[[], str]]]:
        models = [m.name for m in catalog().values() if m.embedded and m.family == "single-shot"]
        choices = [("cpu", Precision.FP32)]
        choices += product(("cuda", "tensorrt"), (Precision.FP32, Precision.FP16))
        for model, (backend, precision) in product(models, choices):
            yield (
                f"{model} {backend} {precision}",
                lambda m=model, b=backend, p=precision: self._infer(m, b, p),
            )

    def _infer(self, name: str, backend: str, precision: Precision) -> str:
        device = self.need("infer", backend)
        model, frame = resolve(name), draw_frame(7, 1280, 720)
        mask = run_model(model, frame, backend, device, precision=precision, runs=50)
        share = float((mask.values > 0.5).mean())
        assert 0.02 < share < 0.9, f"{share:.0%} of the picture is person"
        figure = f"{mask.provider}, {mask.ms_per_frame:.2f} ms a frame"
        if backend == "cpu":
            return f"{figure}, {share:.0%} of the picture is person"
        reference = run_model(model, frame, runs=1)
        worst = float(np.abs(mask.values - reference.values).max())
        allowed = mask_tolerance(backend, precision)
        assert worst <= allowed, f"mask differs by {worst:.4f}, more than {allowed}"
        return f"{figure}, mask within {worst:.1e} of the CPU's"

    def parity(self) -> Iterator[tuple[str, Callable[[], str]]]:
        from bgsoft.selftest.parity import CudaSide, measure_parity

        try:
            self.need("composite", "cuda")
            side = CudaSide(self.device)
        except (Skip, BackendUnavailableError) as exc:

            def unavailable(error=exc) -> str:
                raise error

            yield "reduce, preprocess, matte, composite", unavailable
            return
        # Rows are told by the library, one by one: each is run by asking for the next.
        results = measure_parity(side, resolve("selfie-general").spec)
        while True:
            try:
                result = next(results)
            except StopIteration:
                return
            except Exception as exc:  # the rows that are left cannot be run

                def stopped(error=exc) -> str:
                    raise error

                yield "the remaining stages", stopped
                return

            def judge(found=result) -> str:
                figures = (
                    f"max {found.max_difference:.3g}, mean {found.mean_difference:.2g}, "
                    f"allowed: {found.tolerance}"
                )
                assert found.ok, figures
                return figures

            yield result.name, judge

    def mattes(self) -> Iterator[tuple[str, Callable[[], str]]]:
        models = (
            [self._model]
            if self._model
            else [
                spec.name
                for spec in catalog().values()
                if spec.family in SEGMENTATION_FAMILIES and spec_path(spec).is_file()
            ]
        )
        for model, infer, composite in product(models, LEAST_MATTE_DB, ("cuda", "cpu")):
            yield (
                f"{Path(model).stem} {infer} {composite}",
                lambda m=model, i=infer, c=composite: self._mattes(m, i, c),
            )

    def _mattes(self, model: str, infer: str, composite: str) -> str:
        self.need("infer", infer)
        self.need("composite", composite)
        report, shown = self._render_mattes(model, infer, composite)
        faults = [e.message for e in report.events if e.kind in ("fault", "retry", "fallback")]
        assert not faults, faults[0]
        worst = lowest_psnr_db(shown, self._render_mattes(model, "cpu", "cpu")[1])
        figures = (
            f"{worst:.1f} dB to the CPU's, {report.stages['segment'].ms_per_frame:.2f} ms a frame, "
            f"{report.d2h_bytes:,.0f} bytes back"
        )
        assert worst >= LEAST_MATTE_DB[infer], figures
        return figures

    def _render_mattes(
        self, model: str, infer: str, composite: str
    ) -> tuple[bgsoft.RenderReport, list[Shown]]:
        target = self._folder / f"mattes-{infer}-{composite}.mkv"
        report = bgsoft.render(
            self._clip,
            target,
            overwrite=True,
            duration=MATTE_SECONDS,
            effect="matte",
            codec="ffv1",
            face="off",
            model=model,
            gpu=None if infer == composite == "cpu" else self._gpu,
            decode="cpu",
            infer=infer,
            composite=composite,
            encode="cpu",
        )
        return report, decode_clip(target)[0]

    def encode(self) -> Iterator[tuple[str, Callable[[], str]]]:
        kinds = (
            ("h264", Codec.H264, PixelLayout.NV12),
            ("hevc", Codec.HEVC, PixelLayout.NV12),
            ("hevc10", Codec.HEVC, PixelLayout.P010),
            ("av1", Codec.AV1, PixelLayout.NV12),
        )
        for backend, (name, codec, layout) in product(("cpu", "nvenc"), kinds):
            yield (
                f"{backend} {name}",
                lambda b=backend, n=name, c=codec, p=layout: self._encode(b, n, c, p),
            )

    def _encode(self, backend: str, name: str, codec: Codec, layout: PixelLayout) -> str:
        device = self.need_encoder(backend, codec.value, 10 if layout is PixelLayout.P010 else 8)
        frames = [draw_frame(index, 640, 360, layout) for index in range(50)]
        times = ClipSpec(name="", frames=len(frames), variable_rate=True).pts
        for frame, pts, following in zip(frames, times, [*times[1:], None], strict=True):
            frame.pts = pts
            frame.duration = (following or pts + 3600) - pts
        path = self._folder / f"{backend}-{name}.mp4"
        made = encode_frames(path, frames, codec, backend, device)
        assert made.frames == len(frames)
        figures = (
            f"{made.encoder}, {made.lowest_psnr_db:.1f} dB, {made.ms_per_frame:.2f} ms a frame"
        )
        assert made.lowest_psnr_db >= LEAST_ENCODED_DB, figures
        return f"{figures}, timestamps exact"

    def combinations(self) -> Iterator[tuple[str, Callable[[], str]]]:
        names = {s: [c.name for c in self._stages[s]][::-1] for s in backends.STAGES}
        for chosen in product(*names.values()):
            yield " ".join(chosen), lambda c=chosen: self._combination(dict(zip(names, c)))  # noqa: B905

    def _combination(self, chosen: dict[str, str]) -> str:
        for stage, backend in chosen.items():
            self.need(stage, backend)
        clip = write_clip(self._folder, CLIPS[1])
        self.need_decoder(chosen["decode"], clip)
        self.need_encoder(chosen["encode"])
        report, shown = self._render(clip, chosen)
        ran = {stage: report.stages["segment" if stage == "infer" else stage] for stage in chosen}
        assert {s: r.backend for s, r in ran.items()} == chosen, "another backend ran"
        faults = [e.message for e in report.events if e.kind in ("fault", "retry", "fallback")]
        assert not faults, faults[0]
        source = decode_clip(clip)[0]
        assert [f.pts for f in shown] == [f.pts for f in source], "timestamps changed"
        cpu = dict.fromkeys(chosen, "cpu")
        reference = shown if chosen == cpu else self._render(clip, cpu)[1]
        worst = lowest_psnr_db(shown, reference)
        figures = (
            f"{worst:.1f} dB to the CPU's, per frame {report.h2d_bytes:,.0f} bytes to the device, "
            f"{report.d2h_bytes:,.0f} back"
        )
        assert worst >= LEAST_COMBINATION_DB, figures
        return figures

    def _render(
        self, clip: Path, chosen: dict[str, str]
    ) -> tuple[bgsoft.RenderReport, list[Shown]]:
        target = self._folder / f"{'-'.join(chosen.values())}.mp4"
        speed = "P4" if chosen["encode"] == "nvenc" else "ultrafast"
        report = bgsoft.render(
            clip,
            target,
            overwrite=True,
            gpu=None if self._problem or set(chosen.values()) == {"cpu"} else self._gpu,
            quality=FULL_QUALITY,
            speed=speed,
            **chosen,
        )
        return report, decode_clip(target)[0]

    def memory(self) -> Iterator[tuple[str, Callable[[], str]]]:
        yield f"flat over {MEMORY_FRAMES:,} frames", self._memory

    def _memory(self) -> str:
        device = self.device
        self.need("composite", "cuda")
        spec = ClipSpec(name="long.mp4", options=CLIPS[0].options, frames=MEMORY_FRAMES)
        clip = write_clip(self._folder, spec)
        used: list[int] = []

        def sample(progress: Progress) -> None:
            # After the last frame models and decoder have been freed.
            if MEMORY_FRAMES // 10 < progress.frames < MEMORY_FRAMES:
                used.append(device.used_bytes())

        target = self._folder / "long-out.mp4"
        report = bgsoft.render(clip, target, gpu=self._gpu, composite="cuda", on_progress=sample)
        assert report.frames_encoded == MEMORY_FRAMES
        assert len(used) > 3, "too fast to look"
        growth = max(used) - min(used)
        figures = f"{max(used) / 1e6:.0f} MB in use on the device, varies by {growth / 1e6:.1f} MB"
        assert growth <= MEMORY_SLACK_BYTES, figures
        peak = (
            "unknown"
            if report.peak_vram_bytes is None
            else f"{report.peak_vram_bytes / 1e6:.0f} MB"
        )
        return f"{figures}; peak by NVML {peak}; {report.fps:.0f} frames/s"

    def exit(self) -> Iterator[tuple[str, Callable[[], str]]]:
        yield "a process ends without a CUDA error", self._exit

    def _exit(self) -> str:
        self.need("composite", "cuda")
        clip, target = write_clip(self._folder, CLIPS[0]), self._folder / "exit.mp4"
        command = [sys.executable, "-X", "faulthandler", "-m", "bgsoft", "render", str(clip)]
        command += [str(target), "-y", "--composite", "cuda", "--gpu", str(self._gpu)]
        done = subprocess.run(
            [*command, "--progress", "none"], capture_output=True, text=True, check=False
        )
        last = (done.stderr.strip().splitlines() or [""])[-1]
        assert done.returncode == 0, f"exit code {done.returncode}: {last}"
        told = [line for line in done.stderr.splitlines() if any(w in line for w in CRASH_WORDS)]
        assert not told, told[0]
        return "exit code 0, nothing told"


GROUPS = (
    # Memory comes early: what other rows leave in the process would blur it.
    *("environment", "memory", "decode", "inference", "parity", "mattes"),
    *("encode", "combinations", "exit"),
)


def run_row(group: str, name: str, check: Callable[[], str], verbose: bool) -> Row:
    started = time.perf_counter()
    try:
        status, detail = "pass", check()
    except Skip as exc:
        status, detail = "skip", str(exc)
    except Exception as exc:  # whatever it is, it is this row's result
        if verbose:
            traceback.print_exc()
        plain = isinstance(exc, (AssertionError, BackendUnavailableError))
        what = "" if plain else f"{type(exc).__name__}: "
        status, detail = "FAIL", what + " ".join(str(exc).split())
    return Row(group, name, status, detail, time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, metavar="N")
    parser.add_argument("--require-gpu", action="store_true", help="skipped rows count as failed")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP")
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
        checks = Checks(gpu, Path(name), options.model, options.clip)
        for group in options.only:
            print(group)
            for title, check in getattr(checks, group)():
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
