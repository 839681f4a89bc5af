"""Threads that do the same work on the frames of a batch in parallel.

NumPy, OpenCV and ONNX Runtime release the interpreter's lock while they compute, so threads
suffice. Buffers are allocated once for each lane; frames in progress share none.
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
"""Niceness steps that leave a thread a tenth of a core while another thread competes."""


def usable_cores() -> int:
    """Return the cores that this process may use; a container or taskset may reduce them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_batch_scheduling() -> None:
    """Schedule this thread, and those it starts, as batch work (``SCHED_BATCH``).

    Batch threads do not preempt others as soon as they can run. On two cores a render at 1080p
    takes 3 % less time, with a third of the preemptions. With more cores nothing changes: threads
    wait for the interpreter's lock there, so its holder must not wait. A policy that the user chose
    stays; so does the default where the system allows no other.
    """
    if sys.platform == "linux" and usable_cores() <= _FEW_CORES:
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lower_priority() -> None:
    """Lower the priority of this thread, and of those it starts, among batch threads.

    A render's single-threaded work then waits less for cores that multi-threaded codecs use: at
    360p, two cores take 5 % less time.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_BATCH:
                thread = threading.get_native_id()
                priority = os.getpriority(os.PRIO_PROCESS, thread) + _LESS
                os.setpriority(os.PRIO_PROCESS, thread, priority)


class LightFuture(Generic[R]):
    """Work that one thread does for another.

    A future of :mod:`concurrent.futures` takes five times the calls, and there are a dozen a
    frame: with many cores, threads wait for the interpreter's lock between calls.
    """

    __slots__ = ("_done", "_error", "_result", "_work")

    def __init__(self, work: Callable[[], R]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Do the work in this thread; call once."""
        try:
            self._result = self._work()
        except BaseException as exc:
            self._error = exc
        finally:
            self._done.release()

    def wait(self) -> None:
        """Return once the work has ended, successfully or not."""
        with self._done:
            pass

    def result(self) -> R:
        """Wait for the work, and return its result or raise its exception."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._result


class Threads(Closing):
    """Runs pieces of work, each in a thread of its own, a limited number at a time.

    An executor of :mod:`concurrent.futures` accepts no work once the main thread has ended, though
    other threads still render.

    Args:
        max_running: Largest number of pieces at a time; others wait.
        name: Name of the threads.
    """

    def __init__(self, max_running: int, name: str) -> None:
        self._room = threading.Semaphore(max_running)
        self._name = name
        self._lock = threading.Lock()
        self._begun: list[tuple[threading.Thread, Future[Any]]] = []

    def submit(self, work: Callable[..., R], *arguments: Any) -> Future[R]:
        """Start a piece of work; may be called by any thread."""
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
        """Cancel waiting work, and wait for the rest; safe to call twice."""
        for _, future in self._begun:
            future.cancel()
        while self._begun:
            self._begun.pop()[0].join()


def _work_on(queue: SimpleQueue[LightFuture[Any] | None]) -> None:
    """Run work until there is None."""
    while (work := queue.get()) is not None:
        work.run()


class DaemonThread(threading.Thread):
    """A thread that never keeps the interpreter from exiting.

    It records its own end: up to CPython 3.12, Ctrl-C in ``Thread.join`` marks a running thread as
    ended, and resources that it uses would be closed.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._over = threading.Event()
        self._over.set()
        self._process = 0
        self.held: object = None
        """Resources that live as long as the thread."""

    def hold(self, resources: object) -> None:
        """Keep resources that a thread which does not end may be using."""
        self.held = resources

    def start(self) -> None:
        self._process = os.getpid()
        self._over.clear()
        try:
            super().start()
        except RuntimeError:  # too many threads
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


def any_thread_holds() -> bool:
    """Return whether a thread that did not end keeps resources."""
    return any(getattr(thread, "held", None) is not None for thread in threading.enumerate())


class LanePool(Closing):
    """Lanes that each process one frame at a time; the first is the calling thread itself."""

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        self._queues: dict[int, SimpleQueue[LightFuture[Any] | None]] = {}
        """Queues of the threads by lane, created when needed; lane 0's thread runs
        submitted work."""
        self._threads: list[DaemonThread] = []

    def map(self, work: Callable[..., R], *items: Sequence[Any]) -> list[R]:
        """Return the results of ``work(lane, *item)`` in order, one item a lane at a time.

        Args:
            work: Called with the number of a lane, from 0, and one element of each sequence.
            items: Sequences of the same length.

        Raises:
            Exception: The first failed item's; all items started with it have ended by then.
        """
        calls = list(zip(*items, strict=True))
        if self.lanes == 1 or len(calls) == 1:
            return list(starmap(partial(work, 0), calls))
        results: list[R] = []
        for part in self.parts(len(calls)):
            first, *beside = calls[part]
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
        """Return slices over ``count`` frames, of one frame a lane."""
        lanes = self.lanes
        return map(slice, range(0, count, lanes), range(lanes, count + lanes, lanes))

    def submit(self, work: Callable[[], R], lane: int = 0) -> LightFuture[R]:
        """Start work in another thread; the caller waits for its result."""
        if lane not in self._queues:
            queue: SimpleQueue[LightFuture[Any] | None] = SimpleQueue()
            self._queues[lane] = queue
            name = f"bgsoft-lane_{lane}"
            thread = DaemonThread(partial(_work_on, queue), name)
            thread.start()
            self._threads.append(thread)
        future = LightFuture(work)
        self._queues[lane].put(future)
        return future

    def close(self) -> None:
        """End the threads; safe to call twice."""
        while self._queues:
            self._queues.popitem()[1].put(None)
        while self._threads:
            self._threads.pop().join()
