"""``bgsoft render``: one video in, the same video out with its background changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags
from bgsoft.cli.flags import OUTPUT

__all__ = ["render"]

_EPILOG = (
    "Lengths are percent of the frame height: 4K looks like 1080p. stdin is never read.\n\n"
    + flags.examples(
        "render in.mp4 out.mp4",
        "render in.mp4 out.mp4 --preset studio --strength 3",
        "render in.mp4 out.mp4 --background beach.jpg",
        "render in.mp4 out.mov --preset cutout",
        "render in.mp4 out.mp4 --subjects 0 --face-data faces.jsonl",
    )
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(render)


def render(
    ctx: typer.Context,
    input: Annotated[Path, typer.Argument(metavar="IN", help="Video to read.", readable=False)],
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Video to write; its ending chooses the container, e.g. .mp4 .mkv."
        ),
    ],
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
    face_data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl|FILE.npz",
            help="Also write the faces of every frame, with 468 landmarks each.",
            rich_help_panel=flags.FACES,
            show_default=False,
        ),
    ] = None,
    threshold: flags.Threshold = None,
    softness: flags.Softness = None,
    min_area: flags.MinArea = None,
    smooth: flags.Smooth = None,
    expand: flags.Expand = None,
    feather: flags.Feather = None,
    temporal: flags.Temporal = None,
    refine: flags.RefineFlag = None,
    codec: flags.CodecFlag = None,
    quality: flags.Quality = None,
    speed: flags.Speed = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin here: seconds or HH:MM:SS.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Render at most this long: seconds or HH:MM:SS. [default: to the end]",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    matte_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the mask as a grey video.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            "-y",
            help="Replace OUT, and what is written beside it, where that exists.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = False,
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing",
            help="Do nothing, successfully, if OUT exists.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = False,
    decode: flags.Decode = None,
    infer: flags.Infer = None,
    composite: flags.Composite = None,
    encode: flags.Encode = None,
    gpu: flags.Gpu = None,
    require_gpu: flags.RequireGpu = False,
    batch: flags.Batch = None,
    precision: flags.PrecisionFlag = None,
    threads: flags.Threads = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write what was done, how fast and by what, as JSON.",
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write what each thread and GPU stream did when; open it in ui.perfetto.dev.",
            show_default=False,
        ),
    ] = None,
    progress: Annotated[
        str,
        typer.Option(
            metavar="auto|rich|plain|json|none",
            help="auto: a live bar on a terminal, else plain lines; json: one object a line on"
            " stdout.",
        ),
    ] = "auto",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only print errors.", show_default=False)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also print scene cuts, and where an error came from.",
            show_default=False,
        ),
    ] = False,
) -> int:
    """Change the background behind the people in a video.

    Frames, timestamps, sound, subtitles and colours stay as they are.
    """
    from bgsoft.backends import may_use_gpu
    from bgsoft.beside import check_target, made_folders
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.exitcodes import exit_code
    from bgsoft.cli.parsing import parse_choice, parse_seconds
    from bgsoft.cli.progress import ProgressKind, make_view
    from bgsoft.cli.signals import StopSignals
    from bgsoft.cuda.driver import cuda_number, open_context, show_only
    from bgsoft.errors import ConfigError, RenderCancelledError
    from bgsoft.options import settings_from_options
    from bgsoft.presets import build_config
    from bgsoft.startup import Parts, logged, span

    console = Console()
    with traceback_on_error(verbose):
        kind = parse_choice(ProgressKind, progress, "--progress")
        if overwrite and skip_existing:
            raise ConfigError("--overwrite and --skip-existing exclude each other")
        if quiet and kind in (ProgressKind.RICH, ProgressKind.PLAIN):
            raise ConfigError(f"--quiet and --progress {kind} exclude each other")
        config = build_config(
            input,
            output,
            preset=preset,
            flags=settings_from_options(ctx.params, from_text=True),
            start_seconds=parse_seconds(start, "--start") if start else 0.0,
            duration_seconds=parse_seconds(duration, "--duration") if duration else None,
            overwrite=overwrite,
            matte_out=matte_out,
            face_data=face_data,
        )
        check_container(output)
        if matte_out is not None:
            check_container(matte_out)
        # An output that is skipped leaves its report as it is.
        skips = skip_existing and output.exists()
        taken = [path for path in (input, output, matte_out, face_data) if path is not None]
        for path, what in ((trace, "trace"), (report, "report")):
            if path is not None and not skips:
                check_target(path, what, overwrite=overwrite, others=taken)
                taken.append(path)
        require_onnxruntime()
        if config.backends.gpu is not None:
            show_only(config.backends.gpu)
        view = make_view(kind, console, quiet=quiet, verbose=verbose)
        with StopSignals(console) as stop, logged(), Parts() as early:
            if may_use_gpu(config.backends):
                # The driver needs no interpreter meanwhile, and no library that is imported here.
                number = cuda_number(config.backends.gpu or 0)
                early.begin("CUDA context", partial(open_context, number))
            with span("imports for the input"):
                from bgsoft.rendering import render as run
            view.start(config)
            try:
                result = run(
                    config,
                    skip_existing=skip_existing,
                    on_progress=view.progress,
                    on_event=view.event,
                    cancel=stop.cancel,
                    trace=trace,
                )
                if report is not None and not (result.skipped and report.exists()):
                    with made_folders([report], view.notice):
                        result.write_json(report)
            except BaseException as exc:
                cancelled = isinstance(exc, RenderCancelledError)
                code = stop.exit_code if cancelled else exit_code(exc)
                view.failed(exc, code)
                if cancelled:
                    return code
                raise
            view.done(result)
    return 0


def check_container(path: Path) -> None:
    """Raise ConfigError unless a file of this name can be written."""
    from bgsoft.errors import ConfigError, UnsupportedFormatError
    from bgsoft.media.containers import container_for

    try:
        container_for(path)
    except UnsupportedFormatError as exc:
        raise ConfigError(str(exc), path=path) from exc


def require_onnxruntime() -> None:
    """Raise BackendUnavailableError where bgsoft was installed without a runtime for models."""
    from bgsoft.errors import BackendUnavailableError
    from bgsoft.infer.providers import runtime_problem

    problem = runtime_problem()
    if problem is not None:
        raise BackendUnavailableError(f"{problem.reason}: {problem.fix}")
