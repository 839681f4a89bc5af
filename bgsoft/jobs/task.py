"""Tasks for worker processes, and the messages that come back. Imports nothing heavy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from bgsoft.records import dataclass

CORES_A_TASK = 2
"""Cores for each task, unless the number of tasks at a time is given."""
TASKS_A_GPU = 2
"""Tasks at a time on each GPU: one alone would leave it idle while it begins and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a worker gives to the task that it runs."""

    tell: Callable[[object], None]
    """Sends a picklable message to the parent: Progress, Event or one of the task's own. May be
    called from any thread."""
    cancel: threading.Event
    """Set where the task is to stop."""
    threads: int
    """Cores to plan for; 0: all there are."""
    gpu: int | None
    """The GPU to use, where the executor deals several out; None: the settings' own."""


class Task(Protocol):
    """A piece of work for a worker process. Picklable, small, and without state."""

    def run(self, context: TaskContext) -> object:
        """Do it. The result is picklable.

        Raises:
            BgsoftError: It failed, and would fail again.
        """


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has begun a task."""

    task_id: int
    worker: str
    """e.g. ``pid 4711`` or a node's name."""


@dataclass(frozen=True, slots=True)
class Message:
    """A task sent a message."""

    task_id: int
    content: object
    index: int = 0
    """Which of the tasks that were submitted together (:class:`bgsoft.jobs.driver.Driver`)."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A task's worker has died, and it is tried again."""

    task_id: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Finished:
    """A task has ended. Exactly one for each task that was submitted."""

    task_id: int
    result: object = None
    error: BaseException | None = None
    """What it raised, or :class:`bgsoft.errors.WorkerDiedError`; None: it succeeded."""
    traceback: str | None = None
    """Where that was raised, as text."""


Update = Started | Message | Retrying | Finished


class Executor(Protocol):
    """Runs tasks in other processes. All methods are called from one thread."""

    @property
    def idle(self) -> int:
        """How many tasks it would start at once now."""

    def submit(self, task: Task) -> int:
        """Begin a task, while :attr:`idle` is more than 0; its id."""

    def poll(self, timeout: float) -> list[Update]:
        """What has happened since the last call; waits up to ``timeout`` seconds for something."""

    def kill(self, task_id: int, reason: str) -> None:
        """End a task with its worker; it finishes with WorkerDiedError, which gives the reason."""

    def close(self) -> None:
        """Cancel what runs and end all workers, quickly; safe to call twice."""
