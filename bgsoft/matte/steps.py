"""Steps of the matte that are done differently on the host and on a device.

On the host OpenCV does them (:mod:`bgsoft.matte.host`), on a device kernels of their own
(:mod:`bgsoft.matte.device`): connected components, morphology, box filters. Both modules have the
same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Event
from typing import Any

import numpy as np

from bgsoft.frame import Array
from bgsoft.matte.plan import MattePlan, half_shape
from bgsoft.ops.sides import Side

FLAG_COUNT = 10
SQUARES, UNSURE = 6, 8
"""Places in what kernels leave for each other, as in ``bgsoft/ops/matte.cuh``."""


def steps_of(side: Side) -> Any:
    """The module of a side."""
    if side.on_device:
        from bgsoft.matte import device

        return device
    from bgsoft.matte import host

    return host


def apply_in_turn(steps: Sequence[Any], planes: Sequence[Array]) -> None:
    """Each step from one plane to the next, of which there is one more."""
    for step, (source, target) in zip(steps, pairwise(planes), strict=True):
        step.apply(source, target)


class MaskState:
    """What the filters keep of one mask until the next one has been averaged and cleaned."""

    def __init__(self, side: Side, plan: MattePlan) -> None:
        self._xp = side.xp
        self.mask: Array = self._xp.empty((0, 0), np.float32)
        """(h, w): the mask, averaged over time."""
        self.luma_sums: Array
        """(h, w) uint16: sums of the picture over the temporal window."""
        self.opacity = self._xp.empty(plan.shape, np.uint8)
        """(gh, gw): clean, before the edge is fitted."""
        self.regions = [self._xp.zeros(half_shape(plan.shape), np.uint8) for _ in range(2)]
        """Of the person and of the background, on half the grid: 1 where a component stayed."""
        self.is_clean = Event()
        """Set once opacity and regions are filled in, or never will be."""
        self.before: MaskState | None = None
        """That of the mask before, if it counts."""

    def allocate(self, shape: tuple[int, int]) -> None:
        """Make room for masks of this shape."""
        if self.mask.shape != shape:
            self.mask = self._xp.empty(shape, np.float32)
            self.luma_sums = self._xp.zeros(shape, np.uint16)
