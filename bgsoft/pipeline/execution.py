"""What differs between picture stages on the host and on a device: order, clocks, hand-over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from bgsoft.frame import Frame
from bgsoft.pipeline.metrics import StageClock
from bgsoft.workers import Workers

__all__ = ["Execution", "HostExecution"]

R = TypeVar("R")


class Execution(Protocol):
    """How the picture loop's work is carried out, wherever the frames are."""

    batch: int
    """Frames at a time, 1 or more."""

    def working(self, frames: Sequence[Frame]) -> AbstractContextManager[None]:
        """Around all work on some frames: what is done inside comes after what made them."""
        ...

    def measure(self, clock: StageClock) -> AbstractContextManager[None]:
        """Around the work of one stage: its time is that stage's."""
        ...

    def beside(self, work: Callable[[], R]) -> Callable[[], R]:
        """Something that needs nothing of what follows; calling the answer waits for its result."""
        ...

    def hand_out(self, frames: Sequence[Frame]) -> None:
        """Frames are finished once all that was done so far is done."""
        ...

    def wait(self) -> None:
        """Wait for all that is under way."""
        ...

    def close(self) -> None:
        """Free what it works with; safe to call twice."""
        ...


class HostExecution:
    """Works at once, the frames of a batch side by side.

    Args:
        workers: Closed with it.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.batch = workers.lanes

    def working(self, frames: Sequence[Frame]) -> AbstractContextManager[None]:
        return nullcontext()

    def measure(self, clock: StageClock) -> AbstractContextManager[None]:
        return clock.measure()

    def beside(self, work: Callable[[], R]) -> Callable[[], R]:
        return self._workers.beside(work).result

    def hand_out(self, frames: Sequence[Frame]) -> None:
        """On the host what is done is done."""

    def wait(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        self._workers.close()
