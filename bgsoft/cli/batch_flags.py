"""Arguments and flags of ``bgsoft batch``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass

_files = partial(flags.option, panel="Files")
_work = partial(flags.option, panel="Work")


@dataclass(frozen=True, kw_only=True)
class BatchFlags:
    """Its arguments, and the flags that are no settings of a render."""

    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="IN... OUT_DIR", help="Videos and pictures to read, and the folder to write to."
        ),
    ]
    lists: Annotated[
        list[str] | None,
        _files(
            "Also take the files listed in FILE, one a line (# comments); -: stdin.",
            "--from",
            metavar="FILE",
        ),
        flags.Brief("Also take the files listed in FILE."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        _files(
            "Skip this name, or path inside IN; * and ? are wildcards. Repeatable.",
            metavar="PATTERN",
        ),
        flags.Brief("Skip this name or path. Repeatable."),
    ] = None
    name: Annotated[
        str,
        _files(
            "Names of the outputs, made of {stem}, {suffix}, {parent} and {index}."
            " [default: {stem}{suffix}]",
            metavar="TEMPLATE",
        ),
        flags.Brief("Names of the outputs. [default: {stem}{suffix}]"),
    ] = "{stem}{suffix}"
    resume: Annotated[
        bool,
        _files(
            "Continue the batch in OUT_DIR: render the files that are left, have failed or have"
            " changed.",
            "--resume",
        ),
        flags.Brief("Continue the batch in OUT_DIR."),
    ] = False
    dry_run: Annotated[
        bool, _files("Only print what would be rendered or skipped, and why.", "--dry-run")
    ] = False
    watch: Annotated[
        bool,
        _files(
            "Keep running until Ctrl-C, and render files that appear in IN, once they are"
            " complete (pip install '.[watch]').",
            "--watch",
        ),
        flags.Brief("Keep running, and render files that appear in IN."),
    ] = False
    settle: Annotated[
        str | None,
        _files(
            "With --watch: wait until a file is unchanged for this time. [default: 2]",
            metavar="SECONDS",
        ),
        flags.Brief(),
    ] = None
    report: Annotated[
        Path | None, _files("Write the report of each file, as JSON.", metavar="FILE.json")
    ] = None
    jobs: Annotated[
        int | None,
        _work(
            "Files at a time. [default: half the cores, at least 2; with GPUs at most two each]",
            *("--jobs", "-j"),
            metavar="N",
            min=1,
            max=256,
        ),
        flags.Brief("Files at a time."),
    ] = None
    gpu: Annotated[
        str | None,
        _work("Numbers of the GPUs, from 0; they share the files.", metavar="N[,N...]"),
        flags.Brief("Numbers of the GPUs, from 0."),
    ] = None
    ray: Annotated[
        str | None,
        _work(
            "Render on the nodes of a Ray cluster: HOST:PORT on one of them, ray://HOST:PORT from"
            " outside, local to try it (pip install '.[ray]').",
            metavar="ADDRESS",
        ),
        flags.Brief("Render on the nodes of a Ray cluster."),
    ] = None
    gpu_share: Annotated[
        float | None,
        _work(
            "With --ray: share of a GPU for each file; 0: none. [default: 0.5 if there are GPUs]",
            metavar="PART",
            min=0.0,
            max=1.0,
        ),
        flags.Brief(),
    ] = None
    retries: Annotated[
        int,
        _work("Further tries if a file's process dies or stalls. [default: 1]", metavar="N", min=0),
        flags.Brief(),
    ] = 1
    timeout: Annotated[
        str | None,
        _work("Time limit for a file: seconds or HH:MM:SS.", metavar="TIME"),
        flags.Brief(),
    ] = None
    preset: flags.Preset = None
    progress: flags.Progress = "auto"
    quiet: flags.Quiet = False
    verbose: Annotated[
        bool, flags.option("Also print notices of renders, and tracebacks.", "--verbose", "-v")
    ] = False
