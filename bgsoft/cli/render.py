"""``bgsoft render``: change the background of one video."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.errors import ConfigError
from bgsoft.records import dataclass
from bgsoft.settings.options import OPTIONS

_EPILOG = (
    "Lengths are percent of the frame height, so 4K looks like 1080p. stdin is read only as IN.\n\n"
    + flags.examples(
        "render in.mp4 out.mp4",
        "render in.mp4 out.mp4 --preset studio --strength 3",
        "render in.mp4 out.mp4 --background beach.jpg",
        "render in.mp4 out.mov --preset cutout",
        "render photo.jpg person.png --preset cutout",
        "render in.mp4 out.mp4 --subjects 0 --face-data faces.jsonl",
        "render - - --format nut < in.mkv | ffplay -",
    )
)


class RenderCommand(flags.GroupedCommand):
    """Parser of ``bgsoft render``: a shell's ``*.mp4`` may expand to more files than it takes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Suggest ``bgsoft batch`` if there is an argument too many."""
        left = self.make_parser(ctx).parse_args(list(args))[1]
        if left and not ctx.resilient_parsing:
            raise ConfigError(
                f"cannot use argument {left[0]!r}: bgsoft render takes one IN and one OUT; "
                "for several files use bgsoft batch IN... OUT_DIR"
            )
        return super().parse_args(ctx, args)


@dataclass(frozen=True, kw_only=True)
class RenderFlags:
    """Arguments and flags of the command, without settings of a render."""

    input: flags.Input
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="Video to write; its extension chooses the container, e.g. .mp4 .mkv; -: stdout."
            " Or a picture: .png .jpg .webp .tif. Or one picture a frame: frames/%05d.png. Without"
            " OUT: a new file next to IN, such as in.soft.mp4.",
        ),
        flags.Brief("Video or picture to write. [default: next to IN, as in.soft.mp4]"),
    ] = None
    preset: flags.Preset = None
    progress: flags.Progress = "auto"
    quiet: flags.Quiet = False
    verbose: Annotated[
        bool,
        flags.option("Also print scene cuts, and the traceback of an error.", "--verbose", "-v"),
        flags.Brief("Print more."),
    ] = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    flags.add_command(app, render, RenderFlags, epilog=_EPILOG, settings=OPTIONS, cls=RenderCommand)


def render(own: RenderFlags, settings: dict[str, Any]) -> int:
    """Change the background behind the people in a video.

    Frames, timestamps, sound and subtitles are kept.
    """
    from bgsoft.cli import process
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.cli.progress import check_stdout, make_view, read_progress
    from bgsoft.cli.signals import StopSignals
    from bgsoft.cuda.driver import cuda_number, open_context, show_only
    from bgsoft.errors import RenderCancelledError
    from bgsoft.exitcodes import exit_code
    from bgsoft.media.endpoints import EndpointKind
    from bgsoft.outputs import missing_folders
    from bgsoft.rendering.backends import may_use_gpu
    from bgsoft.rendering.configure import build_config
    from bgsoft.rendering.request import Request
    from bgsoft.report import Progress
    from bgsoft.settings.user import read_user_config
    from bgsoft.startup import StartupPool, logged, span
    from bgsoft.threads import use_batch_scheduling

    console = Console()
    kind = read_progress(own.progress, quiet=own.quiet)
    preset = read_user_config().preset(own.preset)
    config = build_config(own.input, own.output, preset=preset, flags=settings)
    check_stdout(config.report, kind, config.output)
    request = Request(config)
    missing = missing_folders(request.written_paths)
    go_on_in_child(f"render {config.input}", partial(request.remove_unfinished, missing))
    use_batch_scheduling()
    if process.ends_after_command:  # nothing of a start can be thrown away
        gc.disable()
    if config.backends.gpu is not None:
        show_only(config.backends.gpu)
    view = make_view(kind, console, quiet=own.quiet, verbose=own.verbose)
    with StopSignals() as stop, logged(), StartupPool() as early:
        if may_use_gpu(config.backends):
            # The driver starts without the interpreter, while libraries are imported here.
            number = cuda_number(config.backends.gpu or 0)
            early.submit("CUDA context", partial(open_context, number))
            if process.ends_after_command:  # the system frees networks faster than we do
                from bgsoft.infer.warm import keep_warm

                keep_warm()
        with span("imports for the input"):
            from bgsoft.chunks.run import render_config
        view.start(config)

        def on_progress(progress: Progress) -> None:
            gc.enable()
            view.progress(progress)

        try:
            result = render_config(
                config, on_progress=on_progress, on_event=view.event, cancel=stop.cancel
            )
        except BaseException as exc:
            cancelled = isinstance(exc, RenderCancelledError)
            code = stop.exit_code if cancelled else exit_code(exc)
            view.failed(exc, code)
            if cancelled:
                if request.outputs[0].destination.kind is EndpointKind.PIPE:
                    console.error(f"{code.name.lower()}; the output is incomplete")
                return code
            raise
        view.done(result)
    return 0
