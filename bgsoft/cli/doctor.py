"""``bgsoft doctor``: what works on this machine, and how to repair the rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from bgsoft.cli import flags
from bgsoft.cli.console import Console

if TYPE_CHECKING:
    from bgsoft.diagnose.doctor import DoctorReport


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(epilog=flags.examples("doctor", "doctor --full", "doctor --require-gpu"))(doctor)


def doctor(
    full: Annotated[
        bool,
        flags.option(
            "Also test every codec, model and combination of backends; takes some minutes.",
            "--full",
        ),
    ] = False,
    as_json: Annotated[bool, flags.option("Print JSON.", "--json")] = False,
    gpu: Annotated[
        int | None,
        flags.option("Number of the GPU to check. [default: the first]", metavar="N", min=0),
    ] = None,
    require_gpu: Annotated[
        bool, flags.option("Exit code 0 only if every stage works on the GPU.", "--require-gpu")
    ] = False,
) -> int:
    """Check what works on this machine, and how to repair the rest.

    Every backend runs briefly. The exit code is 0 if a render works, on the GPU or the CPU. With
    --require-gpu it is 0 if `bgsoft render --require-gpu` works. With --full it is 1 if anything
    installed fails.
    """
    from bgsoft.cuda.driver import show_only
    from bgsoft.diagnose.doctor import examine
    from bgsoft.exitcodes import ExitCode
    from bgsoft.rendering.backends import chosen_gpu

    console = Console()
    if gpu is not None:
        show_only(gpu)
    report = examine(chosen_gpu(gpu))
    out: Callable[[str], None] = (lambda _text: None) if as_json else console.out
    for line in report_lines(report):
        out(line)
    if full:
        _try_everything(report, chosen_gpu(gpu), out)
    if as_json:
        console.out(json.dumps(report.to_dict(), indent=2))
    failed = [row for row in report.full if row.status == "FAIL"]
    if failed:
        console.error(f"{len(failed)} of {len(report.full)} checks failed: {failed[0].detail}")
        return ExitCode.RENDER_FAILED
    if report.problems:
        console.error(f"cannot render on this machine: {report.problems[0]}")
        return ExitCode.UNAVAILABLE
    if require_gpu and report.gpu_problems:
        console.error(f"cannot render on the GPU: {report.gpu_problems[0]}")
        return ExitCode.UNAVAILABLE
    return ExitCode.OK


def _try_everything(report: DoctorReport, gpu: int, out: Callable[[str], None]) -> None:
    """Fill in ``report.full``, and print each row when it is known."""
    from bgsoft.diagnose.full import GROUPS, run_group

    for group in GROUPS:
        out(group)
        for row in run_group(group, gpu):
            report.full.append(row)
            out(f"  {row.status}  {row.name:<40} {row.detail}")
    count = Counter(row.status for row in report.full)
    out(f"{count['pass']} passed, {count['FAIL']} failed, {count['skip']} skipped")


def report_lines(report: DoctorReport) -> list[str]:
    """Format a report as text."""
    sections = {
        "Versions": _versions(report),
        "Machine": _machine(report),
        "Backends, best first": _backends(report),
        "Encoders": _rows({k: "ok" if ok else "missing" for k, ok in report.encoders.items()}),
        "NVDEC and NVENC": _rows(report.video_engines, 21),
        "Models": _rows({name: reason or "ok" for name, reason in report.models.items()}),
        "GPU against CPU, in code values": [
            f"{found.name:<28} {'ok' if found.ok else 'DIFFERS'}: max {found.max_difference:.3g}, "
            f"mean {found.mean_difference:.2g} (allowed: {found.tolerance})"
            for found in report.parity
        ],
    }
    lines: list[str] = []
    for title, rows in sections.items():
        if rows:
            lines += [title, *(f"  {row}" for row in rows)]
    lines.append(f"Not yet run by bgsoft's developers: {', '.join(report.never_run)}")
    if report.problems:
        return [*lines, "Problems", *(f"  {problem}" for problem in report.problems)]
    if report.gpu_driver is None:
        return [*lines, "A render works, on the CPU. There is no NVIDIA driver."]
    if report.gpu_problems:
        lines.append("A render works, but not every stage runs on the GPU:")
        return [*lines, *(f"  {problem}" for problem in report.gpu_problems)]
    return [*lines, "A render works, with every stage on the GPU."]


def _rows(values: Mapping[str, object], width: int = 16) -> list[str]:
    return [f"{name:<{width}} {value}" for name, value in values.items()]


def _versions(report: DoctorReport) -> list[str]:
    rows = {name: version or "not installed" for name, version in report.versions.items()}
    for name, broken in report.import_errors.items():
        rows[name] += f"  cannot be loaded: {broken}"
    ffmpeg = ", ".join(f"{name} {version}" for name, version in report.ffmpeg.items())
    rows["FFmpeg in av"] = ffmpeg or "unknown"
    rows["ONNX Runtime has"] = ", ".join(report.execution_providers) or "nothing"
    return _rows(rows)


def _machine(report: DoctorReport) -> list[str]:
    from bgsoft.settings.user import config_path

    rows: dict[str, object] = {"CPUs": report.cpu_count}
    rows["Native code"] = report.operations or "not built"
    rows["config.toml"] = report.config_file or f"none ({config_path() or 'switched off'})"
    rows["NVIDIA driver"] = report.gpu_driver or "none"
    gpu = report.gpu
    if gpu is not None:
        memory = f"{gpu.memory_bytes / 2**30:.0f} GiB"
        rows["GPU"] = f"{gpu.name}, {memory}, compute capability {gpu.compute_capability}"
        rows["CUDA"] = f"runtime {gpu.runtime}, driver up to {gpu.driver_cuda}"
        libraries = {"NVRTC": gpu.nvrtc, "cuDNN": gpu.cudnn, "TensorRT": gpu.tensorrt}
        rows |= {name: version or "not found" for name, version in libraries.items()}
    return _rows(rows)


def _backends(report: DoctorReport) -> list[str]:
    lines = []
    for stage, candidates in report.stages.items():
        for position, candidate in enumerate(candidates):
            found = report.findings.get(stage, {}).get(candidate.name)
            state = "ok" if candidate.available else f"no: {candidate.reason}"
            if found is not None and found.ms_per_frame is not None:
                state += f", {found.ms_per_frame:.2f} ms a frame: {found.detail}"
            fix = f" ({candidate.fix})" if candidate.fix else ""
            title = stage if position == 0 else ""
            lines.append(f"{title:<10} {candidate.name:<9} {state}{fix}")
    return lines
