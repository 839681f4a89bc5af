"""The ring of preallocated frame slots, which is the only source of frame buffers."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from bgsoft.clock import StageClock
from bgsoft.frame import Frame, Planes


class RingClosedError(Exception):
    """The ring was closed while a thread waited for a slot: the pipeline is stopping."""


class FrameRing:
    """A fixed set of slots that the decoder takes and the encoder returns.

    ``allocate`` creates the buffers of one slot; it is only called by the constructor.
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
        """Take a free slot, waiting if there is none; raises RingClosedError once closed."""
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
        """Return a slot. Raises ValueError for a slot that is not in use, which is a bug."""
        planes = frame.planes if isinstance(frame, Frame) else frame
        if planes.slot not in self._out:
            raise ValueError(f"cannot release slot {planes.slot}: it is not in use")
        self._out.discard(planes.slot)
        self._free.put(planes)

    @property
    def in_use(self) -> int:
        """Number of slots in use."""
        return len(self._out)

    def close(self) -> None:
        """Wake every waiter with RingClosedError; safe to call twice."""
        self._closed = True
        self._free.put(None)
