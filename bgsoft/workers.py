"""A pool of threads that do the same work on the frames of a batch, side by side.

NumPy, OpenCV and ONNX Runtime let go of the interpreter's lock while they compute, so threads
serve. Each frame of a batch has a lane of its own: the buffers that its work needs are made once a
lane, and no two frames under way share any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from bgsoft.closing import Closing

__all__ = ["Workers", "usable_cores"]

R = TypeVar("R")


def usable_cores() -> int:
    """Cores that this process may run on: a container or taskset may leave fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers(Closing):
    """Threads for the frames of a batch; with one lane nothing but :meth:`beside` starts any.

    Args:
        lanes: Frames at a time, 1 or more.
    """

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        # One more than the other lanes' threads: something may run beside them all.
        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="bgsoft-worker")

    def map(self, work: Callable[..., R], *items: Sequence[Any]) -> list[R]:
        """Do ``work(lane, *item)`` for every item; the calling thread takes its share.

        Args:
            work: Called with the number of a lane, from 0, and one element of each sequence.
            items: Sequences of the same length, up to :attr:`lanes`.

        Returns:
            The results, in order.

        Raises:
            Exception: Of the first item whose work failed; all have ended by then.
        """
        jobs = list(enumerate(zip(*items, strict=True)))
        others = [self._pool.submit(work, lane, *item) for lane, item in jobs[1:]]
        try:
            results = [work(lane, *item) for lane, item in jobs[:1]]
        finally:
            for other in others:
                other.exception()
        return results + [other.result() for other in others]

    def beside(self, work: Callable[[], R]) -> Future[R]:
        """Start something that goes on beside what follows; its result is waited for there."""
        return self._pool.submit(work)

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._pool.shutdown()
