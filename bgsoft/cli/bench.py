"""``bgsoft bench``: how fast this machine renders, and where the time goes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags

_result = partial(flags.option, panel="Results")
_effort = partial(flags.option, panel="Effort")
_EPILOG = (
    "Renders run one after another in processes of their own. Close other programs first: what"
    " they take is missing here.\n\n"
    + flags.examples(
        "bench",
        "bench in.mp4 --json now.json --plot now.png",
        "bench in.mp4 --baseline before.json --fail-slower 10",
    )
)
_SETTINGS = (
    *("effect", "strength", "background", "model", "matte", "mask_every", "face", "refine"),
    *("codec", "quality", "speed", "gpu", "batch", "precision", "threads"),
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(flags.with_settings(bench, _SETTINGS))


def bench(
    input: Annotated[
        Path | None,
        typer.Argument(
            metavar="[IN]",
            help="Video to measure on; in a checkout by default the sample.",
            readable=False,
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        _result("Write everything, raw samples too.", "--json", metavar="FILE.json"),
    ] = None,
    plot: Annotated[
        Path | None,
        _result(
            "Draw frames a second and the time of each stage (pip install '.[plot]').",
            metavar="FILE.png|svg",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        _result(
            "Compare with the JSON of an earlier run, and mark what is slower.",
            metavar="FILE.json",
        ),
    ] = None,
    fail_slower: Annotated[
        float | None,
        _result(
            "End with exit code 1 if anything is slower than --baseline by more than this and by"
            " more than noise.",
            metavar="PCT",
            min=0.0,
        ),
    ] = None,
    seconds: Annotated[
        float,
        _effort(
            "Seconds of video in each render; shorter clips are rendered whole. [default: 10]",
            metavar="N",
            min=0.5,
        ),
    ] = 10.0,
    rounds: Annotated[
        int, _effort("How often each row is measured. [default: 3]", metavar="N", min=1)
    ] = 3,
    preset: flags.Preset = "soft",
    quiet: Annotated[
        bool, flags.option("Print neither progress nor tables.", "--quiet", "-q")
    ] = False,
    verbose: Annotated[
        bool, flags.option("Print where an error came from.", "--verbose", "-v")
    ] = False,
    **settings: str | bool | None,
) -> int:
    """Measure how fast this machine renders, and where the time goes.

    Renders on the CPU alone, then with one stage after another on the GPU; beside them a render
    without its encoder, the decoder alone, and a plain transcode.
    """
    import json
    import sys

    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.plotting import check_plot
    from bgsoft.cli.tables import terminal_text
    from bgsoft.errors import ConfigError
    from bgsoft.exitcodes import ExitCode
    from bgsoft.infer.providers import require_runtime
    from bgsoft.outputs import STDOUT, check_target, made_folders, write_whole
    from bgsoft.settings.options import settings_from_options

    console = Console()
    with traceback_on_error(verbose):
        if fail_slower is not None and baseline is None:
            raise ConfigError("--fail-slower needs --baseline FILE")
        if plot is not None:
            check_plot(plot)
        for what, path in (("results", json_file), ("plot", plot)):
            if path is not None:
                check_target(path, what, others=[input] if input is not None else ())
        given = settings_from_options(settings, from_text=True)
        require_runtime()
        from bgsoft.bench.baseline import slower_than
        from bgsoft.bench.run import run_bench
        from bgsoft.cli.bench_tables import tables

        results = run_bench(
            input,
            preset=preset,
            flags=given,
            seconds=seconds,
            rounds=rounds,
            baseline=baseline,
            command=["bgsoft", *sys.argv[1:]],
            log=(lambda _text: None) if quiet else console.err,
        )
        targets = [path for path in (json_file, plot) if path is not None]
        with made_folders(targets, lambda text: console.err(f"notice: {text}")):
            if json_file is not None:
                text = json.dumps(results, indent=1, default=str)
                write_whole(json_file, "results", text + "\n")
            if plot is not None:
                from bgsoft.cli.bench_plot import write_bench_plot

                write_bench_plot(results, plot)
        if not quiet and json_file != STDOUT:
            for table in tables(results):
                console.out(terminal_text(table) + "\n")
        if fail_slower is not None:
            if not results["baseline"]["comparable"]:
                console.error(f"{baseline} is not the same measurement: nothing was compared")
                return ExitCode.RENDER_FAILED
            slower = slower_than(results["baseline"], fail_slower)
            if slower:
                console.error(f"slower than {baseline}: {', '.join(slower)}")
                return ExitCode.RENDER_FAILED
    return ExitCode.OK
