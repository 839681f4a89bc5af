"""``bgsoft preview``: one frame, as source, matte and result side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass
from bgsoft.settings.options import OPTIONS, PICTURE_SECTIONS

_EPILOG = flags.examples(
    "preview in.mp4 look.png", "preview in.mp4 look.png --at 1:12 --preset studio --draw-faces"
)


@dataclass(frozen=True, kw_only=True)
class PreviewFlags:
    """Arguments and flags of the command, without settings of a render."""

    input: flags.Input
    output: Annotated[Path, typer.Argument(metavar="OUT.png", help="Picture to write.")]
    at: Annotated[
        str | None,
        flags.option(
            "Time of the frame: seconds or HH:MM:SS. [default: 1 s, or the middle if shorter]",
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
    """Try settings on one frame: source, matte and result.

    The frames just before are processed, too, so that the edge is as steady as in a render.
    """
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.infer.providers import require_runtime
    from bgsoft.rendering.configure import build_config
    from bgsoft.settings.setting import parse_seconds
    from bgsoft.settings.user import read_user_config

    config = build_config(
        own.input,
        own.output,
        preset=read_user_config().preset(own.preset),
        flags=settings,
        draws_faces=own.draw_faces,
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
            f"{own.output}: source | matte | result at {result.time_seconds:.3f} s, "
            f"{result.width}x{result.height} each"
        )
    return 0
