"""One render on this machine, in parallel chunks if that saves time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from bgsoft.chunks.folder import WorkFolder, leftovers
from bgsoft.chunks.prepare import ChunkedRender, WholeRender, prepare
from bgsoft.errors import BgsoftError, RenderCancelledError
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.request import Request
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.presets import ignored_text
from bgsoft.threads import Threads

if TYPE_CHECKING:
    from bgsoft.jobs.pool import Pool

_POLL_SECONDS = 0.1


def render_config(
    config: RenderConfig,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> RenderReport:
    """Render one video, in chunks if that saves time.

    Finished chunks of a stopped render are kept; the same call continues from there.

    Args:
        config: Settings of the render.
        on_progress: Called about ten times a second, from the calling thread.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread, but
            never from two at a time.
        cancel: Set it, from any thread, to stop the render.

    Returns:
        The report of the render.

    Raises:
        BgsoftError: The errors of :func:`bgsoft.rendering.session.render_whole`; or
            WorkerDiedError if a process that renders a chunk was killed twice.
    """
    from bgsoft.rendering.session import render_whole

    request, listener = Request(config), Listener(on_progress, on_event, cancel)
    request.check()
    folder = WorkFolder(config.output)
    notices: list[str] = []
    likely: SimpleQueue[int] = SimpleQueue()
    with Threads(1, "bgsoft-plan") as threads, ExitStack() as stack:
        planning = threads.submit(prepare, request, folder, None, listener.cancel, likely.put)
        planning.add_done_callback(lambda _planning: likely.put(0))
        workers = likely.get()
        pool = stack.enter_context(_workers(config, workers, notices.append)) if workers else None
        try:
            plan = planning.result()
        except BgsoftError:
            if config.chunks is not None:
                raise
            plan = WholeRender()  # a whole render reports the error, too
        left = [*filter(None, [ignored_text(config.preset_file)]), *leftovers([folder])]
        if isinstance(plan, ChunkedRender):
            assert pool is not None
            notices += left
            stack.enter_context(folder.used())
            try:
                return _render_chunks(plan, pool, notices, listener)
            except BaseException as exc:
                kept = folder.keep_or_remove(exc)
                if kept is not None:
                    exc.add_note(kept)
                raise
    events = [*plan.notices, *(Event(kind="notice", message=text) for text in left)]
    report = render_whole(request, listener, info=plan.info, events=events)
    folder.remove_unused()
    return report


@contextmanager
def _workers(config: RenderConfig, count: int, on_notice: Callable[[str], None]) -> Iterator[Pool]:
    """Start ``count`` processes, which get ready while chunks are planned."""
    from bgsoft.chunks.plan import gpus_for
    from bgsoft.jobs.pool import Pool, worker_environment
    from bgsoft.rendering.ahead import make_ready

    backends, gpus = config.backends, gpus_for(config)
    ahead = partial(make_ready, backends)
    environment = worker_environment(backends, count, len(gpus), on_notice)
    with Pool(count, gpus=gpus, environment=environment, ahead=ahead) as pool:
        pool.start()
        yield pool


def _render_chunks(
    plan: ChunkedRender, pool: Pool, notices: Sequence[str], listener: Listener
) -> RenderReport:
    """Render a video in planned chunks."""
    from bgsoft.chunks.renders import Renders
    from bgsoft.jobs.driver import Driver, stall_limit
    from bgsoft.jobs.task import Finished, Message, Retrying
    from bgsoft.jobs.worker import TaskError

    def hear(message: object) -> None:
        if isinstance(message, Event):
            listener.event(message)
        elif isinstance(message, Progress):
            listener.progress(message)

    def report(kind: str, text: str) -> None:
        hear(Event(kind=kind, message=text))

    for notice in notices:
        report("notice", notice)
    pool.threads = plan.threads
    config = plan.request.config
    driver = Driver(pool, stall_seconds=stall_limit(config.backends.stall_seconds))
    with Renders(driver) as renders:
        renders.submit(config, plan)
        while True:
            stopped = listener.cancel.is_set()
            if stopped:
                renders.close()  # waits for a file that is being renamed
            for update in renders.poll(_POLL_SECONDS):
                if isinstance(update, Message):
                    hear(update.content)
                elif isinstance(update, Retrying):
                    report("retry", f"a chunk is rendered again: {update.error}")
                elif isinstance(update, Finished):
                    if update.error is not None:
                        cause = TaskError(update.traceback) if update.traceback else None
                        raise update.error from cause
                    assert isinstance(update.result, RenderReport)
                    return update.result
            if stopped:
                raise RenderCancelledError("interrupted")
