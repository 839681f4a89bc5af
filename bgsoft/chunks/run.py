"""One render on this machine, in parts side by side where that pays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.progress import PartsProgress
from bgsoft.chunks.tasks import JoinParts, RenderFound, RenderPart
from bgsoft.errors import (
    BgsoftError,
    OutputError,
    RenderCancelledError,
    StallError,
    WorkerDiedError,
)
from bgsoft.jobs.driver import Driver, stall_limit
from bgsoft.jobs.environment import worker_environment
from bgsoft.jobs.pool import Pool
from bgsoft.jobs.task import Finished, Followup, Retrying, TaskContext, Told
from bgsoft.jobs.worker import TaskError
from bgsoft.rendering.part import finds_first
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.workers import usable_cores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bgsoft.rendering.part import Part

_LEAST_CORES = 4
"""From which on videos are rendered in parts without being asked for."""
_POLL_SECONDS = 0.1
_PASSING = (RenderCancelledError, WorkerDiedError, StallError, OutputError, MemoryError)
"""What another run of the same command may not meet again."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A video is rendered in one go."""

    notices: tuple[Event, ...] = ()
    """Why, where the user wanted it otherwise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a video is rendered in parts; its working folder is there."""

    config: RenderConfig
    parts: tuple[Part, ...]
    workers: int
    threads: int
    """Cores that each of them plans for."""
    gpus: Sequence[int]
    """GPUs to deal the parts over; none: they use the one that the settings name."""
    started: float

    def followup(self, threads: int | None = None) -> Followup:
        """Its tasks."""
        config, count = self.config, len(self.parts)
        finds = finds_first(config)
        tasks = (
            RenderPart(config, count, number, part, finds) for number, part in enumerate(self.parts)
        )
        last = JoinParts(config, count, self.started, threads)
        return Followup(tuple(tasks), RenderFound(config, self.parts, last) if finds else last)


def plan_render(config: RenderConfig, workers: int | None = None) -> Plan | Whole:
    """Decide whether a video is rendered in parts, and in which.

    Args:
        config: The render.
        workers: How many parts may be rendered side by side; None: as many as fit this machine.

    Raises:
        BgsoftError: As :func:`bgsoft.rendering.session.render_config`, as far as that shows without
            rendering.
    """
    started = time.time()
    count = config.chunks
    if count == 1 or (config.skip_existing and config.output.exists()):
        return Whole()
    cores = config.backends.threads or usable_cores()
    begun = WorkFolder(config.output).path.exists()
    if count is None and not begun and (workers == 1 or cores < _LEAST_CORES):
        return Whole()
    from bgsoft.chunks import plan
    from bgsoft.media.containers import container_for
    from bgsoft.media.probe import probe

    for path in config.videos:
        container_for(path)
    info = probe(config.input)
    if workers is None:
        workers = plan.workers_for(config, info)
    if count is None and not begun and not plan.pays(config, info, workers):
        return Whole()
    against = plan.reason_against(config, info)
    parts: list[Part] | str = []
    if against is None:
        frames = plan.read_frames(config, info)
        if isinstance(frames, str):
            parts = frames
        else:
            wanted = max(plan.parts_for(config, len(frames.pts), workers), 1 + begun)
            parts = plan.divide(frames, wanted, plan.lead_frames(config) or 0)
        against = parts if isinstance(parts, str) else None
    if against is not None:
        if count is None:
            return Whole()
        text = f"rendered whole, not in {count} parts: {against}"
        return Whole((Event(kind="notice", message=text),))
    assert not isinstance(parts, str)
    from bgsoft.chunks.join import open_joined_data
    from bgsoft.outputs import AtomicOutput, made_folders
    from bgsoft.rendering.session import check_beside, inputs_of

    check_beside(config)
    folder = WorkFolder(config.output)
    with made_folders(config.videos, lambda _text: None):
        for path in config.videos:
            AtomicOutput(path, overwrite=config.overwrite, inputs=inputs_of(config)).close()
        if config.face_data is not None:
            open_joined_data(config).close()
        parts = folder.prepare(config, parts)
    workers = min(workers, len(parts))
    threads = plan.threads_for(config, workers)
    return Plan(config, tuple(parts), workers, threads, plan.gpus_for(config), started)


