"""Measures how much of each frame its matte covers."""

from __future__ import annotations

from array import array

import numpy as np

from bgsoft.frame import Array, Matte
from bgsoft.ops.placement import Placement

_BLOCK = 1024
"""Frames of a device whose areas are read together."""
_FIRST_BLOCK = 8
"""The first block, if measuring may end early. Each block is twice as large as the one before, as
reading waits for the device."""


class AreaMeter:
    """Measures mattes of consecutive frames, on the host or a device.

    Args:
        placement: Host or device of the mattes.
        of_all: Measure all frames; False: only until a matte is not empty.
    """

    def __init__(self, placement: Placement, *, of_all: bool = True) -> None:
        self.of_all = of_all
        self._placement = placement
        self._room = _BLOCK if of_all else _FIRST_BLOCK
        self._is_empty = True
        self._block: Array = placement.xp.empty(_BLOCK, np.float32)
        self._count = 0
        self._areas = array("f")

    def add(self, matte: Matte) -> None:
        """Measure the next frame's matte."""
        if self._count == self._room:
            self._read()
            self._room = min(2 * self._room, _BLOCK)
        if not (self.of_all or self._is_empty):
            return
        area = self._block[self._count, ...]
        self._placement.xp.mean(matte.reduced, dtype=np.float32, out=area)
        self._count += 1

    def percent(self) -> list[float]:
        """Return the share of each frame that is covered so far, to a hundredth of a percent."""
        self._read()
        return [*map(_percent, self._areas)]

    def are_empty(self) -> bool:
        """Return whether all mattes so far are empty, to a hundredth of a percent."""
        self._read()
        return self._is_empty

    def _read(self) -> None:
        block = self._block[: self._count]
        areas = (block.get() if self._placement.on_device else block).tolist()
        self._areas.extend(areas)
        self._is_empty = self._is_empty and not any(map(_percent, areas))
        self._count = 0


def _percent(area: float) -> float:
    return round(area / 2.55, 2)
