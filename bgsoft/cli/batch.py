"""``bgsoft batch``: many videos, unattended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bgsoft.cli import flags
from bgsoft.settings.options import OPTIONS, TOP

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
            "Also take the files that this one lists, one a line; - is standard input.",
            "--from",
            metavar="FILE",
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
            "Go on with the batch that was begun in OUT_DIR; what failed is tried again.",
            "--resume",
        ),
    ] = False,
    watch: Annotated[
        bool,
        _files(
            "Go on and take what is put into the folders IN, once it is whole, until Ctrl-C"
            " (pip install '.[watch]').",
            "--watch",
        ),
    ] = False,
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

    from bgsoft.batch.find import find, read_list
    from bgsoft.batch.job import Planner, shared_inputs
    from bgsoft.batch.run import Batch, agree
    from bgsoft.batch.state import STATE_NAME, State
    from bgsoft.batch.watch import FolderWatch
    from bgsoft.batch.workers import default_workers, read_gpus
    from bgsoft.chunks.renders import Renders
    from bgsoft.cli.batch_view import make_batch_view
    from bgsoft.cli.console import Console, traceback_on_error
    from bgsoft.cli.progress import read_progress
    from bgsoft.cli.signals import StopSignals
    from bgsoft.errors import ConfigError, OpenError
    from bgsoft.exitcodes import ExitCode, one_line
    from bgsoft.infer.providers import require_runtime
    from bgsoft.jobs.driver import Driver, stall_limit
    from bgsoft.jobs.environment import worker_environment
    from bgsoft.jobs.pool import Pool
    from bgsoft.jobs.ray import RayExecutor
    from bgsoft.jobs.ray_cluster import check_address
    from bgsoft.jobs.task import Executor
    from bgsoft.outputs import check_target, made_folders
    from bgsoft.rendering.backends import STAGES
    from bgsoft.settings.options import settings_from_options
    from bgsoft.settings.setting import parse_seconds

    console = Console()
    with traceback_on_error(verbose), ExitStack() as stack:
        view = make_batch_view(read_progress(progress, quiet), console, quiet, verbose)
        limit = None if timeout is None else parse_seconds(timeout, "--timeout")
        if limit is not None and limit <= 0:
            raise ConfigError(f"--timeout must be more than 0 seconds, not {limit:g}")
        given = settings_from_options(settings, from_text=True)
        if ray is None and gpu_share is not None:
            raise ConfigError("--gpu-share needs --ray")
        if ray is not None and gpu is not None:
            raise ConfigError("--gpu counts this machine's GPUs: with --ray there is --gpu-share")
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
        found = [] if watch else list(find(sources, leave_out=folder))
        if not found and not watch:
            raise OpenError(f"no videos in {', '.join(sources)}")
        if report is not None:
            replace = resume or given.get(TOP, {}).get("overwrite", False)
            check_target(report, "report", overwrite=replace)
        stop = stack.enter_context(StopSignals(console))
        stack.enter_context(made_folders([folder / STATE_NAME], lambda _text: None))
        state = stack.enter_context(State(folder))
        planner = Planner(
            folder,
            name=name,
            preset=preset,
            flags=given,
            numbers=state.numbers if resume or watch else {},
        )
        left, more = [], None
        if watch:
            watched = FolderWatch(sources, leave_out=folder, tell=console.err)
            more = partial(planner.plan_each, stack.enter_context(watched).whole, console.err)
        else:
            left = agree(planner.plan(found), state, folder, resume=resume)
        backends = planner.settings.backends
        executor: Executor
        if ray is None or not (left or watch):
            workers = jobs or default_workers(backends, gpus)
            if not watch:
                workers = max(1, min(workers, len(left)))
            environment = stack.enter_context(
                worker_environment(backends, workers, len(gpus), view.notice)
            )
            executor = Pool(workers, gpus=gpus, shared=[state.lock], environment=environment)
        else:
            if gpu_share is None and all(getattr(backends, stage) == "cpu" for stage in STAGES):
                gpu_share = 0.0
            parts = planner.settings.chunks or 1
            most = None if watch else len(left) * parts
            executor = RayExecutor(
                ray,
                folder=folder,
                inputs=[
                    *shared_inputs(planner.settings, left),
                    *map(Path, sources if watch else ()),
                ],
                most=min(filter(None, (jobs, most)), default=None),
                threads=backends.threads or None,
                gpu_share=gpu_share,
                notice=view.notice,
            )
        stall = stall_limit(backends.stall_seconds)
        driver = Driver(executor, retries=retries, timeout_seconds=limit, stall_seconds=stall)
        summary = Batch(
            left,
            Renders(driver),
            state,
            folder,
            view=view,
            stop=stop.cancel,
            describe=one_line,
            more=more,
        ).run()
        if report is not None:
            summary.write_json(report)
        total = len(summary.entries)
        rest = f"{summary.left} of {total} files are left: go on with --resume"
        if summary.stopped:
            word = "interrupted" if stop.exit_code == ExitCode.INTERRUPTED else "terminated"
            console.error(f"{word}; {rest}")
            return stop.exit_code
        if summary.full is not None:
            console.error(f"{one_line(summary.full)}; no more files were begun; {rest}")
            return ExitCode.OUTPUT
        if summary.lost is not None:
            console.error(f"{one_line(summary.lost)}; {rest}")
            return ExitCode.UNAVAILABLE
        if summary.failed:
            console.error(f"{len(summary.failed)} of {total} files failed")
            return ExitCode.RENDER_FAILED
    return ExitCode.OK
