"""``bgsoft batch``: many videos, unattended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass
from bgsoft.settings.options import OPTIONS

_files = partial(flags.option, panel="Files")
_work = partial(flags.option, panel="Work")
_ELSEWHERE = ("gpu", "report", "format")
"""Settings of a render whose flags mean something else here; the names tell the container."""
_BRIEF = ("effect", "strength", "background", "quality", "overwrite", "skip_existing")
"""Of a render's settings, those in the short help."""
_EPILOG = (
    "IN is a file, a folder (searched to the bottom, its tree is kept) or a quoted pattern."
    " --matte-out, --face-data and --trace take names like --name does: '{stem}-matte.mkv'."
    " Exit code 1: some files failed; they are listed at the end.\n\n"
    + flags.examples(
        "batch holiday/ soft/",
        "batch 'in/**/*.mov' out/ --name '{stem}-soft.mp4' --preset studio",
        "batch --from list.txt out/ --resume --report report.json",
        "batch incoming/ out/ --watch",
        "batch /shared/in /shared/out --ray 10.0.0.1:6379",
    )
)


@dataclass(frozen=True, kw_only=True)
class BatchFlags:
    """Its arguments, and the flags that are no settings of a render."""

    paths: Annotated[
        list[str],
        typer.Argument(metavar="IN... OUT_DIR", help="Videos to read, and the folder to write to."),
    ]
    lists: Annotated[
        list[str] | None,
        _files(
            "Also take the files FILE lists, one a line (# comments); -: stdin.",
            "--from",
            metavar="FILE",
        ),
        flags.Brief("Also take the files that FILE lists."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        _files(
            "Leave out this name, or path inside IN; * and ? match others. Repeatable.",
            metavar="PATTERN",
        ),
        flags.Brief("Leave out this name or path; may be given again."),
    ] = None
    name: Annotated[
        str,
        _files(
            "Names of the outputs, of {stem}, {suffix}, {parent} and {index}."
            " [default: {stem}{suffix}]",
            metavar="TEMPLATE",
        ),
        flags.Brief("Names of the outputs. [default: {stem}{suffix}]"),
    ] = "{stem}{suffix}"
    resume: Annotated[
        bool,
        _files(
            "Go on with the batch that was begun in OUT_DIR: what failed is tried again, what has"
            " changed is rendered anew.",
            "--resume",
        ),
        flags.Brief("Go on with the batch that was begun in OUT_DIR."),
    ] = False
    dry_run: Annotated[
        bool, _files("Only say what would be rendered, or skipped, and why.", "--dry-run")
    ] = False
    watch: Annotated[
        bool,
        _files(
            "Go on and take what is put into the folders IN, once it is whole, until Ctrl-C"
            " (pip install '.[watch]').",
            "--watch",
        ),
        flags.Brief("Go on and take what is put into IN, until Ctrl-C."),
    ] = False
    settle: Annotated[
        str | None,
        _files("With --watch: take a file unchanged for so long. [default: 2]", metavar="SECONDS"),
        flags.Brief(),
    ] = None
    report: Annotated[
        Path | None, _files("Write what became of each file, as JSON.", metavar="FILE.json")
    ] = None
    jobs: Annotated[
        int | None,
        _work(
            "Files at a time. [default: 2, or half the cores; with GPUs two for each]",
            *("--jobs", "-j"),
            metavar="N",
            min=1,
            max=256,
        ),
        flags.Brief("Files at a time."),
    ] = None
    gpu: Annotated[
        str | None,
        _work("Which GPUs, counted from 0; files are dealt out to them.", metavar="N[,N...]"),
        flags.Brief("Which GPUs, counted from 0."),
    ] = None
    ray: Annotated[
        str | None,
        _work(
            "Render on the nodes of a Ray cluster: HOST:PORT where this machine is one of them,"
            " ray://HOST:PORT from outside, local to try it (pip install '.[ray]').",
            metavar="ADDRESS",
        ),
        flags.Brief("Render on the nodes of a Ray cluster."),
    ] = None
    gpu_share: Annotated[
        float | None,
        _work(
            "With --ray: a file's part of a GPU; 0: none. [default: 0.5, where there are GPUs]",
            metavar="PART",
            min=0.0,
            max=1.0,
        ),
        flags.Brief(),
    ] = None
    retries: Annotated[
        int,
        _work(
            "Further tries where a file's process dies or stands still. [default: 1]",
            metavar="N",
            min=0,
        ),
        flags.Brief(),
    ] = 1
    timeout: Annotated[
        str | None,
        _work("Give a file up after so long: seconds or HH:MM:SS.", metavar="TIME"),
        flags.Brief(),
    ] = None
    preset: flags.Preset = None
    progress: flags.Progress = "auto"
    quiet: flags.Quiet = False
    verbose: Annotated[
        bool, flags.option("Also print what renders report, and tracebacks.", "--verbose", "-v")
    ] = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    names = [name for name in OPTIONS if name not in _ELSEWHERE]
    flags.add_command(app, batch, BatchFlags, epilog=_EPILOG, settings=names, brief_settings=_BRIEF)


def batch(own: BatchFlags, settings: dict[str, Any]) -> int:
    """Render many videos: files, folders, patterns and lists.

    A file that fails does not end it. What is done is kept in OUT_DIR: --resume goes on after a
    crash, a kill or a power cut.
    """
    from bgsoft.cli.guard import go_on_in_child

    go_on_in_child("go on with the batch")
    from bgsoft.cli.batch_run import BatchRun
    from bgsoft.workers import use_batch_scheduling

    use_batch_scheduling()
    return BatchRun(own, settings).run()
