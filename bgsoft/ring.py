"""The preallocated ring of frame slots: the only place where frame buffers come from."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from bgsoft.clock import StageClock
from bgsoft.frame import Frame, Planes


class RingClosedError(Exception):
    """The ring was closed while a thread waited for a slot: the pipeline is stopping."""


class FrameRing:
    """A fixed set of slots, handed out to the decoder and given back after encoding.

    ``allocate`` makes the buffers of one slot, where the frames live; it is only called here.
    """

    def __init__(self, slots: int, allocate: Callable[[int], Planes]) -> None:
        self._free: SimpleQueue[Planes | None] = SimpleQueue()
        """None once the ring is closed."""
        for slot in range(slots):
            self._free.put(allocate(slot))
        self._out: set[int] = set()
        self._closed = False
        self.size = slots
        self.waiting = StageClock("wait for a slot")
        """Time that :meth:`acquire` has spent waiting."""

    def acquire(self) -> Planes:
        """Take a free slot, waiting for one if need be; RingClosedError once closed."""
        if self._free.empty():
            with self.waiting:
                planes = self._free.get()
        else:
            planes = self._free.get()
        if planes is None or self._closed:
            self._free.put(None)
            raise RingClosedError
        self._out.add(planes.slot)
        return planes

    def release(self, frame: Frame | Planes) -> None:
        """Give a slot back. Releasing one that is not out is a bug and raises ValueError."""
        planes = frame.planes if isinstance(frame, Frame) else frame
        if planes.slot not in self._out:
            raise ValueError(f"slot {planes.slot} is not in use")
        self._out.discard(planes.slot)
        self._free.put(planes)

    @property
    def in_use(self) -> int:
        """Slots that are out."""
        return len(self._out)

    def close(self) -> None:
        """Wake every waiter with RingClosedError; safe to call twice."""
        self._closed = True
        self._free.put(None)
