"""The program of a worker process, which stays from task to task, with its imports and models.

Nothing heavy is imported here, so that several workers start quickly.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NoReturn

from bgsoft.cuda.driver import context_fault, show_only, shown_by_parent
from bgsoft.errors import RenderCancelledError, WorkerDiedError
from bgsoft.jobs.task import Finished, Message, Task, TaskContext, Update
from bgsoft.records import dataclass
from bgsoft.report import Progress

GRACE_SECONDS = 3.0
"""How long a task may take to clean up once its process is to end."""
STAGE_THREADS = {"bgsoft-decode", "bgsoft-segment", "bgsoft-picture", "bgsoft-encode"}
"""Of :class:`bgsoft.pipeline.runner.Pipeline`: they end with it, unless one is stuck."""
_PROGRESS_SECONDS = 0.2
"""Progress is passed on this often at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker gets once, before further variables of its environment and its first task."""

    gpu: int | None
    only_gpu: int | None
    """The GPU that the parent has hidden all others for, from its own children, too."""
    ahead: Ahead | None
    """Called before the first task."""


@dataclass(frozen=True, slots=True)
class Exiting:
    """Sent by a worker before the end of its last task: its process ends after that."""


News = Update | Exiting
Ahead = Callable[[int | None], None]
"""Makes a process ready for its tasks, on the GPU that is dealt to it. Picklable."""


class TaskError(Exception):
    """Stands for an exception that cannot be sent."""


def main(descriptor: int) -> NoReturn:
    """Run tasks until the parent closes the socket, or sends None."""
    # As for the command line: see there.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    connection = Connection(descriptor)
    try:
        settings = connection.recv()  # which imports what makes ready, too
        os.environ.update(connection.recv())
    except (EOFError, OSError):  # the parent has ended already
        os._exit(1)
    _Worker(connection).work(settings)


class _Worker:
    """Runs tasks in the main thread; another one listens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[int, bytes, int] | None] = queue.SimpleQueue()
        self._cancel = threading.Event()

    def work(self, settings: WorkerSettings) -> NoReturn:
        if settings.only_gpu is not None:
            shown_by_parent(settings.only_gpu)
        elif settings.gpu is not None:
            show_only(settings.gpu)
        threading.Thread(target=self._listen, daemon=True).start()
        from bgsoft.infer.warm import keep_warm

        keep_warm()
        if settings.ahead is not None:
            with suppress(Exception):  # the first task will tell of it
                settings.ahead(settings.gpu)
        while (given := self._tasks.get()) is not None:
            perform(*given, self._send, self._cancel, settings.gpu)
        os._exit(0)

    def _listen(self) -> None:
        try:
            while (given := self._connection.recv()) is not None:
                self._tasks.put(given)
        except (EOFError, OSError):
            pass  # the parent has ended
        self._cancel.set()
        self._tasks.put(None)
        time.sleep(GRACE_SECONDS)
        os._exit(1)

    def _send(self, message: object) -> None:
        with self._sending:
            try:
                self._connection.send(message)
            except OSError:  # nobody listens any more: the other thread knows
                self._cancel.set()


def perform(
    task_id: int,
    pickled: bytes,
    threads: int,
    send: Callable[[News], None],
    cancel: threading.Event,
    gpu: int | None,
) -> None:
    """Run a task in this process, and send its messages and its end; before that Exiting, where the
    process is of no more use. The rest is as in :class:`bgsoft.jobs.task.TaskContext`."""
    tell = _throttled(lambda content: send(Message(task_id, content)))
    context = TaskContext(tell=tell, cancel=cancel, threads=threads, gpu=gpu)
    finished = _result(task_id, pickled, context)
    if must_restart(finished.error):
        send(Exiting())
    send(finished)


def _throttled(tell: Callable[[object], None]) -> Callable[[object], None]:
    """``tell`` with most progress messages left out: a few a second are enough to read."""
    last = 0.0

    def told(message: object) -> None:
        nonlocal last
        if isinstance(message, Progress):
            now = time.monotonic()
            if now - last < _PROGRESS_SECONDS and message.frames != message.total:
                return
            last = now
        tell(message)

    return told


def _result(task_id: int, pickled: bytes, context: TaskContext) -> Finished:
    """What a task comes to, which can be sent."""
    try:
        task: Task = pickle.loads(pickled)
        result = task.run(context)
        pickle.dumps(result)
    except Exception as exc:
        return Finished(task_id, error=_sendable(exc), traceback=traceback.format_exc())
    finally:
        _give_back_memory()
    return Finished(task_id, result)


def _give_back_memory() -> None:
    """Return what a task had to the system.

    Its objects refer to one another: Python would free some many videos later (160 small ones: 305
    MB at most, 467 without this). What is freed glibc keeps, much of it for threads that have
    ended: a worker grew by 15 MB with each chunk of a long video.
    """
    gc.collect()
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def must_restart(error: BaseException | None) -> bool:
    """Whether a worker is of no more use after a task that raised this (None: nothing).

    A render that failed may have left a thread in a stage that does not come back.
    """
    if isinstance(error, WorkerDiedError | MemoryError):
        return True
    return error is not None and any(
        thread.name in STAGE_THREADS for thread in threading.enumerate()
    )


def _sendable(exc: Exception) -> Exception:
    """The exception, or one with the same text where it cannot be pickled."""
    fault = None if isinstance(exc, RenderCancelledError) else context_fault()
    if fault is not None:
        return WorkerDiedError(f"{exc} ({fault})", stage=getattr(exc, "stage", None))
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:  # a class of somebody else's may do what it likes with its arguments
        return TaskError(f"{type(exc).__name__}: {exc}")
    return exc
