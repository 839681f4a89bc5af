"""A pool of threads that do the same work on the frames of a batch, side by side.

NumPy, OpenCV and ONNX Runtime release the interpreter's lock while they compute, so threads serve.
Buffers are made once a lane, and no two frames under way share any.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import starmap
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from bgsoft.closing import Closing

R = TypeVar("R")

_FEW_CORES = 2
_LESS = 10
"""Steps of niceness: beside another thread, a tenth of a core is left to one of these."""


def usable_cores() -> int:
    """Cores that this process may run on: a container or taskset may leave fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_batch_scheduling() -> None:
    """Tell the system that nobody waits for a single step of what this thread does.

    Threads and processes that it starts from now on do as it does: they don't interrupt others the
    moment they can go on. On two cores a render at 1080p takes 3 % less time, with a third of the
    interruptions. On more nothing is said: there the interpreter's lock is what threads wait for,
    so whoever has it must not wait. A policy that somebody has chosen stays; so does the usual one
    where the system allows no other.
    """
    if sys.platform == "linux" and usable_cores() <= _FEW_CORES:
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lower_priority() -> None:
    """Let the other threads of a process that only computes have a core first.

    For this thread and those that it starts from now on. What a render makes in one thread, frame
    after frame, then waits for cores less than what codecs do in several: at 360p two cores take
    5 % less time.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_BATCH:
                thread = threading.get_native_id()
                priority = os.getpriority(os.PRIO_PROCESS, thread) + _LESS
                os.setpriority(os.PRIO_PROCESS, thread, priority)


class Job(Generic[R]):
    """Work that a thread does for another.

    A future of :mod:`concurrent.futures` does as much with five times the calls, and there are a
    dozen a frame: many cores spend their time waiting for the interpreter's lock between them.
    """

    __slots__ = ("_done", "_error", "_result", "_work")

    def __init__(self, work: Callable[[], R]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Do it, in this thread; once."""
        try:
            self._result = self._work()
        except BaseException as exc:
            self._error = exc
        finally:
            self._done.release()

    def wait(self) -> None:
        """Return once it is done, whether it has failed or not."""
        with self._done:
            pass

    def result(self) -> R:
        """Wait for what it returns; raises what it raised."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._result


class Threads(Closing):
    """Does work in threads, a few at a time, each piece in one of its own.

    An executor of :mod:`concurrent.futures` takes no more work once the main thread has come to its
    end, though other threads still render.

    Args:
        most: Pieces at a time; others wait.
        name: Of the threads.
    """

    def __init__(self, most: int, name: str) -> None:
        self._room = threading.Semaphore(most)
        self._name = name
        self._lock = threading.Lock()
        self._begun: list[tuple[threading.Thread, Future[Any]]] = []

    def submit(self, work: Callable[..., R], *arguments: Any) -> Future[R]:
        """Begin a piece of work; may be called by any thread."""
        future: Future[R] = Future()

        def run() -> None:
            with self._room:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    result = work(*arguments)
                except BaseException as exc:
                    future.set_exception(exc)
                else:
                    future.set_result(result)

        thread = threading.Thread(target=run, name=self._name)
        with self._lock:
            self._begun = [each for each in self._begun if each[0].is_alive()]
            thread.start()
            self._begun.append((thread, future))
        return future

    def close(self) -> None:
        """Cancel what waits, and wait for the rest; safe to call twice."""
        for _, future in self._begun:
            future.cancel()
        while self._begun:
            self._begun.pop()[0].join()


def _work_on(jobs: SimpleQueue[Job[Any] | None]) -> None:
    """Do one job after another, until there is None."""
    while (job := jobs.get()) is not None:
        job.run()


class DaemonThread(threading.Thread):
    """A thread that does not keep the interpreter from ending where it is stuck.

    It tells of its own end: up to CPython 3.12, Ctrl-C in ``Thread.join`` marks a thread that runs
    on as one that has ended, and what it uses would be closed.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._over = threading.Event()
        self._over.set()
        self._process = 0

    def start(self) -> None:
        self._process = os.getpid()
        self._over.clear()
        try:
            super().start()
        except RuntimeError:  # there are too many
            self._over.set()
            raise

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._over.set()

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._over.wait(timeout)

    def is_alive(self) -> bool:
        return not self._over.is_set() and self._process == os.getpid()  # a fork has no threads


class Workers(Closing):
    """So many lanes, for a frame each at a time; the first is the calling thread itself."""

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        self._jobs: dict[int, SimpleQueue[Job[Any] | None]] = {}
        """Of threads by lane, once they are needed; that of lane 0 does what runs beside them."""
        self._threads: list[DaemonThread] = []

    def map(self, work: Callable[..., R], *items: Sequence[Any]) -> list[R]:
        """The results of ``work(lane, *item)``, in order, as many at a time as there are lanes.

        Args:
            work: Called with the number of a lane, from 0, and one element of each sequence.
            items: Sequences of the same length.

        Raises:
            Exception: Of the first item whose work failed; those beside it have ended by then.
        """
        jobs = list(zip(*items, strict=True))
        if self.lanes == 1 or len(jobs) == 1:
            return list(starmap(partial(work, 0), jobs))
        results: list[R] = []
        for part in self.parts(len(jobs)):
            first, *beside = jobs[part]
            others = [
                self.submit(partial(work, lane, *item), lane)
                for lane, item in enumerate(beside, start=1)
            ]
            try:
                results.append(work(0, *first))
            finally:
                for other in others:
                    other.wait()
            results += [other.result() for other in others]
        return results

    def parts(self, count: int) -> Iterator[slice]:
        """The places of ``count`` frames in order, as many at a time as there are lanes."""
        lanes = self.lanes
        return map(slice, range(0, count, lanes), range(lanes, count + lanes, lanes))

    def submit(self, work: Callable[[], R], lane: int = 0) -> Job[R]:
        """Start something that goes on beside what follows; its result is waited for there."""
        if lane not in self._jobs:
            jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
            self._jobs[lane] = jobs
            name = f"bgsoft-worker_{lane}"
            thread = DaemonThread(partial(_work_on, jobs), name)
            thread.start()
            self._threads.append(thread)
        job = Job(work)
        self._jobs[lane].put(job)
        return job

    def close(self) -> None:
        """End the threads; safe to call twice."""
        while self._jobs:
            self._jobs.popitem()[1].put(None)
        while self._threads:
            self._threads.pop().join()