def render_config(
    config: RenderConfig,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> RenderReport:
    """Render one video by settings that are already made, in parts where that pays.

    Finished parts are kept where it is stopped: the same call goes on from there.

    Args:
        config: What to do.
        on_progress: Called about ten times a second, from the calling thread.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread,
            never from two at a time.
        cancel: Set it, from any thread, to stop the render.

    Returns:
        What was done.

    Raises:
        BgsoftError: As :func:`bgsoft.rendering.session.render_config`; or WorkerDiedError, where
            a process that renders a part was killed twice.
    """
    from bgsoft.rendering.session import render_config as render_whole

    try:
        plan = plan_render(config)
    except BgsoftError:
        if config.chunks is not None:
            raise
        plan = Whole()  # which fails in the same way, in its own order
    if isinstance(plan, Whole):
        more = {"events": plan.notices} if plan.notices else {}
        report = render_whole(
            config, on_progress=on_progress, on_event=on_event, cancel=cancel, **more
        )
        WorkFolder(config.output).remove_unused()
        return report
    folder = WorkFolder(config.output)
    with folder.used():
        try:
            return _Run(plan, on_progress, on_event, cancel or threading.Event()).run()
        except BaseException as exc:
            kept = after_failure(config, exc)
            if kept is not None:
                exc.add_note(kept)
            raise


def after_failure(config: RenderConfig, exc: BaseException) -> str | None:
    """Keep finished parts where another run of the same command may get further, else remove them.

    Returns:
        What to tell the user, where some are kept.
    """
    folder = WorkFolder(config.output)
    done = folder.count()
    if not done or (isinstance(exc, BgsoftError) and not isinstance(exc, _PASSING)):
        folder.remove()
        return None
    return f"finished parts are kept in {folder.path}: the same command goes on from there"


@dataclass(frozen=True, slots=True)
class _Planned:
    """Leads to what is planned already."""

    followup: Followup

    def run(self, context: TaskContext) -> object:
        return self.followup


class _Run:
    """Drives the parts of one render."""

    def __init__(
        self,
        plan: Plan,
        on_progress: Callable[[Progress], None] | None,
        on_event: Callable[[Event], None] | None,
        cancel: threading.Event,
    ) -> None:
        self._plan = plan
        self._on_event = on_event
        self._cancel = cancel
        self._told: set[Event] = set()
        lengths = [part.length for part in plan.parts]
        passes = 2 if finds_first(plan.config) else 1
        self._progress = PartsProgress(lengths, passes, on_progress)

    def run(self) -> RenderReport:
        plan = self._plan
        cores = plan.config.backends.threads or usable_cores()
        backends, workers, gpus = plan.config.backends, plan.workers, plan.gpus
        with ExitStack() as stack:
            environment = stack.enter_context(
                worker_environment(backends, workers, len(gpus), self._notice)
            )
            pool = Pool(workers, threads=plan.threads, gpus=gpus, environment=environment)
            driver = stack.enter_context(
                Driver(pool, stall_seconds=stall_limit(backends.stall_seconds))
            )
            driver.submit(_Planned(plan.followup(threads=cores)))
            while True:
                if self._cancel.is_set():
                    raise RenderCancelledError("interrupted")
                for update in driver.poll(_POLL_SECONDS):
                    if isinstance(update, Told):
                        self._hear(update)
                    elif isinstance(update, Retrying):
                        text = f"a part is rendered again: {update.error}"
                        self._tell(Event(kind="retry", message=text))
                    elif isinstance(update, Finished):
                        return self._end(update)

    def _hear(self, update: Told) -> None:
        if isinstance(update.message, Event):
            self._tell(update.message)
        elif isinstance(update.message, Progress):
            self._progress.update(update.part, update.message)

    def _notice(self, text: str) -> None:
        self._tell(Event(kind="notice", message=text))

    def _tell(self, event: Event) -> None:
        """Report an event, unless another part has."""
        if event not in self._told and self._on_event is not None:
            self._told.add(event)
            self._on_event(event)

    def _end(self, update: Finished) -> RenderReport:
        if update.error is not None:
            cause = TaskError(update.traceback) if update.traceback else None
            raise update.error from cause
        assert isinstance(update.result, RenderReport)
        return update.result
