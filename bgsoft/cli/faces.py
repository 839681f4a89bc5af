"""``bgsoft faces``: the faces of a video, as a file that may be edited."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass

_EPILOG = flags.examples("faces in.mp4 faces.jsonl", "faces in.mp4 faces.jsonl --face guard")


@dataclass(frozen=True, kw_only=True)
class FacesFlags:
    """Arguments of the command, and the flags that are not settings."""

    input: flags.Input
    output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="File to write.")]
    overwrite: Annotated[
        bool, flags.option("Replace OUT.jsonl if it exists.", "--overwrite", "-y")
    ] = False
    quiet: flags.Quiet = False
    verbose: flags.Verbose = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    names = ["face", "face_every", "small_faces", "gpu", "require_gpu"]
    defaults = {"face": "anonymize", "face_every": "by time"}
    flags.add_command(app, faces, FacesFlags, epilog=_EPILOG, settings=names, defaults=defaults)


def faces(own: FacesFlags, settings: dict[str, Any]) -> int:
    """Find the faces of a video, and write them as tracks that may be edited.

    Render with them by --faces. Each line is a track: delete it, move its boxes, or add
    "main": true or "hide": false.
    """
    from bgsoft.cli.batch_view import counted
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.cli.signals import StopSignals
    from bgsoft.errors import RenderCancelledError
    from bgsoft.rendering.listener import Listener
    from bgsoft.rendering.tracks import tracks_config, write_tracks

    config = tracks_config(own.input, own.output, settings, overwrite=own.overwrite)
    go_on_in_child(f"find faces in {config.input}")
    console = Console()

    def report(text: str) -> None:
        if not own.quiet:
            console.err(text)

    # An exception of Ctrl-C could come between two lines of an import, and leave its lock held.
    with StopSignals() as stop:
        listener = Listener(
            on_event=lambda event: report(f"{event.kind}: {event.message}"), cancel=stop.cancel
        )
        try:
            result = write_tracks(config, listener)
        except RenderCancelledError:
            return stop.exit_code
    tracks = counted(len(result.tracks), "track")
    report(f"{own.output}: {tracks} in {counted(len(result.frames), 'frame')}")
    return 0
