"""A run of ``bgsoft batch``, from its flags to its exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.batch.check import check_encoding, check_settings, default_workers, read_gpus
from bgsoft.batch.decide import Act, agree, decide
from bgsoft.batch.find import Found, find, passed_over_text, read_list
from bgsoft.batch.job import BatchJob, JobFactory, shared_inputs
from bgsoft.batch.run import Batch, Summary, clear_skipped, is_report, kept_files_text
from bgsoft.batch.state import STATE_NAME, BatchState
from bgsoft.batch.watch import FolderWatch
from bgsoft.chunks.renders import Renders
from bgsoft.cli.batch_flags import BatchFlags
from bgsoft.cli.batch_view import counted, make_batch_view, show_plan
from bgsoft.cli.console import Console
from bgsoft.cli.progress import check_stdout, read_progress
from bgsoft.cli.signals import StopSignals
from bgsoft.errors import ConfigError, OpenError
from bgsoft.exitcodes import ExitCode, one_line
from bgsoft.infer.providers import require_runtime
from bgsoft.jobs.driver import Driver, stall_limit
from bgsoft.jobs.pool import Pool, worker_environment
from bgsoft.jobs.ray import RayExecutor
from bgsoft.jobs.ray_cluster import check_address
from bgsoft.jobs.task import Executor
from bgsoft.outputs import check_target, made_folders
from bgsoft.rendering.backends import STAGES
from bgsoft.rendering.request import Request
from bgsoft.settings.presets import ignored_text
from bgsoft.settings.setting import parse_seconds
from bgsoft.settings.user import read_user_config

_SETTLE_SECONDS = 2.0


class BatchRun:
    """A batch that is about to run; the constructor checks its flags.

    Args:
        flags: The command's flags.
        settings: Settings of the renders: section → field → value.

    Raises:
        BgsoftError: A flag, a setting or an input is wrong, or a backend is unavailable.
    """

    def __init__(self, flags: BatchFlags, settings: dict[str, dict[str, Any]]) -> None:
        self._flags = flags
        self._console = Console()
        self._kind = read_progress(flags.progress, quiet=flags.quiet)
        self._view = make_batch_view(
            self._kind, self._console, quiet=flags.quiet, verbose=flags.verbose
        )
        self._timeout_seconds = _seconds(flags.timeout, "--timeout")
        self._settle_seconds = _seconds(flags.settle, "--settle") or _SETTLE_SECONDS
        _check_together(flags)
        check_stdout(flags.report, self._kind)
        self._gpus = read_gpus(flags.gpu)
        if self._gpus:
            settings.setdefault("backends", {})["gpu"] = self._gpus[0]  # each worker has its own
        preset = read_user_config().preset(flags.preset)
        require_runtime()
        if flags.ray is not None:
            check_address(flags.ray)
        *self._named, folder = flags.paths
        self._sources = [*self._named]
        for each in flags.lists or ():
            self._sources += read_list(each)
        self._folder = Path(folder)
        self._found = self._find()
        self._job_factory = JobFactory(self._folder, name=flags.name, preset=preset, flags=settings)
        self._common = self._job_factory.settings
        check_settings(self._common, here=flags.ray is None)
        self._check_report([])

    def run(self) -> ExitCode:
        """Render everything, or print the plan; return the exit code."""
        flags, folder, console = self._flags, self._folder, self._console
        with ExitStack() as stack:
            stop = stack.enter_context(StopSignals())
            if not flags.dry_run:
                stack.enter_context(made_folders([folder / STATE_NAME], lambda _text: None))
            replace_unusable = self._common.overwrite or self._common.skip_existing
            state = stack.enter_context(
                BatchState(folder, replace_unusable=replace_unusable, read_only=flags.dry_run)
            )
            self._job_factory.numbers = state.numbers if flags.resume or flags.watch else {}
            self._job_factory.own = state.own
            planned = self._job_factory.plan(self._found)
            if self._found and not planned:
                self._view.notice("only outputs of this batch were found: name them to render them")
            check_encoding(planned)
            self._check_report(planned)
            decisions = [decide(job, state, resume=flags.resume) for job in planned]
            if flags.dry_run:
                show_plan(decisions, self._kind, console)
            if not flags.watch:
                agree(decisions, state, resume=flags.resume)
            if flags.dry_run:
                return ExitCode.OK
            more = self._watch(stack) if flags.watch else None
            state.begin(decision.entry for decision in decisions)
            left = [decision.job for decision in decisions if decision.act is Act.RENDER]
            notices = [ignored_text(self._common.preset_file), kept_files_text(decisions, folder)]
            for text in (*filter(None, notices), *clear_skipped(decisions, folder)):
                self._view.notice(text)
            driver = Driver(
                self._executor(left, state),
                retries=flags.retries,
                timeout_seconds=self._timeout_seconds,
                stall_seconds=stall_limit(self._common.backends.stall_seconds),
            )
            summary = Batch(
                left, Renders(driver), state, view=self._view, stop=stop.cancel, more=more
            ).run()
            if flags.report is not None:
                summary.write_json(flags.report)
            return _end(summary, console, stop.exit_code)

    def _check_report(self, jobs: Sequence[BatchJob]) -> None:
        """Raise OutputError if the report would replace a file that is not a report."""
        path = self._flags.report
        if path is None:
            return
        overwrite = self._common.overwrite or (self._flags.resume and is_report(path))
        others = [file for job in jobs for file in (*Request(job.config).read_files, *job.files)]
        others.append(self._folder / STATE_NAME)
        check_target(path, "report", overwrite=overwrite, others=others)

    def _find(self) -> list[Found]:
        """Return the videos that exist; ``--watch`` finds more later."""
        if not self._sources:
            lists = ", ".join(self._flags.lists or ())
            reason = f"list {lists} is empty" if lists else "IN is missing before OUT_DIR"
            raise ConfigError(f"cannot start the batch: {reason}")
        if self._flags.watch:
            return []
        exclude = self._flags.exclude or []
        others: Counter[str] = Counter()
        found = list(
            find(
                self._sources,
                leave_out=self._folder,
                named=self._named,
                exclude=exclude,
                passed_over=others,
            )
        )
        if not found:
            rest = ", except excluded ones" if exclude else ""
            rest += f"; {passed_over_text(others)}" if others else ""
            raise OpenError(
                f"cannot start the batch: no video or picture in {', '.join(self._sources)}{rest}"
            )
        if others:
            self._view.notice(passed_over_text(others))
        return found

    def _watch(self, stack: ExitStack) -> Callable[[], Sequence[BatchJob]]:
        """Return a function that returns further files."""
        watch = FolderWatch(
            self._sources,
            leave_out=self._folder,
            named=self._named,
            exclude=self._flags.exclude or [],
            settle_seconds=self._settle_seconds,
            on_notice=self._console.err,
        )
        return partial(
            self._job_factory.plan_each, stack.enter_context(watch).whole, self._console.err
        )

    def _executor(self, left: Sequence[BatchJob], state: BatchState) -> Executor:
        """Return the executor that renders the files."""
        flags, backends = self._flags, self._common.backends
        count = None if flags.watch else len(left)
        if flags.ray is None or count == 0:
            workers = flags.jobs or default_workers(backends, self._gpus)
            if count is not None:
                workers = max(1, min(workers, count))
            gpus = len(self._gpus)
            environment = worker_environment(backends, workers, gpus, self._view.notice)
            return Pool(workers, gpus=self._gpus, shared=[state.lock], environment=environment)
        gpu_share = flags.gpu_share
        if gpu_share is None and all(getattr(backends, stage) == "cpu" for stage in STAGES):
            gpu_share = 0.0
        tasks = None if count is None else count * (self._common.chunks or 1)
        watched = map(Path, self._sources if flags.watch else ())
        return RayExecutor(
            flags.ray,
            folder=self._folder,
            inputs=[*shared_inputs(self._common, left), *watched],
            max_tasks=min(filter(None, (flags.jobs, tasks)), default=None),
            threads=backends.threads or None,
            gpu_share=gpu_share,
            notice=self._view.notice,
        )


def _seconds(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    seconds = parse_seconds(text, flag)
    if seconds <= 0:
        raise ConfigError(f"{flag} must be more than 0 seconds, not {seconds:g}")
    return seconds


def _check_together(flags: BatchFlags) -> None:
    """Raise ConfigError for flags that contradict each other."""
    problems = {
        "--gpu-share needs --ray": flags.gpu_share is not None and flags.ray is None,
        "cannot combine --gpu and --ray: --gpu counts this machine's GPUs; use --gpu-share": (
            flags.gpu is not None and flags.ray is not None
        ),
        "--settle needs --watch": flags.settle is not None and not flags.watch,
        "cannot combine --dry-run and --watch: choose one": flags.dry_run and flags.watch,
        "cannot combine --dry-run and --report: nothing is rendered": (
            flags.dry_run and flags.report is not None
        ),
    }
    for text, holds in problems.items():
        if holds:
            raise ConfigError(text)


def _end(summary: Summary, console: Console, stop_code: ExitCode) -> ExitCode:
    """Report why files are left or have failed; return the exit code."""
    total, failed, left = len(summary.entries), len(summary.failed), summary.left
    of_all = counted(total, "file")
    if left:
        rest = f"{left} of {of_all} {'is' if left == 1 else 'are'} left; continue with --resume"
    elif failed:
        rest = f"{failed} of {of_all} failed; --resume tries again"
    else:
        rest = f"{total} of {of_all} {'is' if total == 1 else 'are'} done"
    if summary.stopped:
        console.error(f"{stop_code.name.lower()}; {rest}")
        return stop_code
    if summary.full is not None:
        console.error(f"{one_line(summary.full)}; no more files were started; {rest}")
        return ExitCode.OUTPUT
    if summary.lost is not None:
        console.error(f"{one_line(summary.lost)}; {rest}")
        return ExitCode.UNAVAILABLE
    if failed:
        console.error(f"{failed} of {of_all} failed")
        return ExitCode.RENDER_FAILED
    if left:  # their outputs were deleted
        console.error(rest)
        return ExitCode.RENDER_FAILED
    return ExitCode.OK
