"""Measures how much of each frame its matte covers."""

from __future__ import annotations

from array import array

import numpy as np

from bgsoft.frame import Array, Matte
from bgsoft.ops.placement import Placement

_BLOCK = 1024
"""Frames of a device whose areas are read together."""


class AreaMeter:
    """Measures mattes of consecutive frames, on the host or a device.

    Args:
        placement: Host or device of the mattes.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._block: Array = placement.xp.empty(_BLOCK, np.float32)
        self._count = 0
        self._areas = array("f")

    def add(self, matte: Matte) -> None:
        """Measure the next frame's matte."""
        if self._count == _BLOCK:
            self._read()
        area = self._block[self._count, ...]
        self._placement.xp.mean(matte.reduced, dtype=np.float32, out=area)
        self._count += 1

    def percent(self) -> list[float]:
        """Return the share of each frame that is covered so far, to a hundredth of a percent."""
        self._read()
        return [round(area / 2.55, 2) for area in self._areas]

    def _read(self) -> None:
        block = self._block[: self._count]
        self._areas.extend((block.get() if self._placement.on_device else block).tolist())
        self._count = 0
