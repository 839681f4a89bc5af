"""Tasks for worker processes, and the messages that come back. Imports nothing heavy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from bgsoft.records import dataclass

CORES_A_TASK = 2
"""Cores for each task, unless the number of tasks at a time is given."""
TASKS_A_GPU = 2
"""Tasks at a time on each GPU: a single one would leave it idle at its start and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Values that a worker provides to its task: messages, cancellation, cores and GPU."""

    send: Callable[[object], None]
    """Sends a picklable message to the parent: Progress, Event or one of the task's own. It may be
    called from any thread."""
    cancel: threading.Event
    """Set when the task must stop."""
    threads: int
    """Cores to plan for; 0: all."""
    gpu: int | None
    """GPU to use, if the executor assigns them; None: the settings' own."""


class Task(Protocol):
    """A piece of work for a worker process. Picklable, small, and without state."""

    def run(self, context: TaskContext) -> object:
        """Run the task; the result is picklable.

        Raises:
            BgsoftError: It failed, and would fail again.
        """


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has begun a task."""

    task_id: int
    worker: str
    """Name of the worker, e.g. ``pid 4711`` or a node's name."""


@dataclass(frozen=True, slots=True)
class Message:
    """A task sent a message."""

    task_id: int
    content: object
    index: int = 0
    """Index among tasks that were submitted together (:class:`bgsoft.jobs.driver.Driver`)."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A task's worker has died, and the task is retried."""

    task_id: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Finished:
    """A task has ended; sent exactly once for each submitted task."""

    task_id: int
    result: object = None
    error: BaseException | None = None
    """Error that it raised, or :class:`bgsoft.errors.WorkerDiedError`; None: it succeeded."""
    traceback: str | None = None
    """Traceback of the error, as text."""


Update = Started | Message | Retrying | Finished


class Executor(Protocol):
    """Runs tasks in other processes. All methods are called from one thread."""

    @property
    def idle(self) -> int:
        """Number of tasks that would start at once now."""

    def submit(self, task: Task) -> int:
        """Start a task, while :attr:`idle` is more than 0; return its id."""

    def poll(self, timeout: float) -> list[Update]:
        """Return updates since the last call; waits up to ``timeout`` seconds for one."""

    def kill(self, task_id: int, reason: str) -> None:
        """End a task with its worker; it finishes with WorkerDiedError and the reason."""

    def close(self) -> None:
        """Cancel running tasks and end all workers, quickly; safe to call twice."""
