"""``bgsoft preview``: one frame, as source, matte and result side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags

__all__ = ["preview", "register"]

_EPILOG = flags.examples(
    "preview in.mp4 look.png", "preview in.mp4 look.png --at 1:12 --preset studio --faces"
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(preview)


def preview(
    ctx: typer.Context,
    input: Annotated[Path, typer.Argument(metavar="IN", help="Video to read.", readable=False)],
    output: Annotated[Path, typer.Argument(metavar="OUT.png", help="Picture to write.")],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Which moment: seconds or HH:MM:SS. [default: 1 s, or the middle if shorter]",
            rich_help_panel=flags.LOOK,
            show_default=False,
        ),
    ] = None,
    preset: flags.Preset = "soft",
    effect: flags.Effect = None,
    strength: flags.Strength = None,
    background: flags.Background = None,
    model: flags.Model = None,
    matte: flags.MatteFlag = None,
    mask_every: flags.MaskEvery = None,
    similarity: flags.Similarity = None,
    face: flags.Face = None,
    subjects: flags.Subjects = None,
    face_every: flags.FaceEvery = None,
    small_faces: flags.SmallFaces = False,
    faces: Annotated[
        bool,
        typer.Option(
            "--faces",
            help="Draw the boxes, ids and meshes of faces into the source picture.",
            rich_help_panel=flags.FACES,
            show_default=False,
        ),
    ] = False,
    threshold: flags.Threshold = None,
    softness: flags.Softness = None,
    min_area: flags.MinArea = None,
    smooth: flags.Smooth = None,
    expand: flags.Expand = None,
    feather: flags.Feather = None,
    temporal: flags.Temporal = None,
    refine: flags.RefineFlag = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", "-y", help="Replace OUT.png if it exists.", show_default=False),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only print errors.", show_default=False)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also print where an error came from.", show_default=False
        ),
    ] = False,
) -> int:
    """Try settings on one frame: source, matte and result.

    The frames just before are worked on too, so that the edge is as steady as in a render.
    """
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.parsing import parse_seconds
    from bgsoft.cli.render import require_onnxruntime
    from bgsoft.options import settings_from_options
    from bgsoft.presets import build_config

    console = Console()
    with traceback_on_error(verbose):
        config = build_config(
            input,
            output,
            preset=preset,
            flags=settings_from_options(ctx.params, from_text=True),
            draws_faces=faces,
            overwrite=overwrite,
        )
        at_seconds = parse_seconds(at, "--at") if at is not None else None
        require_onnxruntime()
        from bgsoft.preview import write_preview

        result = write_preview(config, at_seconds, faces=faces)
    if not quiet:
        for notice in result.notices:
            console.err(f"notice: {notice}")
        console.err(
            f"{output}: source | matte | result at {result.time_seconds:.3f} s, "
            f"{result.width}x{result.height} each"
        )
    return 0
