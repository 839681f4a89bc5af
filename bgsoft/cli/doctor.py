"""``bgsoft doctor``: what works on this machine, and what to do about the rest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from bgsoft.cli import flags

if TYPE_CHECKING:
    from bgsoft.cli.console import Console
    from bgsoft.diagnose.doctor import DoctorReport


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(epilog=flags.examples("doctor", "doctor --full", "doctor --require-gpu"))(doctor)


def doctor(
    full: Annotated[
        bool,
        flags.option(
            "Also try every codec, model and combination of backends, for some minutes.", "--full"
        ),
    ] = False,
    as_json: Annotated[bool, flags.option("Print JSON for programs.", "--json")] = False,
    gpu: Annotated[
        int | None,
        flags.option("Which GPU to look at. [default: the first]", metavar="N", min=0),
    ] = None,
    require_gpu: Annotated[
        bool,
        flags.option(
            "Let the exit code say whether every stage works on the GPU.", "--require-gpu"
        ),
    ] = False,
) -> int:
    """Check what works on this machine, and say how to mend the rest.

    Every backend is run for a moment. The exit code is 0 if a render works, on the GPU or the CPU;
    with --require-gpu, if `bgsoft render --require-gpu` would. With --full it is 1 if anything
    that is installed failed.
    """
    from bgsoft.cli.console import Console
    from bgsoft.cuda.driver import show_only
    from bgsoft.diagnose.doctor import examine
    from bgsoft.exitcodes import ExitCode
    from bgsoft.rendering.backends import chosen_gpu

    console = Console()
    if gpu is not None:
        show_only(gpu)
    report = examine(chosen_gpu(gpu))
    if not as_json:
        for line in report_lines(report):
            console.out(line)
    if full:
        _try_everything(report, chosen_gpu(gpu), None if as_json else console)
    if as_json:
        import json

        console.out(json.dumps(report.to_dict(), indent=2))
    failed = [row for row in report.full if row.status == "FAIL"]
    if failed:
        console.error(f"{len(failed)} of {len(report.full)} checks failed: {failed[0].detail}")
        return ExitCode.RENDER_FAILED
    if report.problems:
        console.error(f"a render would not work: {report.problems[0]}")
        return ExitCode.UNAVAILABLE
    if require_gpu and report.gpu_problems:
        console.error(f"a render on the GPU would not work: {report.gpu_problems[0]}")
        return ExitCode.UNAVAILABLE
    return ExitCode.OK


def _try_everything(report: DoctorReport, gpu: int, console: Console | None) -> None:
    """Fill in ``report.full``, and print each row as it comes."""
    from bgsoft.diagnose.full import GROUPS, run_group

    for group in GROUPS:
        if console is not None:
            console.out(group)
        for row in run_group(group, gpu):
            report.full.append(row)
            if console is not None:
                console.out(f"  {row.status}  {row.name:<40} {row.detail}")
    if console is not None:
        count = Counter(row.status for row in report.full)
        console.out(f"{count['pass']} passed, {count['FAIL']} failed, {count['skip']} skipped")


def report_lines(report: DoctorReport) -> list[str]:
    """A report as people read it."""
    lines = [
        *_versions(report),
        *_machine(report),
        *_backends(report),
        *_codecs(report),
        "Models",
        *(_row(name, reason or "ok") for name, reason in report.models.items()),
    ]
    if report.parity:
        lines.append("GPU against CPU, in code values")
        for found in report.parity:
            figures = f"max {found.max_difference:.3g}, mean {found.mean_difference:.2g}"
            state = "ok" if found.ok else "TOO FAR"
            lines.append(f"  {found.name:<28} {state}: {figures} (allowed: {found.tolerance})")
    lines.append(f"Never run by bgsoft's makers: {', '.join(report.never_run)}")
    return lines + _verdict(report)


def _row(title: str, text: object, width: int = 16) -> str:
    return f"  {title:<{width}} {text}"


def _versions(report: DoctorReport) -> list[str]:
    lines = ["Versions"]
    for name, version in report.versions.items():
        broken = report.import_errors.get(name)
        note = f"  does not load: {broken}" if broken else ""
        lines.append(_row(name, f"{version or 'not installed'}{note}"))
    libraries = ", ".join(f"{name} {version}" for name, version in report.ffmpeg.items())
    lines.append(_row("FFmpeg in av", libraries or "unknown"))
    lines.append(_row("ONNX Runtime has", ", ".join(report.execution_providers) or "nothing"))
    return lines


def _machine(report: DoctorReport) -> list[str]:
    lines = ["Machine", _row("CPUs", report.cpu_count)]
    lines.append(_row("Operations", report.operations or "not built"))
    lines.append(_row("NVIDIA driver", report.gpu_driver or "none"))
    gpu = report.gpu
    if gpu is not None:
        memory = f"{gpu.memory_bytes / 2**30:.0f} GiB"
        lines += [
            _row("GPU", f"{gpu.name}, {memory}, compute capability {gpu.compute_capability}"),
            _row("CUDA", f"runtime {gpu.runtime}, driver up to {gpu.driver_cuda}"),
            _row("NVRTC", gpu.nvrtc or "not found"),
            _row("cuDNN", gpu.cudnn or "not found"),
            _row("TensorRT", gpu.tensorrt or "not found"),
        ]
    return lines


def _backends(report: DoctorReport) -> list[str]:
    lines = ["Backends, best first"]
    for stage, candidates in report.stages.items():
        for position, candidate in enumerate(candidates):
            found = report.findings.get(stage, {}).get(candidate.name)
            state = "ok" if candidate.available else f"no: {candidate.reason}"
            if found is not None and found.ms_per_frame is not None:
                state += f", {found.ms_per_frame:.2f} ms a frame: {found.detail}"
            fix = f" ({candidate.fix})" if candidate.fix else ""
            title = stage if position == 0 else ""
            lines.append(f"  {title:<10} {candidate.name:<9} {state}{fix}")
    return lines


def _codecs(report: DoctorReport) -> list[str]:
    lines = ["Encoders"]
    lines += [_row(name, "ok" if ok else "missing") for name, ok in report.encoders.items()]
    if report.video_engines:
        lines.append("NVDEC and NVENC")
    lines += [_row(name, said, 21) for name, said in report.video_engines.items()]
    return lines


def _verdict(report: DoctorReport) -> list[str]:
    if report.problems:
        return ["Problems", *(f"  {problem}" for problem in report.problems)]
    if not report.gpu_problems:
        return ["A render works, every stage on the GPU."]
    return [
        "A render works. Not every stage is on the GPU:",
        *(f"  {problem}" for problem in report.gpu_problems),
    ]
