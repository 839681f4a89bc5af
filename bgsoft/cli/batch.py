"""``bgsoft batch``: many videos, unattended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bgsoft.cli import flags
from bgsoft.settings.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack

    from bgsoft.batch.run import Summary
    from bgsoft.cli.console import Console
    from bgsoft.exitcodes import ExitCode
    from bgsoft.jobs.task import Executor
    from bgsoft.settings.config import RenderConfig

_files = partial(flags.option, panel="Files")
_work = partial(flags.option, panel="Work")
_OWN = ("gpu", "report")
"""Settings of a render that are something else here."""
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


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    names = [name for name in OPTIONS if name not in _OWN]
    app.command(cls=flags.GroupedCommand, epilog=_EPILOG)(flags.with_settings(batch, names))


def batch(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="IN... OUT_DIR", help="Videos to read, and the folder to write to."),
    ],
    lists: Annotated[
        list[str] | None,
        _files(
            "Also take the files that this one lists, one a line, # begins a comment; - is standard"
            " input.",
            "--from",
            metavar="FILE",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        _files(
            "Leave out files and folders of this name, or path inside IN; * and ? stand for others."
            " May be given more than once.",
            metavar="PATTERN",
        ),
    ] = None,
    name: Annotated[
        str,
        _files(
            "Names of the outputs, of {stem}, {suffix}, {parent} and {index}."
            " [default: {stem}{suffix}]",
            metavar="TEMPLATE",
        ),
    ] = "{stem}{suffix}",
    resume: Annotated[
        bool,
        _files(
            "Go on with the batch that was begun in OUT_DIR: what failed is tried again, what has"
            " changed is rendered anew.",
            "--resume",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        _files("Only say what would be rendered, or skipped, and why.", "--dry-run"),
    ] = False,
    watch: Annotated[
        bool,
        _files(
            "Go on and take what is put into the folders IN, once it is whole, until Ctrl-C"
            " (pip install '.[watch]').",
            "--watch",
        ),
    ] = False,
    settle: Annotated[
        str | None,
        _files(
            "With --watch: take a file once it has not changed for so long. [default: 2]",
            metavar="SECONDS",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        _files("Write what became of each file, as JSON.", metavar="FILE.json"),
    ] = None,
    jobs: Annotated[
        int | None,
        _work(
            "Files at a time. [default: 2, or half the cores; with GPUs two for each]",
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            max=256,
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        _work("Which GPUs, counted from 0; files are dealt out to them.", metavar="N[,N...]"),
    ] = None,
    ray: Annotated[
        str | None,
        _work(
            "Render on the nodes of a Ray cluster: HOST:PORT where this machine is one of them,"
            " ray://HOST:PORT from outside, local to try it (pip install '.[ray]').",
            metavar="ADDRESS",
        ),
    ] = None,
    gpu_share: Annotated[
        float | None,
        _work(
            "With --ray: the part of a GPU that a file reserves; 0: none. [default: 0.5, where the"
            " cluster has GPUs]",
            metavar="PART",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    retries: Annotated[
        int,
        _work(
            "Try a file again so often when its process dies or stands still. [default: 1]",
            metavar="N",
            min=0,
        ),
    ] = 1,
    timeout: Annotated[
        str | None,
        _work("Give a file up after so long: seconds or HH:MM:SS.", metavar="TIME"),
    ] = None,
    preset: flags.Preset = "soft",
    progress: flags.Progress = "auto",
    quiet: flags.Quiet = False,
    verbose: Annotated[
        bool,
        flags.option(
            "Also print what renders report, and where errors came from.", "--verbose", "-v"
        ),
    ] = False,
    **settings: str | list[str] | bool | None,
) -> int:
    """Render many videos: files, folders, patterns and lists.

    A file that fails does not end it. What is done is kept in OUT_DIR: --resume goes on after a
    crash, a kill or a power cut.
    """
    from contextlib import ExitStack

    from bgsoft.batch.check import check_encoding, check_settings, read_gpus
    from bgsoft.batch.decide import Act, agree, decide
    from bgsoft.batch.find import find, read_list
    from bgsoft.batch.job import Planner, shared_inputs
    from bgsoft.batch.run import Batch, clear_skipped
    from bgsoft.batch.state import STATE_NAME, State
    from bgsoft.batch.watch import FolderWatch
    from bgsoft.chunks.renders import Renders
    from bgsoft.cli.batch_view import make_batch_view, show_plan
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.progress import check_report, read_progress
    from bgsoft.cli.signals import StopSignals
    from bgsoft.errors import ConfigError, OpenError
    from bgsoft.exitcodes import one_line
    from bgsoft.infer.providers import require_runtime
    from bgsoft.jobs.driver import Driver, stall_limit
    from bgsoft.jobs.ray_cluster import check_address
    from bgsoft.outputs import check_target, made_folders
    from bgsoft.settings.options import settings_from_options

    console = Console()
    with traceback_on_error(verbose), ExitStack() as stack:
        kind = read_progress(progress, quiet)
        view = make_batch_view(kind, console, quiet, verbose)
        limit = _seconds(timeout, "--timeout", None)
        settle_seconds = _seconds(settle, "--settle", 2.0)
        _check_together(
            {
                "--gpu-share needs --ray": gpu_share is not None and ray is None,
                "--gpu counts this machine's GPUs: with --ray there is --gpu-share": (
                    gpu is not None and ray is not None
                ),
                "--settle needs --watch": settle is not None and not watch,
                "--dry-run and --watch exclude each other": dry_run and watch,
                "--dry-run writes no --report": dry_run and report is not None,
                "--name is empty": not name,
            }
        )
        check_report(report, kind)
        given = settings_from_options(settings, from_text=True)
        gpus = read_gpus(gpu)
        if gpus:
            given.setdefault("backends", {})["gpu"] = gpus[0]  # each worker has its own
        require_runtime()
        if ray is not None:
            check_address(ray)
        *sources, last = paths
        for each in lists or ():
            sources += read_list(each)
        folder = Path(last)
        if not sources:
            raise ConfigError("nothing to render: IN is missing before OUT_DIR")
        left_out = exclude or []
        found = [] if watch else list(find(sources, leave_out=folder, exclude=left_out))
        if not found and not watch:
            rest = ", but for what is excluded" if left_out else ""
            raise OpenError(f"no videos in {', '.join(sources)}{rest}")
        planner = Planner(folder, name=name, preset=preset, flags=given)
        common = planner.settings
        check_settings(common, here=ray is None)
        if report is not None:
            check_target(report, "report", overwrite=resume or common.overwrite)
        stop = stack.enter_context(StopSignals(console))
        if not dry_run:
            stack.enter_context(made_folders([folder / STATE_NAME], lambda _text: None))
        anew = common.overwrite or common.skip_existing
        state = stack.enter_context(State(folder, anew=anew, look_only=dry_run))
        planner.numbers = state.numbers if resume or watch else {}
        planned = planner.plan(found)
        check_encoding(planned)
        decisions = [decide(job, state, resume=resume) for job in planned]
        if dry_run:
            show_plan(decisions, kind, console)
        if not watch:
            agree(decisions, state, resume=resume)
        if dry_run:
            return 0
        more = None
        if watch:
            watched = FolderWatch(
                sources,
                leave_out=folder,
                exclude=left_out,
                settle_seconds=settle_seconds or 0.0,
                tell=console.err,
            )
            more = partial(planner.plan_each, stack.enter_context(watched).whole, console.err)
        state.begin(decision.entry for decision in decisions)
        left = [decision.job for decision in decisions if decision.act is Act.RENDER]
        for text in clear_skipped(decisions, folder):
            view.notice(text)
        executor = _executor(
            stack,
            common,
            folder,
            state.lock,
            ray=ray,
            workers=jobs,
            gpus=gpus,
            gpu_share=gpu_share,
            files=None if watch else len(left),
            inputs=[*shared_inputs(common, left), *map(Path, sources if watch else ())],
            notice=view.notice,
        )
        stall = stall_limit(common.backends.stall_seconds)
        driver = Driver(executor, retries=retries, timeout_seconds=limit, stall_seconds=stall)
        summary = Batch(
            left,
            Renders(driver),
            state,
            view=view,
            stop=stop.cancel,
            describe=one_line,
            more=more,
        ).run()
        if report is not None:
            summary.write_json(report)
        return _end(summary, console, stop.exit_code)


def _seconds(text: str | None, flag: str, default: float | None) -> float | None:
    from bgsoft.errors import ConfigError
    from bgsoft.settings.setting import parse_seconds

    if text is None:
        return default
    seconds = parse_seconds(text, flag)
    if seconds <= 0:
        raise ConfigError(f"{flag} must be more than 0 seconds, not {seconds:g}")
    return seconds


def _check_together(problems: Mapping[str, bool]) -> None:
    """Raise ConfigError with the first problem that there is."""
    from bgsoft.errors import ConfigError

    for text, holds in problems.items():
        if holds:
            raise ConfigError(text)


def _executor(
    stack: ExitStack,
    config: RenderConfig,
    folder: Path,
    lock: int,
    *,
    ray: str | None,
    workers: int | None,
    gpus: Sequence[int],
    gpu_share: float | None,
    files: int | None,
    inputs: Sequence[Path],
    notice: Callable[[str], None],
) -> Executor:
    """Where files are rendered.

    Args:
        stack: Holds what has to last as long.
        config: The settings of all files.
        folder: The output folder.
        lock: What keeps others out of it.
        ray: A cluster's address; None: this machine.
        workers: Files at a time; None: as many as fit.
        gpus: Which GPUs of this machine; none: the settings decide.
        gpu_share: The part of a GPU that a file reserves on a cluster.
        files: How many there are; None: any number.
        inputs: What a machine has to see.
        notice: Takes a line about the workers.
    """
    from bgsoft.batch.check import default_workers
    from bgsoft.jobs.pool import Pool, worker_environment
    from bgsoft.jobs.ray import RayExecutor
    from bgsoft.rendering.backends import STAGES

    backends = config.backends
    if ray is None or files == 0:
        count = workers or default_workers(backends, gpus)
        if files is not None:
            count = max(1, min(count, files))
        environment = stack.enter_context(worker_environment(backends, count, len(gpus), notice))
        return Pool(count, gpus=gpus, shared=[lock], environment=environment)
    if gpu_share is None and all(getattr(backends, stage) == "cpu" for stage in STAGES):
        gpu_share = 0.0
    tasks = None if files is None else files * (config.chunks or 1)
    return RayExecutor(
        ray,
        folder=folder,
        inputs=inputs,
        most=min(filter(None, (workers, tasks)), default=None),
        threads=backends.threads or None,
        gpu_share=gpu_share,
        notice=notice,
    )


def _end(summary: Summary, console: Console, stop_code: ExitCode) -> int:
    """Say why files are left or have failed; the exit code."""
    from bgsoft.cli.batch_view import counted
    from bgsoft.exitcodes import ExitCode, one_line

    total, failed, left = len(summary.entries), len(summary.failed), summary.left
    of_all = counted(total, "file")
    if left:
        rest = f"{left} of {of_all} {'is' if left == 1 else 'are'} left: go on with --resume"
    elif failed:
        rest = f"{failed} of {of_all} failed: --resume tries again"
    else:
        rest = f"{total} of {of_all} {'is' if total == 1 else 'are'} done"
    if summary.stopped:
        word = "interrupted" if stop_code == ExitCode.INTERRUPTED else "terminated"
        console.error(f"{word}; {rest}")
        return stop_code
    if summary.full is not None:
        console.error(f"{one_line(summary.full)}; no more files were begun; {rest}")
        return ExitCode.OUTPUT
    if summary.lost is not None:
        console.error(f"{one_line(summary.lost)}; {rest}")
        return ExitCode.UNAVAILABLE
    if failed:
        console.error(f"{failed} of {of_all} failed")
        return ExitCode.RENDER_FAILED
    return ExitCode.OK
