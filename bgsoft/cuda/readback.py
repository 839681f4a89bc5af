"""Small arrays that operations write and the host reads."""

from __future__ import annotations

import numpy.typing as npt

from bgsoft.frame import Array
from bgsoft.ops.placement import Placement


class Readback:
    """An array that operations write, zero at first, with its copy on the host.

    On the host both are the same array. A device sends through pinned memory, by the current
    stream.
    """

    def __init__(
        self, placement: Placement, shape: int | tuple[int, ...], dtype: npt.DTypeLike
    ) -> None:
        self.array: Array = placement.xp.zeros(shape, dtype)
        self.host: Array = self.array
        self._placement = placement
        if placement.on_device:
            from bgsoft.cuda.device import pinned_array

            self.host = pinned_array(self.array.shape, dtype)
            self._sent = placement.xp.cuda.Event(disable_timing=True)

    def send(self, part: slice = slice(None)) -> int:
        """Send rows to the host; return the number of bytes that cross PCIe."""
        if not self._placement.on_device:
            return 0
        stream = self._placement.xp.cuda.get_current_stream()
        self.array[part].get(out=self.host[part], stream=stream, blocking=False)
        self._sent.record(stream)
        return int(self.host[part].nbytes)

    def read(self, rows: int | None = None) -> Array:
        """Wait for the first rows, or all, and return them on the host."""
        if self._placement.on_device:
            self.send(slice(rows))
            self.wait()
        return self.host[:rows]

    def wait(self) -> None:
        """Wait for everything that was sent."""
        if self._placement.on_device:
            self._sent.synchronize()
