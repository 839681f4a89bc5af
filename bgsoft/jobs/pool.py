"""Worker processes on this machine.

They are started as programs of their own, not by :mod:`multiprocessing`, which imports the caller's
main module again. A script that calls bgsoft without a ``__main__`` guard would then run once more
in every worker.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import wait

from bgsoft.closing import Closing
from bgsoft.cuda.driver import driver_problem
from bgsoft.cuda.mps import shared_gpus
from bgsoft.errors import WorkerCrashedError, WorkerDiedError
from bgsoft.jobs.task import Finished, Started, Task, Update
from bgsoft.jobs.worker import GRACE_SECONDS, Exiting, PrepareWorker, WorkerSettings
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.settings.config import BackendConfig
from bgsoft.threads import usable_cores

_PROGRAM = "import sys; sys.path[:] = {path!r}; from bgsoft.jobs.worker import main; main({fd})"
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}


@contextmanager
def worker_environment(
    config: BackendConfig, workers: int, gpus: int, on_notice: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Yield environment variables that workers need before they first use CUDA.

    ``gpus`` is the number of GPUs that the workers share; 0: the settings name one. ``on_notice``
    receives the reason if workers take turns on a GPU.
    """
    if workers <= max(1, gpus) or not may_use_gpu(config) or driver_problem(0) is not None:
        yield {}
        return
    with shared_gpus(on_notice) as variables:
        yield variables


