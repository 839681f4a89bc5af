"""Islands and holes of the matte, and what is kept of one mask for the next."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any

import cv2
import numpy as np

from bgsoft.analysis.reduce import AreaReducer
from bgsoft.frame import Array
from bgsoft.matte.plan import MattePlan, half_shape, half_widths
from bgsoft.ops.resize import Resized
from bgsoft.ops.sides import Side

FLAG_COUNT = 10
SQUARES, UNSURE = 6, 8
"""Places in what kernels leave for each other, as in ``bgsoft/ops/matte.cuh``."""
_LOST_RIM = 3
"""As there."""


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
        self.cleaning = Lock()
        """Held until opacity and regions are filled in, or never will be."""
        self.before: MaskState | None = None
        """That of the mask before, if it counts."""

    def allocate(self, shape: tuple[int, int]) -> None:
        """Make room for masks of this shape."""
        if self.mask.shape != shape:
            self.mask = self._xp.empty(shape, np.float32)
            self.luma_sums = self._xp.zeros(shape, np.uint16)


class IslandFilter:
    """Opacity on the grid, and the limits by which it keeps large connected regions.

    Of person and of background alike. Regions are those of the plane cut at one half, on half the
    grid. A small hole in a person is kept, too, where the mask is sure of background somewhere in
    it. Soft alpha is kept within a skirt around the regions that stay; beyond it the plane becomes
    exactly 0 or 255, so haze in the background and thin spots deep inside a person go too.

    OpenCV finds components on the host. On a device that is union-find with atomics: one launch
    each to merge labels, to count cells and to decide, for the person's components and then for the
    background's.
    """

    def __init__(self, side: Side, plan: MattePlan) -> None:
        self._side, self._plan, xp = side, plan, side.xp
        self._half = half = half_shape(plan.shape)
        self._resized = Resized(side, plan.shape, np.uint8)
        self._scale = lru_cache(1)(plan.mask_scale)
        self._small = xp.empty(half, np.uint8)
        self._labels = [xp.empty(half, np.int32) for _ in range(2)]
        self.limits = xp.empty((2, *half), np.uint8)
        """What alpha must not exceed, and what opacity of the background must not."""
        # Views cost more than launches.
        self._each_limit = list(self.limits)
        islands = plan.islands
        spans = np.zeros(1, np.int32) if islands is None else half_widths(islands.skirt)
        reach = len(spans) // 2
        # Of the person and of the background; then what decides on both.
        self._gaps = 0.0, 0.0 if islands is None else float(islands.gap)
        self._frame = plan.factor, *plan.format.luma_shape
        self._limits: tuple[Any, ...] = side.array(spans), reach
        if islands is not None:
            self._limits += islands.sure, islands.low, islands.high
        if side.on_device:
            self._enlarge, self._merge, self._count, self._decide = (
                side.operation("components", name)
                for name in (
                    *("opacity_to_grid", "merge_components"),
                    *("count_components", "decide_components"),
                )
            )
            self._counters = xp.empty((4, *half), np.int32)
            self._areas, self._kept = list(self._counters[::2]), list(self._counters[1::2])
            return
        self._keep = side.operation("components", "keep_components")
        self._halve = AreaReducer(plan.shape, 2)
        self._binary, self._rest = np.empty((2, *half), np.uint8)
        cells, margin = half[0] * half[1], max(reach, _LOST_RIM) + 1
        self._counters = np.empty(2 * (cells + 1), np.int32)
        padded = (half[0] + 2 * margin) * (half[1] + 2 * margin)
        self._scratch = np.empty(5 * padded + cells + 1, np.uint8)

    def apply(self, opacity: Array, state: MaskState, flags: Array) -> None:
        """Bring opacity to the grid, centres aligned, and make the limits.

        What the frame before kept is waited for only where it counts: for regions about as large as
        the limit.

        Args:
            opacity: (h, w) uint8, of the mask's size.
            state: Its mask is read; opacity and regions are filled in.
            flags: Say afterwards which limits are exceeded.
        """
        shape = self._plan.shape
        scale = self._scale(opacity.shape)
        enlarged = self._resized.arguments(opacity, shape, scale=scale)
        if self._side.on_device:
            planes = state.opacity, self._small, self._labels[0], self._counters
            self._enlarge(self._half, *enlarged, *planes, *shape)
        else:
            state.opacity[...] = enlarged[0]
        if self._plan.islands is None:
            return
        if self._side.on_device:
            for index in range(2):
                self._keep_on_device(index, state, flags)
        else:
            self._halve.reduce(state.opacity, self._small)
            cv2.threshold(self._small, 127, 1, cv2.THRESH_BINARY, dst=self._binary)
            for index, (binary, diagonal) in enumerate(((self._binary, 8), (self._rest, 4))):
                self._keep_on_host(index, binary, diagonal, state, flags)

    def _keep_on_device(self, index: int, state: MaskState, flags: Array) -> None:
        """Decide on the components of the person (0) or of the background (1)."""
        half, labels = self._half, self._labels[index]
        following = self._labels[1] if index == 0 else None
        areas, kept = self._areas[index], self._kept[index]
        before = None if state.before is None else state.before.regions[index]
        self._merge(half, labels, *half, int(index == 0))
        mask = (state.mask, *state.mask.shape, *self._frame)
        self._count(half, labels, before, areas, kept, *half, self._gaps[index], *mask)
        planes = (self._small, index, self._each_limit[index], flags, following)
        region = state.regions[index]
        first = int(state.before is None)
        self._decide(half, labels, areas, kept, region, *self._limits, first, *planes, *half)

    def _keep_on_host(
        self, index: int, binary: Array, connectivity: int, state: MaskState, flags: Array
    ) -> None:
        labels, before = self._labels[0], state.before
        count, _ = cv2.connectedComponents(
            binary, labels=labels, connectivity=connectivity, ltype=cv2.CV_32S
        )
        after = (
            *(state.mask if index == 1 else None, self._gaps[index], *state.mask.shape),
            *(*self._frame, *self._limits, int(before is None)),
            *(self._small, index, state.regions[index]),
            *(self._rest, self._each_limit[index], flags, *self._half, self._scratch),
        )
        self._keep(self._half, labels, count, self._counters, None, *after)
        if flags[UNSURE]:
            assert before is not None
            with before.cleaning:
                kept = before.regions[index]
            self._keep(self._half, labels, count, self._counters, kept, *after)
