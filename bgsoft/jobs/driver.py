"""Runs tasks on an executor, with retries and time limits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import count

from bgsoft.closing import Closing
from bgsoft.errors import StallError, WorkerDiedError
from bgsoft.jobs.task import Executor, Finished, Message, Retrying, Started, Task, Update
from bgsoft.records import dataclass
from bgsoft.report import Progress

STALL_SECONDS = 900.0
"""A render watches its own stages. This is for hangs outside of them, and long enough to build a
TensorRT engine."""
_AWAKE_SECONDS = 5.0
"""Longest time between two polls, besides their own waits, that counts as awake."""
_WORTH_ANOTHER_TRY = (WorkerDiedError, StallError, MemoryError)


@dataclass(eq=False, slots=True)
class _TaskGroup:
    """Tasks that were submitted together."""

    id: int
    results: list[object]
    missing: int
    started_at: float | None = None


@dataclass(eq=False, slots=True)
class _Run:
    """A task that is running or waits for another try."""

    task: Task
    job: _TaskGroup
    index: int
    tries_left: int
    news_at: float | None = None
    """None: it has not begun; on a cluster other tasks may be running."""
    frames: int = -1


def stall_limit(render_seconds: float | None) -> float | None:
    """Return how long a task may go without news; a render's own limit comes first."""
    return None if render_seconds is None else max(STALL_SECONDS, 2 * render_seconds)


class Driver(Closing):
    """Runs tasks on an executor, with retries and time limits. Used from one thread.

    Args:
        executor: Closed with the driver.
        retries: Number of retries after a task's worker died, stalled or ran out of memory. Other
            errors would occur again.
        timeout_seconds: Limit of a group of tasks, from the start of the first; None: none.
        stall_seconds: How long a task may go without news; None: any time.
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
        self._queue: deque[_Run] = deque()
        self._running: dict[int, _Run] = {}
        """Runs by the executor's ids."""
        self._ids = count()
        self._updates: list[Update] = []
        self._polled = time.monotonic()
        self._now = 0.0
        """Seconds that this process has been awake: workers are suspended with it."""

    @property
    def idle(self) -> int:
        """Number of tasks that would start at once now."""
        return max(0, self._executor.idle - len(self._queue))

    def submit(self, tasks: Sequence[Task]) -> int:
        """Accept tasks to run in parallel; return their common id.

        Finished comes once, with the list of their results, or with the error of the first that
        failed; the others are cancelled then.
        """
        job = _TaskGroup(next(self._ids), [None] * len(tasks), len(tasks))
        self._queue.extend(
            _Run(task, job, index, self._retries) for index, task in enumerate(tasks)
        )
        self._feed()
        return job.id

    def poll(self, timeout: float) -> list[Update]:
        """Return updates since the last call; waits up to ``timeout`` seconds for one."""
        for update in self._executor.poll(0.0 if self._updates else timeout):
            run = self._running.get(update.task_id)
            if run is None:
                continue  # it was cancelled
            if isinstance(update, Started):
                self._start(run, update)
            elif isinstance(update, Message):
                self._listen(run, update.content)
            elif isinstance(update, Finished):
                del self._running[update.task_id]
                self._finish(run, update)
        now = time.monotonic()
        self._now += min(now - self._polled, timeout + _AWAKE_SECONDS)
        self._polled = now
        self._watch()
        self._feed()
        updates, self._updates = self._updates, []
        return updates

    def close(self) -> None:
        """Cancel running tasks, and start no more; nothing more is reported."""
        self._queue.clear()
        self._executor.close()

    def _feed(self) -> None:
        while self._queue and self._executor.idle > 0:
            run = self._queue.popleft()
            run.news_at, run.frames = None, -1
            self._running[self._executor.submit(run.task)] = run

    def _start(self, run: _Run, update: Started) -> None:
        run.news_at = self._now
        if run.job.started_at is None:
            run.job.started_at = self._now
            self._updates.append(Started(run.job.id, update.worker))

    def _listen(self, run: _Run, message: object) -> None:
        if not isinstance(message, Progress) or message.frames > run.frames:
            run.news_at = self._now
        if isinstance(message, Progress):
            run.frames = message.frames
        self._updates.append(Message(run.job.id, message, run.index))

    def _finish(self, run: _Run, update: Finished) -> None:
        job, error = run.job, update.error
        if error is None:
            job.results[run.index] = update.result
            job.missing -= 1
            if job.missing == 0:
                self._updates.append(Finished(job.id, job.results))
        elif run.tries_left > 0 and isinstance(error, _WORTH_ANOTHER_TRY):
            run.tries_left -= 1
            self._updates.append(Retrying(job.id, error))
            self._queue.appendleft(run)
        else:
            self._give_up(job, error, update.traceback)

    def _give_up(self, job: _TaskGroup, error: BaseException, traceback: str | None = None) -> None:
        for task_id in [id for id, run in self._running.items() if run.job is job]:
            del self._running[task_id]
            self._executor.kill(task_id, "another task of the same job failed")
        self._queue = deque(run for run in self._queue if run.job is not job)
        self._updates.append(Finished(job.id, error=error, traceback=traceback))

    def _watch(self) -> None:
        now, limit = self._now, self._timeout
        if limit is not None:
            for job in {run.job for run in (*self._running.values(), *self._queue)}:
                if job.started_at is not None and now - job.started_at > limit:
                    self._give_up(job, WorkerDiedError(f"it was not finished after {limit:g} s"))
        if self._stall is None:
            return
        for task_id, run in self._running.items():
            if run.news_at is not None and now - run.news_at > self._stall:
                run.news_at = now
                after = f" after {run.frames} frames" if run.frames > 0 else ""
                self._executor.kill(task_id, f"nothing new for {self._stall:g} s{after}")