class Pool(Closing):
    """An executor of processes, started when they are needed.

    A worker that dies is replaced, and its task finishes with WorkerDiedError. Workers end with
    this process, however it ends.

    Args:
        workers: Largest number of tasks at a time, 1 or more.
        threads: Cores that each task plans for; None: their share of this machine's. May be changed
            for later tasks.
        gpus: GPUs for the workers, by the user's numbers; each worker sees one. None: the tasks'
            settings decide.
        environment: Further variables for the workers during their life; entered while they start,
            which takes as long.
        shared: Descriptors that the workers keep open, of locks that last as long as any lives.
        ahead: Prepares workers for their tasks.
    """

    def __init__(
        self,
        workers: int,
        *,
        threads: int | None = None,
        gpus: Sequence[int] = (),
        environment: AbstractContextManager[Mapping[str, str]] | None = None,
        shared: Sequence[int] = (),
        ahead: PrepareWorker | None = None,
    ) -> None:
        self._shared = shared
        self._ahead = ahead
        self.threads = max(1, usable_cores() // workers) if threads is None else threads
        self._gpus = gpus
        self._environment = environment or nullcontext({})
        self._entered = ExitStack()
        self._variables: Mapping[str, str] | None = None
        self._workers: list[_WorkerProcess | None] = [None] * workers
        self._ids = count()
        self._updates: list[Update] = []

    @property
    def idle(self) -> int:
        return sum(worker is None or worker.is_free for worker in self._workers)

    def start(self) -> None:
        """Start all workers now, not with the first task that needs each."""
        self._start([slot for slot, each in enumerate(self._workers) if each is None])

    def submit(self, task: Task) -> int:
        task_id, pickled = next(self._ids), pickle.dumps(task)
        slot = next(at for at, each in enumerate(self._workers) if each is None or each.is_free)
        worker = self._workers[slot] or self._start([slot])[0]
        worker.run(task_id, pickled, self.threads)
        self._updates.append(Started(task_id, f"pid {worker.process.pid}"))
        return task_id

    def poll(self, timeout: float) -> list[Update]:
        until = time.monotonic() + timeout
        while True:
            self._listen(0.0 if self._updates else max(0.0, until - time.monotonic()))
            if self._updates or time.monotonic() >= until:
                updates, self._updates = self._updates, []
                return updates

    def kill(self, task_id: int, reason: str) -> None:
        """End a task: it has a moment to clean up before its process is killed."""
        for worker in self._workers:
            if worker is not None and worker.task_id == task_id:
                worker.end(reason)

    def close(self) -> None:
        workers = [worker for worker in self._workers if worker is not None]
        self._workers = [None] * len(self._workers)
        with self._entered:
            for worker in workers:
                worker.connection.close()
            until = time.monotonic() + GRACE_SECONDS
            for worker in workers:
                worker.wait(max(0.0, until - time.monotonic()))

    def _start(self, slots: Sequence[int]) -> list[_WorkerProcess]:
        """Start workers with the same environment variables."""
        started = []
        for slot in slots:
            gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
            settings = WorkerSettings(gpu=gpu, ahead=self._ahead)
            worker = self._workers[slot] = _WorkerProcess(settings, self._shared)
            started.append(worker)
        if self._variables is None:
            self._variables = self._entered.enter_context(self._environment)
        for worker in started:
            worker.set_up(self._variables)
        return started

    def _listen(self, timeout: float) -> None:
        """Receive the workers' messages, and detect workers that have died."""
        workers = {w.connection: w for w in self._workers if w is not None}
        now = time.monotonic()
        for worker in workers.values():
            timeout = min(timeout, max(0.0, worker.deadline - now))
            if worker.deadline <= now:
                worker.process.kill()
        if not workers:
            time.sleep(timeout)
            return
        for connection in wait(list(workers), timeout):
            worker = workers[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._reap(worker)
                continue
            if isinstance(message, Exiting):
                worker.end(worker.reason)
            elif not worker.reason:  # messages of a worker that is being ended are ignored
                self._updates.append(message)
                if isinstance(message, Finished):
                    worker.task_id = None

    def _reap(self, worker: _WorkerProcess) -> None:
        self._workers[self._workers.index(worker)] = None
        worker.connection.close()
        code = worker.wait(GRACE_SECONDS)
        if worker.task_id is not None:
            error = death(code)
            reason = worker.reason or f"its worker process {error}"
            kind = WorkerDiedError if worker.reason else type(error)
            self._updates.append(Finished(worker.task_id, error=kind(reason)))


class _WorkerProcess:
    """A process, and its current task."""

    def __init__(self, settings: WorkerSettings, shared: Sequence[int]) -> None:
        self.connection, theirs = Pipe()
        program = _PROGRAM.format(path=sys.path, fd=theirs.fileno())
        # Ctrl-C and a closed terminal signal every process of the terminal. The parent gets the
        # signal too, and ends its workers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *shared],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.task_id: int | None = None
        self.reason = ""
        """Why it is being ended."""
        self.deadline = float("inf")
        """Time by which it must have ended, on the clock of :func:`time.monotonic`."""
        self._send(settings)

    @property
    def is_free(self) -> bool:
        return self.task_id is None and self.deadline == float("inf")

    def set_up(self, variables: Mapping[str, str]) -> None:
        """Let it begin, with further environment variables."""
        self._send(dict(variables))

    def run(self, task_id: int, pickled: bytes, threads: int) -> None:
        self.task_id = task_id
        self._send((task_id, pickled, threads))

    def end(self, reason: str) -> None:
        """Ask it to end within a moment."""
        self.reason = reason
        self.deadline = time.monotonic() + GRACE_SECONDS
        self._send(None)

    def wait(self, seconds: float) -> int:
        """Wait for its end, and return its exit code; kill it after this time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _send(self, message: object) -> None:
        with suppress(OSError):  # it has died, which reading will show
            self.connection.send(message)


def death(code: int) -> WorkerDiedError:
    """Return an error for an exit code; its text follows the process's name."""
    if code >= 0:
        return WorkerDiedError(f"ended with exit code {code}")
    number = -code
    if number == signal.SIGKILL:
        text = "was killed (SIGKILL; the system may have run out of memory)"
        return WorkerDiedError(text)
    named = number in set(signal.Signals)  # most real-time signals have no name
    name = signal.Signals(number).name if named else f"signal {number}"
    if number in _CRASHES:
        return WorkerCrashedError(f"crashed ({name})")
    return WorkerDiedError(f"was ended by {name}")
