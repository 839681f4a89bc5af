"""Renders of files by a driver, each whole or in chunks that are planned and joined here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from itertools import count
from traceback import format_exception
from typing import Any

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.prepare import ChunkedRender, WholeRender, prepare
from bgsoft.chunks.tasks import RenderWhole
from bgsoft.closing import Closing
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.task import Finished, Message, Retrying, Started, Update
from bgsoft.pipeline.metrics import RecentFrames
from bgsoft.records import dataclass
from bgsoft.rendering.chunk import JoinError
from bgsoft.rendering.request import Request
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.threads import Threads, usable_cores

_THREADS = 4
"""Files that are planned or joined at a time, which mostly waits for disks."""
_WINDOW_SECONDS = 10.0
"""Period over which frame rates are averaged, as chunks begin and end."""


class ChunksProgress:
    """Progress of a video, combined from that of its chunks and passed to ``callback``."""

    def __init__(self, lengths: Sequence[int], callback: Callable[[Progress], None]) -> None:
        self._total = sum(lengths)
        self._callback = callback
        self._latest: dict[int, Progress] = {}
        self._known = 0
        """Frames of chunks that were finished before."""
        self._started = time.perf_counter()
        self._recent = RecentFrames(self._started, _WINDOW_SECONDS)

    def update(self, chunk: int, progress: Progress) -> None:
        """Take the progress of a chunk, and report that of the video."""
        if chunk not in self._latest and progress.frames == progress.total:
            self._known += progress.frames
        self._latest[chunk] = progress
        now = time.perf_counter()
        frames, total = sum(p.frames for p in self._latest.values()), self._total
        since, before, _ = self._recent.since(now, frames - self._known)
        fps = (frames - self._known - before) / (now - since) if now > since else 0.0
        running = [p for p in self._latest.values() if p.total is None or p.frames < p.total]
        load = {
            stage: sum(p.load.get(stage, 0.0) for p in running) / len(running)
            for stage in (running[0].load if running else ())
        }
        self._callback(
            Progress(
                frames=frames,
                total=total,
                elapsed_seconds=now - self._started,
                fps=fps,
                eta_seconds=(total - frames) / fps if fps > 0 else None,
                load=load,
            )
        )


@dataclass(eq=False, slots=True)
class _Render:
    """A file that is being rendered."""

    id: int
    config: RenderConfig
    threads: int | None
    """Cores to plan for if the file is rendered whole; None: the worker's."""
    plan: ChunkedRender | None = None
    """None: the file is rendered whole, or not planned yet."""
    progress: ChunksProgress | None = None
    has_started: bool = False
    told: set[Event] = field(default_factory=set)


