"""Judges hostile cases side by side, in a few processes that last.

A process that dies or hangs is itself a problem, and another takes its place.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.hostile.judge import Judge, Verdict

MAX_SECONDS = 120.0
"""Time from which a case counts as hanging. FFmpeg takes 5 for ten thousand tags, and a busy
machine 20."""
_MAX_ADDRESSES = 8 * 1024**3
"""Address space of a process, so that no case exhausts the machine's memory."""


def judge_cases(connection: Connection, folder: str, seed: int) -> None:
    """Judge the cases whose numbers arrive, until None does."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESSES, _MAX_ADDRESSES))
    judge = Judge(Path(folder), seed)
    while True:
        connection.send(None)
        number = connection.recv()
        if number is None:
            return
        faulthandler.dump_traceback_later(MAX_SECONDS - 1)  # where it hangs
        connection.send(judge.judge(number))
        faulthandler.cancel_dump_traceback_later()


class Worker:
    """A process that judges, with a folder of its own."""

    def __init__(self, seed: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bgsoft-hostile-")
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        arguments = (theirs, self._folder.name, seed)
        self.process = context.Process(target=judge_cases, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.number: int | None = None
        self._since = self._waited = 0.0

    def give(self, number: int) -> None:
        self.number, self._since, self._waited = number, time.monotonic(), self._wait_seconds()
        self.connection.send(number)

    @property
    def seconds(self) -> float:
        """Duration of the case so far, without the time in which others had the processor."""
        return time.monotonic() - self._since - max(0.0, self._wait_seconds() - self._waited)

    def _wait_seconds(self) -> float:
        total = 0
        for entry in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(entry.read_text().split()[1])
        return total / 1e9

    def close(self) -> int | None:
        """End it; its exit code."""
        if self.number is None:
            with suppress(OSError):
                self.connection.send(None)
            self.process.join(10)
        self.process.kill()
        self.process.join()
        self.connection.close()
        self._folder.cleanup()
        return self.process.exitcode


def judge_all(numbers: Iterable[int], seed: int, processes: int = 2) -> Iterator[Verdict]:
    """Judge cases, and return verdicts in the order in which they are reached."""
    waiting = list(numbers)[::-1]
    workers = [Worker(seed) for _ in range(min(processes, len(waiting)))]
    try:
        while workers:
            ready = wait([worker.connection for worker in workers], 1.0)
            for at, worker in reversed(list(enumerate(workers))):
                ended, message = False, None
                if worker.connection in ready:
                    try:
                        message = worker.connection.recv()
                    except EOFError:
                        ended = True
                    if isinstance(message, Verdict):
                        worker.number = None
                        yield message
                    elif not ended and waiting:
                        worker.give(waiting.pop())
                    elif not ended:
                        workers.pop(at).close()
                hangs = worker.number is not None and worker.seconds > MAX_SECONDS
                if ended or hangs:
                    number = worker.number
                    assert number is not None, "a process ended before its first case"
                    code = worker.close()
                    problem = f"hung for {MAX_SECONDS:g} s" if hangs else f"died: {code}"
                    yield Verdict(number, "?", "?", problems=[problem])
                    workers[at] = Worker(seed)
    finally:
        for worker in workers:
            worker.close()
