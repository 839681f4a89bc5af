"""``bgsoft compare``: differences of two videos in pictures, time, sound and metadata."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass

_pictures = partial(flags.option, panel="Pictures")
_limit = partial(flags.option, panel="Exit code 1 if B misses")
_output = partial(flags.option, panel=flags.OUTPUT)
_EPILOG = flags.examples(
    "compare in.mp4 out.mp4",
    "compare in.mp4 out.mp4 --mask matte.mp4 --no-vmaf",
    "compare in.mp4 out.mp4 --strict --min-vmaf 90",
)


@dataclass(frozen=True, kw_only=True)
class CompareFlags:
    """Arguments and flags of the command."""

    a: Annotated[Path, typer.Argument(metavar="A", help="The reference video.", readable=False)]
    b: Annotated[Path, typer.Argument(metavar="B", help="The video to judge.", readable=False)]
    mask: Annotated[
        Path | None,
        _pictures("Matte video (from --matte-out): measure only one region of it.", metavar="FILE"),
    ] = None
    mask_region: Annotated[
        str | None,
        _pictures(
            "foreground: where the mask is at least half white. [default: foreground]",
            metavar="foreground|background",
        ),
    ] = None
    no_vmaf: Annotated[bool, _pictures("Skip VMAF, which takes half of the time.", "--no-vmaf")] = (
        False
    )
    min_vmaf: Annotated[float | None, _limit("Lowest mean VMAF.", metavar="0-100")] = None
    min_psnr: Annotated[float | None, _limit("Lowest PSNR of luma.", metavar="DB")] = None
    min_ssim: Annotated[float | None, _limit("Lowest mean SSIM of luma.", metavar="0-1")] = None
    strict: Annotated[bool, _limit("Require every check to pass.", "--strict")] = False
    json_file: Annotated[
        Path | None,
        _output("Write all results, with the figures of each frame.", "--json", metavar="FILE"),
    ] = None
    plot: Annotated[
        Path | None,
        _output("Draw each frame's figures (pip install '.[plot]').", metavar="FILE.png|svg"),
    ] = None
    overwrite: Annotated[
        bool, _output("Replace the files of --json and --plot if they exist.", "--overwrite", "-y")
    ] = False
    verbose: flags.Verbose = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    flags.add_command(app, compare, CompareFlags, epilog=_EPILOG)


def compare(own: CompareFlags, _settings: dict[str, Any]) -> int:
    """Compare two videos: quality, timestamps, sound, metadata.

    Frame i of A is compared with frame i of B. PSNR and SSIM follow FFmpeg's filters. VMAF needs an
    ffmpeg with libvmaf (pip install '.[quality]').
    """
    from bgsoft.cli.compare_tables import checks_table, pictures_table, write_comparison_plot
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.cli.results import ResultFiles, terminal_text
    from bgsoft.compare.compare import Limits
    from bgsoft.compare.compare import compare as run
    from bgsoft.compare.pictures import Region
    from bgsoft.errors import ConfigError
    from bgsoft.exitcodes import ExitCode
    from bgsoft.outputs import DASH
    from bgsoft.settings.options import parse_choice

    region = parse_choice(Region, own.mask_region or Region.FOREGROUND, "--mask-region")
    if own.mask_region is not None and own.mask is None:
        raise ConfigError("cannot use --mask-region: it needs --mask FILE")
    limits = Limits(vmaf=own.min_vmaf, psnr_db=own.min_psnr, ssim=own.min_ssim, strict=own.strict)
    files = ResultFiles("comparison", own.json_file, own.plot, own.overwrite)
    files.check([path for path in (own.a, own.b, own.mask) if path is not None])
    go_on_in_child(f"compare {own.a} and {own.b}")
    result = run(own.a, own.b, mask=own.mask, region=region, limits=limits, vmaf=not own.no_vmaf)
    console = Console()
    files.write(result.to_dict(), partial(write_comparison_plot, result), console)
    if own.json_file != DASH:
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
