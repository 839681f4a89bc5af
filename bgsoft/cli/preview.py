"""``bgsoft preview``: one frame, as source, matte and result side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags
from bgsoft.settings.options import OPTIONS

_EPILOG = flags.examples(
    "preview in.mp4 look.png", "preview in.mp4 look.png --at 1:12 --preset studio --faces"
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    pictured = ("effect", "segment", "face", "hide", "matte")
    names = [name for name, option in OPTIONS.items() if option.section in pictured]
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(flags.with_settings(preview, names))


def preview(
    input: flags.Input,
    output: Annotated[Path, typer.Argument(metavar="OUT.png", help="Picture to write.")],
    at: Annotated[
        str | None,
        flags.option(
            "Which moment: seconds or HH:MM:SS. [default: 1 s, or the middle if shorter]",
            metavar="TIME",
            panel=OPTIONS["effect"].panel,
        ),
    ] = None,
    preset: flags.Preset = "soft",
    faces: Annotated[
        bool,
        flags.option(
            "Draw the boxes, ids and meshes of faces into the source picture.",
            "--faces",
            panel=OPTIONS["face"].panel,
        ),
    ] = False,
    overwrite: Annotated[
        bool, flags.option("Replace OUT.png if it exists.", "--overwrite", "-y")
    ] = False,
    quiet: flags.Quiet = False,
    verbose: Annotated[
        bool, flags.option("Also print where an error came from.", "--verbose", "-v")
    ] = False,
    **settings: str | list[str] | bool | None,
) -> int:
    """Try settings on one frame: source, matte and result.

    The frames just before are worked on too, so that the edge is as steady as in a render.
    """
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.infer.providers import require_runtime
    from bgsoft.rendering.configure import build_config
    from bgsoft.settings.options import settings_from_options
    from bgsoft.settings.setting import parse_seconds

    console = Console()
    with traceback_on_error(verbose):
        config = build_config(
            input,
            output,
            preset=preset,
            flags=settings_from_options(settings, from_text=True),
            draws_faces=faces,
            overwrite=overwrite,
        )
        at_seconds = parse_seconds(at, "--at") if at is not None else None
        require_runtime()
        from bgsoft.rendering.preview import write_preview

        result = write_preview(config, at_seconds, faces=faces)
    if not quiet:
        for notice in result.notices:
            console.err(f"notice: {notice}")
        console.err(
            f"{output}: source | matte | result at {result.time_seconds:.3f} s, "
            f"{result.width}x{result.height} each"
        )
    return 0
