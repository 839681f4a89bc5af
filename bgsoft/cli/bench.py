"""``bgsoft bench``: the speed of this machine, and the time of each stage."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass

_result = partial(flags.option, panel="Results")
_effort = partial(flags.option, panel="Effort")
_EPILOG = (
    "Each render is a process of its own, one after another. Close other programs first: they"
    " slow the renders down.\n\n"
    + flags.examples(
        "bench in.mp4 --json now.json --plot now.png",
        "bench in.mp4 --baseline before.json --fail-slower 10",
        "bench in.mp4 --chunks 1,2,4 --seconds 60",
    )
)
_SETTINGS = (
    *("effect", "strength", "background", "model", "matte", "mask_every", "face", "refine"),
    *("codec", "quality", "speed", "gpu", "batch", "precision", "threads"),
)
_BRIEF = ("effect", "strength", "background", "matte", "codec", "quality")
"""Settings of a render in the short help."""


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """Arguments and flags of the command, without settings of a render."""

    input: Annotated[
        Path | None,
        typer.Argument(
            metavar="[IN]",
            help="Video to render. [default: the sample of a checkout]",
            readable=False,
        ),
    ] = None
    json_file: Annotated[
        Path | None, _result("Write all results, with raw samples.", "--json", metavar="FILE.json")
    ] = None
    plot: Annotated[
        Path | None,
        _result(
            "Draw the speed and the time of each stage (pip install '.[plot]').",
            metavar="FILE.png|svg",
        ),
        flags.Brief("Draw the speed and the time of each stage."),
    ] = None
    overwrite: Annotated[
        bool, _result("Replace the files of --json and --plot if they exist.", "--overwrite", "-y")
    ] = False
    baseline: Annotated[
        Path | None,
        _result(
            "Compare with the JSON of an earlier run, and mark slower rows.", metavar="FILE.json"
        ),
        flags.Brief("Compare with the JSON of an earlier run."),
    ] = None
    fail_slower: Annotated[
        float | None,
        _result(
            "Exit code 1 if a row is slower than --baseline by more than PCT and noise.",
            metavar="PCT",
            min=0.0,
        ),
        flags.Brief("Exit code 1 if a row is slower by more."),
    ] = None
    chunks: Annotated[
        str | None,
        _effort("Instead, compare renders in 1, 2, … chunks with ffmpeg.", metavar="1,2,…"),
    ] = None
    files: Annotated[
        int | None,
        _effort(
            "Instead, cut so many clips, and compare bgsoft batch with a shell loop.",
            metavar="N",
            min=1,
        ),
        flags.Brief("Instead, a batch of N clips and a shell loop."),
    ] = None
    seconds: Annotated[
        float,
        _effort("Most seconds of video in each render. [default: 10]", metavar="N", min=0.5),
        flags.Brief("Seconds of video in each render. [default: 10]"),
    ] = 10.0
    rounds: Annotated[
        int, _effort("Number of measurements of each row. [default: 3]", metavar="N", min=1)
    ] = 3
    preset: flags.Preset = None
    quiet: flags.Quiet = False
    verbose: flags.Verbose = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    flags.add_command(
        app, bench, BenchFlags, epilog=_EPILOG, settings=_SETTINGS, brief_settings=_BRIEF
    )


def bench(own: BenchFlags, settings: dict[str, Any]) -> int:
    """Measure how fast this machine renders, and where the time goes.

    Renders on the CPU, then moves one stage after another to the GPU. Also measures a render
    without encoding, the decoder, and ffmpeg.
    """
    import sys

    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.cli.results import ResultFiles, terminal_text
    from bgsoft.errors import ConfigError
    from bgsoft.exitcodes import ExitCode
    from bgsoft.infer.providers import require_runtime
    from bgsoft.outputs import DASH
    from bgsoft.settings.user import read_user_config

    console = Console()
    if own.fail_slower is not None and own.baseline is None:
        raise ConfigError("cannot use --fail-slower: it needs --baseline FILE")
    chunks = _counts(own)
    files = ResultFiles("results", own.json_file, own.plot, own.overwrite)
    preset = read_user_config().preset(own.preset)
    require_runtime()
    go_on_in_child("measure that video")
    from bgsoft.bench.baseline import slower_than
    from bgsoft.bench.run import BenchOptions, read_files, run_bench
    from bgsoft.cli.bench_tables import tables, write_bench_plot

    options = BenchOptions(
        source=own.input,
        preset=preset,
        flags=settings,
        seconds=own.seconds,
        rounds=own.rounds,
        baseline=own.baseline,
        chunks=chunks,
        files=own.files or 0,
        command=["bgsoft", *sys.argv[1:]],
    )
    files.check(read_files(options))
    results = run_bench(options, (lambda _text: None) if own.quiet else console.err)
    files.write(results, partial(write_bench_plot, results), console)
    if not own.quiet and own.json_file != DASH:
        for table in tables(results):
            console.out(terminal_text(table) + "\n")
    if own.fail_slower is not None:
        if not results["baseline"]["comparable"]:
            console.error(f"cannot compare with {own.baseline}: it is not the same measurement")
            return ExitCode.RENDER_FAILED
        slower = slower_than(results["baseline"], own.fail_slower)
        if slower:
            console.error(f"slower than {own.baseline}: {', '.join(slower)}")
            return ExitCode.RENDER_FAILED
    return ExitCode.OK


def _counts(own: BenchFlags) -> list[int]:
    """Return the numbers of ``--chunks``; reject flags that do not go with other comparisons.

    Raises:
        ConfigError: A flag is wrong.
    """
    from bgsoft.errors import ConfigError

    if own.chunks is None and own.files is None:
        return []
    if own.chunks is not None and own.files is not None:
        raise ConfigError(
            "cannot combine --chunks and --files: they are two comparisons; choose one"
        )
    flag = "--chunks" if own.files is None else "--files"
    for name, given in (("--plot", own.plot), ("--baseline", own.baseline)):
        if given is not None:
            raise ConfigError(f"cannot use {name} with {flag}: it has no effect; leave it out")
    counts = (own.chunks or "").split(",") if own.chunks is not None else []
    if not all(count.strip().isdecimal() and int(count) > 0 for count in counts):
        raise ConfigError(f"--chunks must be numbers from 1 on, such as 1,2,4, not {own.chunks!r}")
    return [int(count) for count in counts]