class Renders(Closing):
    """Renders of files: plans them, runs them on a driver, and joins chunks.

    Use it from one thread. Planning and joining wait for disks, and run in other threads.

    Args:
        driver: Runs the tasks; closed with this object.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._threads = Threads(_THREADS, "bgsoft-files")
        self._cancel = threading.Event()
        self._pending: dict[Future[Any], _Render] = {}
        """Files that are being planned or joined."""
        self._running: dict[int, _Render] = {}
        """Renders by their ids in the driver."""
        self._ids = count()
        self._alone = False
        """True: no other file will come."""
        self._updates: deque[Update] = deque()

    @property
    def idle(self) -> int:
        """Number of files that would start immediately."""
        planned = sum(render.plan is None for render in self._pending.values())
        return max(0, self._driver.idle - planned)

    def submit(self, config: RenderConfig, plan: ChunkedRender | None = None) -> int:
        """Begin a file, and return its id; one Finished with its report follows.

        The file is rendered whole unless the settings name a number of chunks, or chunks of it
        exist. A file with a ``plan`` must be the only one.
        """
        self._alone = plan is not None
        render = _Render(next(self._ids), config, usable_cores() if plan is not None else None)
        if plan is not None:
            self._divide(render, plan)
            return render.id
        folder = WorkFolder(config.output)
        if config.chunks == 1 or (config.chunks is None and not folder.path.exists()):
            self._run_whole(render, WholeRender())
        else:
            # Several files use all cores, so one is divided only on request.
            workers = 1 if config.chunks is None else None
            planning = self._threads.submit(self._prepare, config, folder, workers)
            self._pending[planning] = render
        return render.id

    def poll(self, timeout: float) -> list[Update]:
        """Return updates since the last call; wait up to ``timeout`` seconds for one."""
        for work in [each for each in self._pending if each.done()]:
            self._take_work(self._pending.pop(work), work)
        for update in self._driver.poll(0.0 if self._updates else timeout):
            self._hear(self._running[update.task_id], update)
        return [self._updates.popleft() for _ in range(len(self._updates))]

    def close(self) -> None:
        """Cancel running renders; nothing more is reported."""
        self._cancel.set()
        self._driver.close()
        self._threads.close()

    def _prepare(self, config: RenderConfig, folder: WorkFolder, workers: int | None) -> object:
        request = Request(config)
        request.check()
        return prepare(request, folder, workers, self._cancel)

    def _divide(self, render: _Render, plan: ChunkedRender) -> None:
        render.plan = plan
        tell = partial(self._take_message, render)
        render.progress = ChunksProgress([chunk.length for chunk in plan.chunks], tell)
        self._running[self._driver.submit(plan.tasks())] = render

    def _run_whole(self, render: _Render, whole: WholeRender) -> None:
        render.plan = render.progress = None
        task = RenderWhole(render.config, render.threads, whole.info, whole.notices)
        self._running[self._driver.submit([task])] = render

    def _take_message(self, render: _Render, message: object) -> None:
        self._updates.append(Message(render.id, message))

    def _hear(self, render: _Render, update: Update) -> None:
        if isinstance(update, Started):
            if not render.has_started:
                self._updates.append(Started(render.id, update.worker))
            render.has_started = True
        elif isinstance(update, Retrying):
            self._updates.append(Retrying(render.id, update.error))
        elif isinstance(update, Message):
            self._pass_on(render, update.index, update.content)
        else:
            del self._running[update.task_id]
            self._take_end(render, update)

    def _pass_on(self, render: _Render, chunk: int, message: object) -> None:
        """Report an event unless another chunk did, and the combined progress of chunks."""
        if isinstance(message, Event):
            if message in render.told:
                return
            render.told.add(message)
        if isinstance(message, Progress) and render.progress is not None:
            render.progress.update(chunk, message)
        else:
            self._take_message(render, message)

    def _take_end(self, render: _Render, end: Finished) -> None:
        if end.error is not None:
            self._updates.append(Finished(render.id, None, end.error, end.traceback))
            return
        assert isinstance(end.result, list)
        if render.plan is None:
            self._updates.append(Finished(render.id, end.result[0]))
            return
        reused = [bool(each) for each in end.result]
        self._pending[self._threads.submit(self._join, render, render.plan, reused)] = render
        if self._alone:
            self._driver.close()  # workers on a GPU take a while to end

    def _take_work(self, render: _Render, work: Future[Any]) -> None:
        """Continue with a file that has been planned or joined."""
        error = work.exception()
        if isinstance(error, JoinError):
            assert render.plan is not None
            render.plan.folder.remove()
            notice = Event(kind="notice", message=f"rendered whole: {error}")
            self._run_whole(render, WholeRender(render.plan.info, (notice,)))
        elif error is not None:
            trace = "".join(format_exception(error))
            self._updates.append(Finished(render.id, error=error, traceback=trace))
        elif isinstance(made := work.result(), ChunkedRender):
            self._divide(render, made)
        elif isinstance(made, WholeRender):
            self._run_whole(render, made)
        else:
            self._updates.append(Finished(render.id, made))

    def _join(self, render: _Render, plan: ChunkedRender, reused: list[bool]) -> RenderReport:
        from bgsoft.chunks.join import join

        with plan.folder.used():
            on_event = partial(self._pass_on, render, 0)
            return join(plan, reused, on_event=on_event, cancel=self._cancel)
