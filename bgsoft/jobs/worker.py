"""The program of a worker process, which keeps imports and models between tasks.

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

from bgsoft.cuda.driver import context_fault, show_only, shown_gpu
from bgsoft.errors import RenderCancelledError, WorkerDiedError
from bgsoft.jobs.task import Finished, Message, Task, TaskContext, Update
from bgsoft.records import dataclass
from bgsoft.report import Progress

GRACE_SECONDS = 3.0
"""Time that a task has to clean up before its process ends."""
STAGE_THREADS = {"bgsoft-decode", "bgsoft-segment", "bgsoft-picture", "bgsoft-encode"}
"""Threads of :class:`bgsoft.pipeline.runner.Pipeline`: they end with it, unless one hangs."""
_PROGRESS_SECONDS = 0.2
"""Shortest interval between progress messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings that a worker receives once, before environment variables and its first task."""

    gpu: int | None
    ahead: PrepareWorker | None
    """Called before the first task."""


@dataclass(frozen=True, slots=True)
class Exiting:
    """Sent by a worker before the end of its last task: its process ends after that."""


WorkerMessage = Update | Exiting
PrepareWorker = Callable[[int | None], None]
"""Prepares a process for its tasks, on the GPU that is assigned to it. Picklable."""


class TaskError(Exception):
    """Replaces an exception that cannot be pickled."""


def main(descriptor: int) -> NoReturn:
    """Run tasks until the parent closes the socket, or sends None."""
    # As in the command line.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    connection = Connection(descriptor)
    try:
        settings = connection.recv()  # this also imports the module that prepares tasks
        os.environ.update(connection.recv())
    except (EOFError, OSError):  # the parent has ended already
        os._exit(1)
    _TaskLoop(connection).work(settings)


class _TaskLoop:
    """Runs tasks in the main thread; another one listens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[int, bytes, int] | None] = queue.SimpleQueue()
        self._cancel = threading.Event()

    def work(self, settings: WorkerSettings) -> NoReturn:
        if settings.gpu is not None and shown_gpu() is None:
            show_only(settings.gpu)
        threading.Thread(target=self._listen, daemon=True).start()
        from bgsoft.infer.warm import keep_warm

        keep_warm()
        if settings.ahead is not None:
            with suppress(Exception):  # the first task will report it
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
            except OSError:  # the parent has closed the connection; the other thread detects that
                self._cancel.set()


def perform(
    task_id: int,
    pickled: bytes,
    threads: int,
    send: Callable[[WorkerMessage], None],
    cancel: threading.Event,
    gpu: int | None,
) -> None:
    """Run a task in this process, and send its messages and its end.

    Exiting is sent before its end if the process must be replaced. The other arguments are those of
    :class:`bgsoft.jobs.task.TaskContext`.
    """
    throttled = _throttled(lambda content: send(Message(task_id, content)))
    context = TaskContext(send=throttled, cancel=cancel, threads=threads, gpu=gpu)
    finished = _result(task_id, pickled, context)
    if must_restart(finished.error):
        send(Exiting())
    send(finished)


def _throttled(send: Callable[[object], None]) -> Callable[[object], None]:
    """Return ``send`` limited to a few progress messages a second."""
    last = 0.0

    def told(message: object) -> None:
        nonlocal last
        if isinstance(message, Progress):
            now = time.monotonic()
            if now - last < _PROGRESS_SECONDS and message.frames != message.total:
                return
            last = now
        send(message)

    return told


def _result(task_id: int, pickled: bytes, context: TaskContext) -> Finished:
    """Return a task's end, in a form that can be sent."""
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
    """Return a task's memory to the system.

    Its objects form cycles, which Python would free some videos later (peak of 160 small videos:
    305 MB, without this 467). glibc keeps freed memory, much of it for ended threads: a worker grew
    by 15 MB with each chunk of a long video.
    """
    gc.collect()
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def must_restart(error: BaseException | None) -> bool:
    """Return whether a worker must be replaced after a task that raised this (None: nothing).

    A failed render may have left a thread in a stage that does not return.
    """
    if isinstance(error, WorkerDiedError | MemoryError):
        return True
    return error is not None and any(
        thread.name in STAGE_THREADS for thread in threading.enumerate()
    )


def _sendable(exc: Exception) -> Exception:
    """Return the exception, or one with the same text if it cannot be pickled."""
    fault = None if isinstance(exc, RenderCancelledError) else context_fault()
    if fault is not None:
        return WorkerDiedError(f"{exc} ({fault})", stage=getattr(exc, "stage", None))
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:  # a foreign class may raise anything for its arguments
        return TaskError(f"{type(exc).__name__}: {exc}")
    return exc
