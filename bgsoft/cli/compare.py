"""``bgsoft compare``: how far two videos are apart, in pictures, time, sound and metadata."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bgsoft.cli import flags

if TYPE_CHECKING:
    from bgsoft.compare.result import Comparison, Pictures

__all__ = ["compare", "register"]

_METRICS, _LIMITS = "Pictures", "Exit code 1 where B misses"
_DECIMALS = {"psnr": 2, "ssim": 4, "vmaf": 2}
_PLANES = {"y": "Y", "cb": "Cb", "cr": "Cr", "all": "all"}


_EPILOG = flags.examples(
    "compare in.mp4 out.mp4",
    "compare in.mp4 out.mp4 --mask matte.mp4 --no-vmaf",
    "compare in.mp4 out.mp4 --strict --min-vmaf 90",
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(compare)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The reference.", readable=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to judge.", readable=False)],
    mask: Annotated[
        Path | None,
        typer.Option(
            "--mask",
            metavar="FILE",
            help="Matte video (as --matte-out writes it): count one side of it only.",
            rich_help_panel=_METRICS,
            show_default=False,
        ),
    ] = None,
    mask_region: Annotated[
        str | None,
        typer.Option(
            "--mask-region",
            metavar="foreground|background",
            help="Which side: where the mask is at least half white, or the rest."
            " [default: foreground]",
            rich_help_panel=_METRICS,
            show_default=False,
        ),
    ] = None,
    no_vmaf: Annotated[
        bool,
        typer.Option(
            "--no-vmaf",
            help="Leave out VMAF, which takes most of the time.",
            rich_help_panel=_METRICS,
            show_default=False,
        ),
    ] = False,
    min_vmaf: Annotated[
        float | None,
        typer.Option(
            metavar="0-100",
            help="Mean VMAF.",
            rich_help_panel=_LIMITS,
            show_default=False,
        ),
    ] = None,
    min_psnr: Annotated[
        float | None,
        typer.Option(
            metavar="DB",
            help="PSNR of luma.",
            rich_help_panel=_LIMITS,
            show_default=False,
        ),
    ] = None,
    min_ssim: Annotated[
        float | None,
        typer.Option(
            metavar="0-1",
            help="Mean SSIM of luma.",
            rich_help_panel=_LIMITS,
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Any check.",
            rich_help_panel=_LIMITS,
            show_default=False,
        ),
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write everything, with the figures of each frame.",
            rich_help_panel=flags.OUTPUT,
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE.html|png",
            help="Draw the figures frame by frame.",
            rich_help_panel=flags.OUTPUT,
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also print where an error came from.",
            rich_help_panel=flags.OUTPUT,
            show_default=False,
        ),
    ] = False,
) -> int:
    """Compare two videos: PSNR, SSIM, VMAF, timestamps, sound, metadata.

    Frame i of A is compared with frame i of B. PSNR and SSIM are those of FFmpeg's filters; VMAF
    needs an ffmpeg with libvmaf (pip install '.[quality]').
    """
    from bgsoft.beside import check_target, made_folders
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.exitcodes import ExitCode
    from bgsoft.options import parse_choice

    console = Console()
    with traceback_on_error(verbose):
        from bgsoft.compare.compare import Limits
        from bgsoft.compare.compare import compare as run
        from bgsoft.compare.pictures import Region
        from bgsoft.errors import ConfigError

        region = parse_choice(Region, mask_region or Region.FOREGROUND, "--mask-region")
        if mask_region is not None and mask is None:
            raise ConfigError("--mask-region has no effect without --mask FILE")
        limits = Limits(vmaf=min_vmaf, psnr_db=min_psnr, ssim=min_ssim, strict=strict)
        inputs = [path for path in (a, b, mask) if path is not None]
        if plot is not None:
            from bgsoft.plotting.page import check_plot_name

            check_plot_name(plot)
        targets = {
            what: path
            for what, path in (("comparison", json_file), ("plot", plot))
            if path is not None
        }
        for what, path in targets.items():
            check_target(path, what, others=inputs)
        result = run(a, b, mask=mask, region=region, limits=limits, vmaf=not no_vmaf)
        with made_folders(targets.values(), lambda text: console.err(f"notice: {text}")):
            if json_file is not None:
                result.write_json(json_file)
            if plot is not None:
                from bgsoft.compare.plot import write_comparison_plot

                write_comparison_plot(result, plot)
    for line in _lines(result):
        console.out(line)
    for notice in result.notices:
        console.err(f"notice: {notice}")
    if result.failures:
        console.error("; ".join(result.failures))
        return ExitCode.RENDER_FAILED
    return ExitCode.OK


def _lines(result: Comparison) -> list[str]:
    lines = [f"A  {result.a}", f"B  {result.b}"]
    if result.pictures is not None:
        lines += ["", *_picture_lines(result.pictures)]
    else:
        lines += ["", f"Pictures: not compared: {result.pictures_reason}"]
    passed = len(result.checks) - len(result.failed_checks)
    lines += ["", f"Checks: {passed} of {len(result.checks)} pass"]
    for check in result.checks:
        lines.append(f"  {'pass' if check.ok else 'FAIL'}  {check.name:<15} {check.detail}")
    return lines


def _picture_lines(pictures: Pictures) -> list[str]:
    head = (
        f"Pictures: {pictures.frames} frames, {pictures.width}x{pictures.height},"
        f" {pictures.bit_depth} bit"
    )
    if pictures.region_share is not None:
        head += f", {pictures.region} only ({pictures.region_share:.1%} of the picture)"
    lines = [head, f"  {'':<10}{'mean':>9}{'1st pct':>9}{'worst':>9}"]
    for curve in pictures.curves:
        decimals = _DECIMALS[curve.metric]
        unit = " dB" if curve.metric == "psnr" else ""
        label = curve.metric.upper()
        label += "" if curve.metric == "vmaf" else f" {_PLANES[curve.plane]}"
        found = curve.statistic
        if found is None:
            lines.append(f"  {label:<10}no value: nothing to measure in the region or the plane")
            continue
        if found.identical:
            lines.append(f"  {label:<10}identical in every frame")
            continue
        shown = [
            "identical" if math.isinf(value) else f"{value:.{decimals}f}"
            for value in (found.mean, found.p1, found.worst)
        ]
        cells = "".join(f"{text:>9}" for text in shown)
        where = f"frame {found.worst_frame}, {found.worst_seconds:.3f} s"
        lines.append(f"  {label:<10}{cells}{unit:<3}  {where}")
    if pictures.vmaf_reason is not None:
        lines.append(f"  {'VMAF':<10}none: {pictures.vmaf_reason}")
    else:
        lines.append(f"  VMAF by {pictures.vmaf_model}, {pictures.vmaf_by}")
        if pictures.vmaf_region is not None:
            lines.append(f"  VMAF is of {pictures.vmaf_region}")
    return lines
