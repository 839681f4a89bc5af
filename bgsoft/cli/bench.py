"""``bgsoft bench``: how fast this machine renders, and where the time goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bgsoft.cli import flags

if TYPE_CHECKING:
    from bgsoft.bench.tables import Table
    from bgsoft.cli.console import Console

__all__ = ["bench", "register"]

RESULTS, EFFORT = "Results", "Effort"
_EPILOG = (
    "Renders run one after another in processes of their own. Close other programs first: what"
    " they take is missing here.\n\n"
    + flags.examples(
        "bench",
        "bench in.mp4 --json now.json --plot now.html",
        "bench in.mp4 --baseline before.json --fail-slower 10",
    )
)
_PARTS = ("phases", "stages")
_SETTINGS = (
    *("effect", "strength", "background", "model", "codec", "quality", "speed"),
    *("gpu", "batch", "precision", "threads"),
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(flags.with_settings(bench, _SETTINGS))


def _file(help: str, metavar: str = "FILE.json") -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=RESULTS, show_default=False)


def bench(
    input: Annotated[
        Path | None,
        typer.Argument(
            metavar="[IN]", help="Video to measure on; without it, a sample clip.", readable=False
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE.json",
            help="Write everything, raw samples too.",
            rich_help_panel=RESULTS,
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        _file("Write what each thread and GPU stream did when, for ui.perfetto.dev."),
    ] = None,
    plot: Annotated[
        Path | None, _file("Draw the results: a page or a picture.", "FILE.html|png")
    ] = None,
    baseline: Annotated[
        Path | None, _file("Compare with the JSON of an earlier run, and mark what is slower.")
    ] = None,
    fail_slower: Annotated[
        float | None,
        typer.Option(
            metavar="PCT",
            min=0.0,
            help="End with exit code 1 if anything is slower than --baseline by more than this"
            " and by more than noise.",
            rich_help_panel=RESULTS,
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Find the best batch size, queue depth and encoder threads; print a preset.",
            rich_help_panel=EFFORT,
            show_default=False,
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Measure briefly: a look, no figures to rely on.",
            rich_help_panel=EFFORT,
            show_default=False,
        ),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_PARTS),
            help="Whole renders, or stages alone. [default: both]",
            rich_help_panel=EFFORT,
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0.5,
            help="Seconds of video in each render; shorter clips are looped. [default: 10]",
            rich_help_panel=EFFORT,
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How often each row is measured. [default: 3]",
            rich_help_panel=EFFORT,
            show_default=False,
        ),
    ] = None,
    preset: flags.Preset = "soft",
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print neither progress nor tables.", show_default=False
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print where an error came from.", show_default=False),
    ] = False,
    **settings: str | bool | None,
) -> int:
    """Measure how fast this machine renders, and where the time goes.

    Renders on the CPU alone, then with one stage after another on the GPU; a plain transcode
    beside them; then every stage alone.
    """
    import json
    import sys
    from dataclasses import replace

    from bgsoft.beside import check_target, made_folders, write_whole
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.exitcodes import ExitCode
    from bgsoft.errors import ConfigError
    from bgsoft.infer.providers import require_runtime
    from bgsoft.options import settings_from_options

    console = Console()
    with traceback_on_error(verbose):
        if only is not None and only not in _PARTS:
            raise ConfigError(f"--only must be {' or '.join(_PARTS)}, not {only!r}")
        if fail_slower is not None and baseline is None:
            raise ConfigError("--fail-slower needs --baseline FILE")
        if plot is not None and plot.suffix.lower() not in (".html", ".png"):
            raise ConfigError(f"--plot must end in .html or .png, not {plot.name!r}")
        targets = {
            what: path
            for what, path in (("results", json_file), ("trace", trace), ("plot", plot))
            if path is not None
        }
        for what, path in targets.items():
            check_target(path, what, others=[input] if input is not None else ())
        given = settings_from_options(settings, from_text=True)
        require_runtime()
        from bgsoft.bench.run import BenchOptions, Effort, run_bench

        effort = Effort.quick() if quick else Effort()
        if seconds is not None:
            effort = replace(effort, seconds=seconds)
        if rounds is not None:
            effort = replace(effort, rounds=rounds)
        results = run_bench(
            BenchOptions(
                input=input,
                preset=preset,
                flags=given,
                effort=effort,
                quick=quick,
                phases=only != "stages",
                stages=only != "phases",
                tune=tune,
                trace=trace,
                baseline=baseline,
                command=["bgsoft", *sys.argv[1:]],
            ),
            tell=(lambda _text: None) if quiet else console.err,
        )
        with made_folders(targets.values(), lambda text: console.err(f"notice: {text}")):
            if json_file is not None:
                text = json.dumps(results, indent=1, default=str)
                write_whole(json_file, "results", text + "\n")
            if plot is not None:
                from bgsoft.bench.plot import write_plot

                write_plot(results, plot)
        if not quiet:
            _print(results, console)
        if fail_slower is not None:
            from bgsoft.bench.baseline import slower_than

            if not results["baseline"]["comparable"]:
                console.error(f"{baseline} is not the same measurement: nothing was compared")
                return ExitCode.RENDER_FAILED
            slower = slower_than(results["baseline"], fail_slower)
            if slower:
                console.error(f"slower than {baseline}: {', '.join(slower)}")
                return ExitCode.RENDER_FAILED
    return ExitCode.OK


def _print(results: dict[str, Any], console: Console) -> None:
    """Tables on a terminal, aligned text elsewhere."""
    import sys

    from bgsoft.bench.tables import plain_lines, tables

    for table in tables(results):
        if sys.stdout.isatty():
            _print_rich(table)
        else:
            for line in plain_lines(table):
                console.out(line)
        console.out()


def _print_rich(table: Table) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    from bgsoft.cli.console import rich_console

    rich = rich_console()
    rich.print(Text(table.title, style="bold"))
    if table.rows:
        drawn = RichTable(box=None, header_style="dim", pad_edge=True)
        for index, column in enumerate(table.columns):
            words = index < table.text_columns
            drawn.add_column(column, justify="left" if words else "right", no_wrap=not words)
        for row in table.rows:
            drawn.add_row(*map(Text, row))
        rich.print(drawn)
    for note in table.notes:
        rich.print(Text(f"  {note}"))
