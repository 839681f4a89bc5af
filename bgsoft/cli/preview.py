"""``bgsoft preview``: a page to correct a video by hand, or one frame as a picture."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass
from bgsoft.settings.options import OPTIONS, PICTURE_SECTIONS

_EPILOG = flags.examples(
    "preview in.mp4 look.png",
    "preview in.mp4 look.png --at 1:12 --preset studio --draw-faces",
    "preview in.mp4",
    "preview in.mp4 --regions in.regions.toml --report report.json",
)
_page = partial(flags.option, panel="Page")


@dataclass(frozen=True, kw_only=True)
class PreviewFlags:
    """Arguments and flags of the command, without settings of a render."""

    input: flags.Input
    output: Annotated[
        Path | None,
        typer.Argument(metavar="[OUT.png]", help="Picture to write. Without it, a page is served."),
    ] = None
    at: Annotated[
        str | None,
        flags.option(
            "Time of the frame: seconds or HH:MM:SS. [default: 1 s, or the middle if shorter; of a"
            " page 0]",
            metavar="TIME",
            panel=OPTIONS["effect"].panel,
        ),
    ] = None
    preset: flags.Preset = None
    draw_faces: Annotated[
        bool,
        flags.option(
            "Draw boxes, ids and landmarks of faces into the source.",
            "--draw-faces",
            panel=OPTIONS["face"].panel,
        ),
    ] = False
    port: Annotated[
        int | None,
        _page("Port of the page. [default: any]", metavar="PORT", min=0, max=65535),
        flags.Brief(),
    ] = None
    report: Annotated[
        Path | None,
        _page(
            "Report of a render of IN: its timeline and doubtful frames are shown at once.",
            metavar="FILE.json",
        ),
        flags.Brief("Show the timeline of this render's report."),
    ] = None
    overwrite: Annotated[
        bool, flags.option("Replace OUT.png if it exists.", "--overwrite", "-y")
    ] = False
    quiet: flags.Quiet = False
    verbose: flags.Verbose = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    names = [name for name, option in OPTIONS.items() if option.section in PICTURE_SECTIONS]
    flags.add_command(app, preview, PreviewFlags, epilog=_EPILOG, settings=names)


def preview(own: PreviewFlags, settings: dict[str, Any]) -> int:
    """Try settings on one frame, or correct a video by hand on a page.

    With OUT.png, source, matte and result of one frame are written. Without it, a page is served
    on which you draw regions, see the result, and save them to IN.regions.toml or --regions FILE.
    """
    if own.output is None:
        return _serve(own, settings)
    return _write(own, own.output, settings)


def _write(own: PreviewFlags, output: Path, settings: dict[str, Any]) -> int:
    """Write the picture of one frame."""
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.errors import ConfigError
    from bgsoft.infer.providers import require_runtime
    from bgsoft.rendering.configure import build_config
    from bgsoft.settings.setting import parse_seconds
    from bgsoft.settings.user import read_user_config

    for flag, value in (("--port", own.port), ("--report", own.report)):
        if value is not None:
            raise ConfigError(f"cannot use {flag} with OUT.png: it belongs to the page")
    config = build_config(
        own.input,
        output,
        preset=read_user_config().preset(own.preset),
        flags=settings,
        unchecked=("no faces",) if own.draw_faces else (),
        overwrite=own.overwrite,
    )
    at_seconds = None if own.at is None else parse_seconds(own.at, "--at")
    go_on_in_child(f"preview {config.input}")
    require_runtime()
    from bgsoft.rendering.preview import write_preview

    result = write_preview(config, at_seconds, faces=own.draw_faces)
    if not own.quiet:
        console = Console()
        for notice in result.notices:
            console.err(f"notice: {notice}")
        console.err(
            f"{output}: source | matte | result at {result.time_seconds:.3f} s, "
            f"{result.width}x{result.height} each"
        )
    return 0


def _serve(own: PreviewFlags, settings: dict[str, Any]) -> int:
    """Serve the page until a signal ends it."""
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.cli.signals import StopSignals
    from bgsoft.errors import ConfigError
    from bgsoft.infer.providers import require_runtime
    from bgsoft.outputs import check_target
    from bgsoft.rendering.configure import build_config
    from bgsoft.settings.regions_file import REGIONS_SUFFIX
    from bgsoft.settings.setting import parse_seconds
    from bgsoft.settings.user import read_user_config

    for flag, value in (("--draw-faces", own.draw_faces), ("--overwrite", own.overwrite)):
        if value:
            raise ConfigError(f"cannot use {flag} without OUT.png: it belongs to a picture")
    named = settings.get("regions", {}).pop("file", None)
    preset = read_user_config().preset(own.preset)
    # A region that is drawn later may be hidden.
    config = build_config(
        own.input,
        Path(os.devnull),
        preset=preset,
        flags=settings,
        unchecked=("nothing hidden",),
    )
    if config.regions.file is not None and named is None:
        raise ConfigError(
            f"cannot choose the regions file: the settings name {config.regions.file};"
            " name the file to edit with --regions"
        )
    config = replace(config, regions=replace(config.regions, file=None))
    regions = own.input.parent / (own.input.stem + REGIONS_SUFFIX) if named is None else Path(named)
    if regions.suffix.lower() != ".toml":
        raise ConfigError(f"cannot edit {regions}: regions are TOML; name a .toml file")
    others = [*config.inputs, *([] if own.report is None else [own.report])]
    check_target(regions, "regions file", others=others)
    at_seconds = 0.0 if own.at is None else parse_seconds(own.at, "--at")
    go_on_in_child(f"correct {config.input}")
    require_runtime()
    from bgsoft.correct.page import CorrectionPage

    console = Console()
    with (
        StopSignals() as stop,
        CorrectionPage(
            config, regions, report=own.report, at_seconds=at_seconds, port=own.port or 0
        ) as page,
    ):
        # Also with --quiet: nobody finds the page without its address.
        console.err(f"{own.input}: open {page.url} in a browser; Ctrl-C ends it")
        stop.cancel.wait()
    return 0
