"""``bgsoft compare``: how far two videos are apart, in pictures, time, sound and metadata."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags

_pictures = partial(flags.option, panel="Pictures")
_limit = partial(flags.option, panel="Exit code 1 where B misses")
_output = partial(flags.option, panel=flags.OUTPUT)
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
        _pictures(
            "Matte video (as --matte-out writes it): count one side of it only.", metavar="FILE"
        ),
    ] = None,
    mask_region: Annotated[
        str | None,
        _pictures(
            "Which side: where the mask is at least half white, or the rest. [default: foreground]",
            metavar="foreground|background",
        ),
    ] = None,
    no_vmaf: Annotated[
        bool, _pictures("Leave out VMAF, which takes most of the time.", "--no-vmaf")
    ] = False,
    min_vmaf: Annotated[float | None, _limit("Mean VMAF.", metavar="0-100")] = None,
    min_psnr: Annotated[float | None, _limit("PSNR of luma.", metavar="DB")] = None,
    min_ssim: Annotated[float | None, _limit("Mean SSIM of luma.", metavar="0-1")] = None,
    strict: Annotated[bool, _limit("Any check.", "--strict")] = False,
    json_file: Annotated[
        Path | None,
        _output("Write everything, with the figures of each frame.", "--json", metavar="FILE"),
    ] = None,
    plot: Annotated[
        Path | None,
        _output(
            "Draw the figures frame by frame (pip install '.[plot]').",
            metavar="FILE.png|svg",
        ),
    ] = None,
    verbose: Annotated[
        bool, _output("Also print where an error came from.", "--verbose", "-v")
    ] = False,
) -> int:
    """Compare two videos: PSNR, SSIM, VMAF, timestamps, sound, metadata.

    Frame i of A is compared with frame i of B. PSNR and SSIM are those of FFmpeg's filters; VMAF
    needs an ffmpeg with libvmaf (pip install '.[quality]').
    """
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.exitcodes import ExitCode
    from bgsoft.outputs import STDOUT, check_target, made_folders
    from bgsoft.settings.options import parse_choice

    console = Console()
    with traceback_on_error(verbose):
        from bgsoft.cli.compare_tables import checks_table, pictures_table, write_comparison_plot
        from bgsoft.cli.plotting import check_plot
        from bgsoft.cli.tables import terminal_text
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
            check_plot(plot)
        for what, path in (("comparison", json_file), ("plot", plot)):
            if path is not None:
                check_target(path, what, others=inputs)
        result = run(a, b, mask=mask, region=region, limits=limits, vmaf=not no_vmaf)
        targets = [path for path in (json_file, plot) if path is not None]
        with made_folders(targets, lambda text: console.err(f"notice: {text}")):
            if json_file is not None:
                result.write_json(json_file)
            if plot is not None and result.pictures is not None:
                write_comparison_plot(result, result.pictures, plot)
    if json_file != STDOUT:
        console.out(f"A  {result.a}\nB  {result.b}\n")
        console.out(terminal_text(pictures_table(result)))
        console.out()
        console.out(terminal_text(checks_table(result)))
    for notice in result.notices:
        console.err(f"notice: {notice}")
    if result.failures:
        console.error("; ".join(result.failures))
        return ExitCode.RENDER_FAILED
    return ExitCode.OK
