"""Tasks for worker processes, scripted by tests."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from bgsoft.errors import DecodeError, StallError
from bgsoft.jobs.task import TaskContext
from bgsoft.report import Progress


def progress(frames: int) -> Progress:
    return Progress(
        frames=frames, total=None, elapsed_seconds=1.0, fps=1.0, eta_seconds=None, load={}
    )


def note_gpu(folder: Path, gpu: int | None) -> None:
    """Record this process and the GPU assigned to it; then fail."""
    (folder / f"{os.getpid()}").write_text(f"{gpu} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    raise RuntimeError


@dataclass(frozen=True)
class Echo:
    """Return its value and the process that ran it."""

    value: object

    def run(self, context: TaskContext) -> object:
        return {"value": self.value, "pid": os.getpid()}


@dataclass(frozen=True)
class Here:
    """Return the worker's settings, and wait to be cancelled."""

    def run(self, context: TaskContext) -> object:
        context.send((context.gpu, os.environ.get("CUDA_VISIBLE_DEVICES"), context.threads))
        context.cancel.wait()
        return None


@dataclass(frozen=True)
class Say:
    messages: tuple[object, ...]

    def run(self, context: TaskContext) -> object:
        for message in self.messages:
            context.send(message)
        return None


@dataclass(frozen=True)
class Fail:
    error: BaseException

    def run(self, context: TaskContext) -> object:
        raise self.error


def leave_a_stage_behind() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True, name="bgsoft-encode").start()


@dataclass(frozen=True)
class Stick:
    """Fail, and leave a stage of a render behind."""

    def run(self, context: TaskContext) -> object:
        leave_a_stage_behind()
        raise StallError("no frame", stage="encode")


class AwkwardError(Exception):
    """An error that cannot be created from its arguments."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


@dataclass(frozen=True)
class Awkward:
    def run(self, context: TaskContext) -> object:
        raise AwkwardError(5, "odd")


@dataclass(frozen=True)
class Die:
    """Kill its own process the first times that it runs."""

    number: int = signal.SIGKILL
    marks: Path | None = None
    times: int = 1

    def run(self, context: TaskContext) -> object:
        if self.marks is not None:
            done = len(list(self.marks.iterdir()))
            if done >= self.times:
                return "lived"
            (self.marks / str(done)).touch()
        os.kill(os.getpid(), self.number)
        time.sleep(60)
        return None


@dataclass(frozen=True)
class Exit:
    code: int

    def run(self, context: TaskContext) -> object:
        os._exit(self.code)


@dataclass(frozen=True)
class Wait:
    """Report its process id, wait to be cancelled, and leave a mark then."""

    mark: Path | None = None
    stubborn: bool = False
    stuck: bool = False
    """Whether one of its stages is."""

    def run(self, context: TaskContext) -> object:
        context.send(os.getpid())
        while self.stubborn:
            time.sleep(0.1)
        context.cancel.wait()
        if self.stuck:
            leave_a_stage_behind()
        if self.mark is not None:
            self.mark.touch()
        raise DecodeError("cancelled")


@dataclass(frozen=True)
class Crawl:
    """Report the same frame again and again."""

    def run(self, context: TaskContext) -> object:
        while not context.cancel.wait(0.05):
            context.send(progress(3))
        return None


@dataclass(frozen=True)
class Square:
    value: int

    def run(self, context: TaskContext) -> object:
        context.send(f"squaring {self.value}")
        return self.value**2


class _Loop:
    """A reference to itself, like those of a finished render."""

    def __init__(self) -> None:
        self.own = self


_left: list[weakref.ref[_Loop]] = []


@dataclass(frozen=True)
class LeaveBehind:
    """Leave a cyclic reference, and return those that earlier tasks left."""

    def run(self, context: TaskContext) -> object:
        gc.disable()
        there = sum(left() is not None for left in _left)
        _left.append(weakref.ref(_Loop()))
        return there
