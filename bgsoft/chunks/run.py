"""One render on this machine, in chunks side by side where that pays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bgsoft.chunks.folder import WorkFolder, leftovers
from bgsoft.chunks.prepare import Plan, Whole, plan_render
from bgsoft.errors import BgsoftError, RenderCancelledError
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.config import RenderConfig

_POLL_SECONDS = 0.1


def render_config(
    config: RenderConfig,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> RenderReport:
    """Render one video by settings that are already made, in chunks where that pays.

    Finished chunks are kept where it is stopped: the same call goes on from there.

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
            a process that renders a chunk was killed twice.
    """
    from bgsoft.rendering.session import render_config as render_whole

    folder = WorkFolder(config.output)
    try:
        plan = plan_render(config, folder, cancel=cancel)
    except BgsoftError:
        if config.chunks is not None:
            raise
        plan = Whole()  # which fails in the same way, in its own order
    notices = [Event(kind="notice", message=text) for text in leftovers([folder])]
    if isinstance(plan, Whole):
        report = render_whole(
            config,
            on_progress=on_progress,
            on_event=on_event,
            cancel=cancel,
            info=plan.info,
            events=[*plan.notices, *notices],
        )
        folder.remove_unused()
        return report
    with folder.used():
        try:
            return _render_chunks(plan, notices, on_progress, on_event, cancel or threading.Event())
        except BaseException as exc:
            kept = folder.settle(exc)
            if kept is not None:
                exc.add_note(kept)
            raise


def _render_chunks(
    plan: Plan,
    notices: list[Event],
    on_progress: Callable[[Progress], None] | None,
    on_event: Callable[[Event], None] | None,
    cancel: threading.Event,
) -> RenderReport:
    """Render a video in chunks that are planned."""
    from bgsoft.chunks.renders import Renders
    from bgsoft.jobs.driver import Driver, stall_limit
    from bgsoft.jobs.pool import Pool, worker_environment
    from bgsoft.jobs.task import Finished, Message, Retrying
    from bgsoft.jobs.worker import TaskError

    def hear(message: object) -> None:
        if isinstance(message, Event) and on_event is not None:
            on_event(message)
        elif isinstance(message, Progress) and on_progress is not None:
            on_progress(message)

    def tell(kind: str, text: str) -> None:
        hear(Event(kind=kind, message=text))

    for notice in notices:
        hear(notice)
    backends, workers, gpus = plan.config.backends, plan.workers, plan.gpus
    with ExitStack() as stack:
        environment = stack.enter_context(
            worker_environment(backends, workers, len(gpus), partial(tell, "notice"))
        )
        pool = Pool(workers, threads=plan.threads, gpus=gpus, environment=environment)
        driver = Driver(pool, stall_seconds=stall_limit(backends.stall_seconds))
        renders = stack.enter_context(Renders(driver))
        renders.submit(plan.config, plan)
        while True:
            stopped = cancel.is_set()
            if stopped:
                renders.close()  # which waits for what is being given its name
            for update in renders.poll(_POLL_SECONDS):
                if isinstance(update, Message):
                    hear(update.content)
                elif isinstance(update, Retrying):
                    tell("retry", f"a chunk is rendered again: {update.error}")
                elif isinstance(update, Finished):
                    if update.error is not None:
                        cause = TaskError(update.traceback) if update.traceback else None
                        raise update.error from cause
                    assert isinstance(update.result, RenderReport)
                    return update.result
            if stopped:
                raise RenderCancelledError("interrupted")
