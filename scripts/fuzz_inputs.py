"""Run bgsoft on thousands of hostile inputs made from seeds, and judge what it does.

    python scripts/fuzz_inputs.py [--cases 2000] [--seed 1] [--jobs 2] [--maker NAME] [--case N]

Cases run one after another in a few processes that last. A process that dies or stands still is
itself a problem, and another takes its place. Exit code 1: there were problems.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hostile.judge import Judge, Verdict

LONGEST_SECONDS = 20.0
_MOST_ADDRESSES = 8 * 1024**3
"""Address space of a process: what wants more must not take the machine down."""


def work(connection: Connection, folder: str, seed: int, maker: str | None) -> None:
    """Judge the cases whose numbers come, until None does."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))
    judge = Judge(Path(folder), seed)
    while True:
        connection.send(None)
        number = connection.recv()
        if number is None:
            return
        faulthandler.dump_traceback_later(LONGEST_SECONDS - 1)  # where it stands still
        connection.send(judge.judge(number, maker))
        faulthandler.cancel_dump_traceback_later()


class Worker:
    """A process that judges, with a folder of its own."""

    def __init__(self, seed: int, maker: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bgsoft-fuzz-")
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        arguments = (theirs, self._folder.name, seed, maker)
        self.process = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.number: int | None = None
        self._since = self._waited = 0.0

    def give(self, number: int) -> None:
        """Begin with a case."""
        self.number, self._since, self._waited = number, time.monotonic(), self._wait_seconds()
        self.connection.send(number)

    @property
    def seconds(self) -> float:
        """How long the case has taken, without the time in which others had the processor."""
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
            self.connection.send(None)
            self.process.join(10)
        self.process.kill()
        self.process.join()
        self._folder.cleanup()
        return self.process.exitcode


def run(numbers: list[int], jobs: int, seed: int, maker: str | None) -> list[Verdict]:
    """Judge all cases."""
    verdicts: list[Verdict] = []
    workers = [Worker(seed, maker) for _ in range(min(jobs, len(numbers)))]
    waiting = numbers[::-1]
    while workers:
        ready = wait([worker.connection for worker in workers], 1.0)
        for at, worker in reversed(list(enumerate(workers))):
            ended = False
            if worker.connection in ready:
                try:
                    message = worker.connection.recv()
                except EOFError:
                    ended, message = True, None
                if isinstance(message, Verdict):
                    verdicts.append(message)
                    tell(message)
                    worker.number = None
                elif not ended and waiting:
                    worker.give(waiting.pop())
                elif not ended:
                    workers.pop(at).close()
            stuck = worker.number is not None and worker.seconds > LONGEST_SECONDS
            if ended or stuck:
                number = worker.number
                if number is None:
                    raise SystemExit("a process ended before its first case")
                code = worker.close()
                problem = f"hung for {LONGEST_SECONDS:g} s" if stuck else f"died: {code}"
                verdicts.append(Verdict(number, "?", "?", problems=[problem]))
                tell(verdicts[-1])
                workers[at] = Worker(seed, maker)
    return verdicts


def tell(verdict: Verdict) -> None:
    if verdict.problems:
        print(f"case {verdict.number} ({verdict.maker}: {verdict.what}): {verdict.problems}")
        print("   ", verdict.code, verdict.stderr.strip()[:2000], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--maker", help="one kind of case alone, e.g. damaged_boxes")
    parser.add_argument("--case", type=int, help="this case alone")
    options = parser.parse_args()
    numbers = list(range(options.cases)) if options.case is None else [options.case]
    started = time.monotonic()
    verdicts = run(numbers, options.jobs, options.seed, options.maker)
    bad = [verdict for verdict in verdicts if verdict.problems]
    print(f"{len(verdicts)} cases in {time.monotonic() - started:.0f} s, {len(bad)} with problems")
    codes = Counter(verdict.code for verdict in verdicts)
    print("exit codes:", ", ".join(f"{code}: {count}" for code, count in codes.most_common()))
    for name, unit, size in (("slowest", "s", lambda v: v.seconds), ("most memory", "GB", _giga)):
        most = max(verdicts, key=size)
        print(f"{name}: {size(most):.2f} {unit}, case {most.number} ({most.maker}: {most.what})")
    sys.exit(bool(bad))


def _giga(verdict: Verdict) -> float:
    return verdict.bytes / 1e9


if __name__ == "__main__":
    main()
