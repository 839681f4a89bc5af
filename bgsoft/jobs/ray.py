"""Workers on the nodes of a Ray cluster, which Ray starts when CPUs and GPUs become free.

A task whose worker is lost finishes with WorkerDiedError, as in a pool. Only the driver retries, so
that there is one count of tries.
"""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

from bgsoft.closing import Closing
from bgsoft.errors import BackendUnavailableError, WorkerDiedError, errors_as
from bgsoft.jobs.ray_cluster import Nodes, choose_share, connected, last_line
from bgsoft.jobs.task import Finished, Task, Update
from bgsoft.jobs.worker import GRACE_SECONDS, Exiting
from bgsoft.records import dataclass

_FAILING_SECONDS, _PAUSE_SECONDS = 60.0, 0.5
"""Time for which workers may fail to start, and the pause after each failure.

Ray takes a while to detect that a node is gone."""


@dataclass(eq=False, slots=True)
class _Actor:
    """A worker as the executor sees it; without a name it has not started yet."""

    handle: Any
    nodes: frozenset[str]
    """Ids of the nodes that Ray may start it on."""
    call: Any
    """Reference of its next news."""
    task_id: int | None = None
    name: str = ""
    reason: str = ""
    """Why it is being ended."""
    deadline: float = math.inf
    """Time by which it must have ended, on the clock of :func:`time.monotonic`."""


class RayExecutor(Closing):
    """An executor of workers on a Ray cluster.

    Args:
        address: As for :func:`bgsoft.jobs.ray_cluster.connected`.
        folder: Folder that tasks write to; nodes that do not see it, or ``inputs``, are not used.
        inputs: Files and folders that tasks read.
        max_tasks: Largest number of tasks at a time; None: as many as get two cores each.
        threads: Cores that a task reserves and plans for; None: as many as that leaves.
        gpu_share: Share of a GPU that a task reserves, up to 1; None: a half, if there are GPUs.
        notice: Receives a line about each node that cannot be used.

    Raises:
        BackendUnavailableError: No cluster answers, or no node has room for a task.
        ConfigError, OutputError: Address or folder cannot be used.
    """

    def __init__(
        self,
        address: str,
        *,
        folder: Path,
        inputs: Sequence[Path] = (),
        max_tasks: int | None = None,
        threads: int | None = None,
        gpu_share: float | None = None,
        notice: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._actors: list[_Actor] = []
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._failing_since: float | None = None
        """Time of the first failed start since the last successful one."""
        self._failed_at = -math.inf
        self._ids = count()
        self._updates: list[Update] = []
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(address))
            share = choose_share(self._ray, max_tasks, threads, gpu_share)
            self._nodes = Nodes(self._ray, folder, inputs, share, max_tasks, notice)
            stack.enter_context(self._nodes).check()
            self._stack = stack.pop_all()

    @property
    def idle(self) -> int:
        return max(0, self._nodes.slots - self._wanted)

    @property
    def _wanted(self) -> int:
        return len(self._waiting) + sum(actor.task_id is not None for actor in self._actors)

    def submit(self, task: Task) -> int:
        task_id = next(self._ids)
        self._waiting.append((task_id, pickle.dumps(task)))
        return task_id

    def poll(self, timeout: float) -> list[Update]:
        """Return updates; raises BackendUnavailableError if no usable node is left."""
        lost, text = (ConnectionError, self._ray.exceptions.RayError), "the Ray cluster is lost"
        with errors_as(lost, BackendUnavailableError, text, reason=last_line):
            self._nodes.check()
            self._deal()
            self._listen(0.0 if self._updates else timeout)
        updates, self._updates = self._updates, []
        return updates

    def kill(self, task_id: int, reason: str) -> None:
        """End a task: it has a moment to clean up before its process is killed."""
        for waiting in [each for each in self._waiting if each[0] == task_id]:
            self._waiting.remove(waiting)
            self._updates.append(Finished(task_id, error=WorkerDiedError(reason)))
        for actor in self._actors:
            if actor.task_id == task_id and not actor.reason:
                actor.reason = reason
                actor.deadline = time.monotonic() + GRACE_SECONDS
                actor.call = actor.handle.cancel.remote()

    def close(self) -> None:
        actors, self._actors = self._actors, []
        with suppress(ConnectionError, self._ray.exceptions.RayError):  # the cluster is lost
            exiting = [each.handle.cancel.remote() for each in actors if each.task_id is not None]
            if exiting:
                self._ray.wait(exiting, num_returns=len(exiting), timeout=GRACE_SECONDS)
            for actor in actors:
                self._ray.kill(actor.handle)
        self._stack.close()

    def _deal(self) -> None:
        """Assign tasks to workers, and have Ray start missing workers."""
        usable = self._nodes.usable
        for actor in [each for each in self._actors if not (each.name or each.nodes & usable)]:
            self._drop(actor, "")  # it waits for nodes that have gone
        for actor in self._actors:
            if self._waiting and actor.name and actor.task_id is None:
                actor.task_id, pickled = self._waiting.popleft()
                actor.handle.begin.remote(actor.task_id, pickled)
        if time.monotonic() - self._failed_at < _PAUSE_SECONDS:
            return
        while len(self._actors) < min(self._nodes.slots, self._wanted):
            handle = self._nodes.start_worker()
            self._actors.append(_Actor(handle, usable, handle.news.remote()))

    def _listen(self, timeout: float) -> None:
        """Receive the workers' messages, and detect lost workers."""
        now = time.monotonic()
        until = min([now + timeout, *(actor.deadline for actor in self._actors)])
        calls = {actor.call: actor for actor in self._actors}
        if not calls:
            time.sleep(min(timeout, 0.1))
            return
        ready, _ = self._ray.wait(list(calls), timeout=max(0.0, until - now))
        for call in ready:
            self._hear(calls[call])
        for actor in [each for each in self._actors if each.deadline <= time.monotonic()]:
            self._drop(actor, actor.reason)

    def _hear(self, actor: _Actor) -> None:
        """Process a worker's news; continue listening, or drop the worker."""
        try:
            said = self._ray.get(actor.call)
        except self._ray.exceptions.RayError as exc:
            if not actor.name:
                self._fail_start(exc)
            lost = f"its worker on {actor.name} was lost: a crash, a kill, or its node is gone"
            self._drop(actor, actor.reason or lost)
            return
        for news in () if actor.reason else said:
            if isinstance(news, str):
                actor.name, self._failing_since = news, None
            elif isinstance(news, Exiting):
                actor.deadline = time.monotonic() + GRACE_SECONDS  # its task is about to finish
            else:
                self._updates.append(news)
                actor.task_id = None if isinstance(news, Finished) else actor.task_id
        if actor.reason or (actor.deadline < math.inf and actor.task_id is None):
            self._drop(actor, actor.reason)
        else:
            actor.call = actor.handle.news.remote()

    def _fail_start(self, exc: Exception) -> None:
        self._failed_at = now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > _FAILING_SECONDS:
            text = f"cannot start a worker on the Ray cluster: {last_line(exc)}"
            raise BackendUnavailableError(text) from exc

    def _drop(self, actor: _Actor, reason: str) -> None:
        """End a worker; its task, if any, finishes with this reason."""
        self._actors.remove(actor)
        self._ray.kill(actor.handle)
        if actor.task_id is not None:
            self._updates.append(Finished(actor.task_id, error=WorkerDiedError(reason)))
