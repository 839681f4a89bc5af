"""``bgsoft doctor``: what works on this machine, and what to do about the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bgsoft.doctor import DoctorReport

__all__ = ["doctor", "register"]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(doctor)


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for programs.", show_default=False)
    ] = False,
    gpu: Annotated[int, typer.Option(metavar="N", min=0, help="Which GPU to look at.")] = 0,
) -> int:
    """Check what works on this machine, and say how to mend the rest.

    The exit code is 0 if a render works on the CPU.
    """
    from bgsoft.cli.console import Console
    from bgsoft.cli.exitcodes import ExitCode
    from bgsoft.doctor import examine

    console = Console()
    report = examine(gpu)
    if as_json:
        import json

        console.out(json.dumps(report.to_dict(), indent=2))
    else:
        for line in _lines(report):
            console.out(line)
    if report.problems:
        console.error(f"a render would not work: {report.problems[0]}")
        return ExitCode.UNAVAILABLE
    return ExitCode.OK


def _lines(report: DoctorReport) -> list[str]:
    lines = ["Versions"]
    for name, version in report.versions.items():
        broken = report.import_errors.get(name)
        note = f"  does not load: {broken}" if broken else ""
        lines.append(f"  {name:<16} {version or 'not installed'}{note}")
    libraries = ", ".join(f"{name} {version}" for name, version in report.ffmpeg.items())
    lines += [
        f"  {'FFmpeg in av':<16} {libraries or 'unknown'}",
        f"  {'ONNX Runtime has':<16} {', '.join(report.execution_providers) or 'nothing'}",
        "Machine",
        f"  {'CPUs':<16} {report.cpu_count}",
        f"  {'NVIDIA driver':<16} {report.gpu_driver or 'none'}",
        "Backends, best first",
    ]
    for stage, candidates in report.stages.items():
        for position, candidate in enumerate(candidates):
            state = "ok" if candidate.available else f"no: {candidate.reason}"
            fix = f" ({candidate.fix})" if candidate.fix else ""
            title = stage if position == 0 else ""
            lines.append(f"  {title:<10} {candidate.name:<9} {state}{fix}")
    lines.append("Encoders")
    lines += [f"  {name:<16} {'ok' if ok else 'missing'}" for name, ok in report.encoders.items()]
    lines.append("Models")
    for model in report.models:
        lines.append(f"  {model.name:<16} {'ok' if model.ok else model.reason}")
    lines.append("A render on the CPU works." if not report.problems else "Problems")
    lines += [f"  {problem}" for problem in report.problems]
    return lines
