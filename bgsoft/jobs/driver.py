"""Runs tasks on an executor: with their followups, retries and time limits."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from bgsoft.closing import Closing
from bgsoft.errors import StallError, WorkerDiedError
from bgsoft.jobs.task import (
    Executor,
    Finished,
    Followup,
    LastTask,
    Retrying,
    Started,
    Task,
    Told,
    Update,
)
from bgsoft.report import Progress

STALL_SECONDS = 900.0
"""A render watches its own stages. This limit is for what hangs outside of them; it is long enough
to build a TensorRT engine."""
_AWAKE_SECONDS = 5.0
"""Most time between two polls, beside the waiting itself, that counts as awake."""
_WORTH_ANOTHER_TRY = (WorkerDiedError, StallError, MemoryError)


@dataclass(eq=False, slots=True)
class _Job:
    """A task, or one that another has led to."""

    task: Task
    root: int
    tries_left: int
    group: _Group | None = None
    part: int | None = None
    news_at: float = 0.0
    frames: int = -1


@dataclass(eq=False, slots=True)
class _Group:
    """The tasks of a followup."""

    owner: _Job
    last: LastTask
    results: list[object]
    missing: int


@dataclass(eq=False, slots=True)
class _Root:
    """What the caller submitted."""

    started_at: float | None = None
    running: set[int] = field(default_factory=set)
    """Ids that the executor gave."""


def stall_limit(render_seconds: float | None) -> float | None:
    """How long a task may go without news, by a render's own limit; None: any time.

    The render is to notice first: it knows where it stands still.
    """
    return None if render_seconds is None else max(STALL_SECONDS, 2 * render_seconds)


class Driver(Closing):
    """Runs tasks, and all that they lead to, on an executor. Used from one thread.

    Args:
        executor: Where they run; closed with the driver.
        retries: How often a task is tried again after its worker died, stalled or ran out of
            memory. Other errors would come again.
        timeout_seconds: How long a task may take from its start, with all that it leads to and its
            retries; None: as long as it likes.
        stall_seconds: How long a task may go without reporting anything new; None: any time.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        retries: int = 1,
        timeout_seconds: float | None = None,
        stall_seconds: float | None = STALL_SECONDS,
    ) -> None:
        self._executor = executor
        self._retries = retries
        self._timeout = timeout_seconds
        self._stall = stall_seconds
        self._queue: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._roots: dict[int, _Root] = {}
        self._ids = count()
        self._updates: list[Update] = []
        self._polled = time.monotonic()
        self._now = 0.0
        """Seconds that this process has been awake. Time for which it and its workers were
        suspended does not count."""

    @property
    def idle(self) -> int:
        """How many tasks it would start at once now."""
        return max(0, self._executor.idle - len(self._queue))

    def submit(self, task: Task) -> int:
        """Take a task; its id. Finished comes once for it, whatever it led to."""
        root = next(self._ids)
        self._roots[root] = _Root()
        self._queue.append(_Job(task, root, self._retries))
        self._feed()
        return root

    def poll(self, timeout: float) -> list[Update]:
        """What has happened since the last call; waits up to ``timeout`` seconds for something."""
        for update in self._executor.poll(0.0 if self._updates else timeout):
            job = self._running.get(update.task_id)
            if job is None:
                continue  # it was given up
            if isinstance(update, Started):
                self._start(job, update)
            elif isinstance(update, Told):
                self._listen(job, update.message)
            elif isinstance(update, Finished):
                self._finish(update.task_id, job, update)
        now = time.monotonic()
        self._now += min(now - self._polled, timeout + _AWAKE_SECONDS)
        self._polled = now
        self._watch()
        self._feed()
        updates, self._updates = self._updates, []
        return updates

    def close(self) -> None:
        """Cancel what runs; nothing more is reported."""
        self._executor.close()

    def _feed(self) -> None:
        while self._queue and self._executor.idle > 0:
            job = self._queue.popleft()
            task_id = self._executor.submit(job.task)
            job.news_at = self._now
            job.frames = -1
            self._running[task_id] = job
            self._roots[job.root].running.add(task_id)

    def _start(self, job: _Job, update: Started) -> None:
        job.news_at = self._now
        root = self._roots[job.root]
        if root.started_at is None:
            root.started_at = job.news_at
            self._updates.append(Started(job.root, update.worker))

    def _listen(self, job: _Job, message: object) -> None:
        if not isinstance(message, Progress) or message.frames > job.frames:
            job.news_at = self._now
        if isinstance(message, Progress):
            job.frames = message.frames
        self._updates.append(Told(job.root, message, job.part))

    def _finish(self, task_id: int, job: _Job, update: Finished) -> None:
        del self._running[task_id]
        self._roots[job.root].running.discard(task_id)
        if update.error is not None:
            if job.tries_left > 0 and isinstance(update.error, _WORTH_ANOTHER_TRY):
                job.tries_left -= 1
                self._updates.append(Retrying(job.root, update.error))
                self._queue.appendleft(job)
            else:
                self._end(job.root, error=update.error, traceback=update.traceback)
        elif isinstance(update.result, Followup):
            self._follow(job, update.result)
        else:
            self._succeed(job, update.result)

    def _follow(self, job: _Job, followup: Followup) -> None:
        tasks = followup.tasks
        group = _Group(job, followup.last, [None] * len(tasks), len(tasks))
        # Before tasks that wait: a file that has begun is finished first.
        self._queue.extendleft(
            _Job(task, job.root, self._retries, group, part)
            for part, task in reversed(list(enumerate(tasks)))
        )
        if not tasks:
            self._conclude(group)

    def _succeed(self, job: _Job, result: object) -> None:
        group = job.group
        if group is None or job.part is None:
            self._end(job.root, result=result)
            return
        group.results[job.part] = result
        group.missing -= 1
        if group.missing == 0:
            self._conclude(group)

    def _conclude(self, group: _Group) -> None:
        """Run a followup's last task in the place of the one that led to it."""
        owner = group.owner
        owner.task = group.last.with_results(group.results)
        owner.tries_left = self._retries
        self._queue.appendleft(owner)

    def _end(
        self,
        root: int,
        *,
        result: object = None,
        error: BaseException | None = None,
        traceback: str | None = None,
    ) -> None:
        """Report a root's end; what else belongs to it is given up."""
        for task_id in self._roots.pop(root).running:
            del self._running[task_id]
            self._executor.kill(task_id, "another part of it failed")
        self._queue = deque(job for job in self._queue if job.root != root)
        self._updates.append(Finished(root, result, error, traceback))

    def _watch(self) -> None:
        now = self._now
        if self._timeout is not None:
            for number, root in list(self._roots.items()):
                if root.started_at is not None and now - root.started_at > self._timeout:
                    text = f"not done after {self._timeout:g} s"
                    self._end(number, error=WorkerDiedError(text))
        if self._stall is None:
            return
        for task_id, job in self._running.items():
            if now - job.news_at > self._stall:
                job.news_at = now
                after = f" after {job.frames} frames" if job.frames > 0 else ""
                self._executor.kill(task_id, f"nothing new for {self._stall:g} s{after}")
