"""Small arrays that operations write and the host reads."""

from __future__ import annotations

import numpy.typing as npt

from bgsoft.frame import Array
from bgsoft.ops.sides import Side


class Readback:
    """An array on a side, zero at first, and what the host has of it.

    On the host both are one. From a device it is sent through pinned memory, by the current stream.
    """

    def __init__(self, side: Side, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.array: Array = side.xp.zeros(shape, dtype)
        self.host: Array = self.array
        self._side = side
        if side.on_device:
            from bgsoft.cuda.device import pinned_array

            self.host = pinned_array(self.array.shape, dtype)
            self._sent = side.xp.cuda.Event(disable_timing=True)

    def send(self, part: slice = slice(None)) -> int:
        """Send rows to the host; how many bytes cross PCIe."""
        if not self._side.on_device:
            return 0
        stream = self._side.xp.cuda.get_current_stream()
        self.array[part].get(out=self.host[part], stream=stream, blocking=False)
        self._sent.record(stream)
        return int(self.host[part].nbytes)

    def read(self, rows: int | None = None) -> Array:
        """The first rows on the host, or all; waits for them."""
        if self._side.on_device:
            self.send(slice(rows))
            self.wait()
        return self.host[:rows]

    def wait(self) -> None:
        """Return once all that was sent is there."""
        if self._side.on_device:
            self._sent.synchronize()
