"""What is smoothed over time: masks, and an edge that is fitted on the frame."""

from __future__ import annotations

import numpy as np

from bgsoft.frame import Array
from bgsoft.matte.islands import MaskState
from bgsoft.matte.plan import MattePlan
from bgsoft.ops.resize import Resized
from bgsoft.ops.sides import Side


class TemporalFilter:
    """A recursive average per mask sample whose weight depends on what happens there.

    ``state += w · (mask − state)``, with ``w`` between ``1 − strength`` where both the mask and
    the picture are steady (model noise, flicker) and 1 where either changes over a neighbourhood
    (movement), so that moving edges are followed in the same frame. Differences are compared with
    fixed amounts, never stretched to the frame's own extremes: noise stays small. What results is
    brought to opacity by the soft threshold.
    """

    def __init__(self, side: Side, plan: MattePlan) -> None:
        temporal, threshold = plan.temporal, plan.threshold
        self._side, self._plan = side, plan
        self._launch = side.operation("matte_temporal", "temporal_threshold")
        self._tables = (
            side.array(np.concatenate([temporal.mask_ramp, temporal.luma_ramp])),
            side.array(threshold.curve),
        )
        self._radius = temporal.window // 2
        self._numbers = (
            *(self._radius, float(temporal.floor), float(temporal.luma_scale)),
            *(float(threshold.scale), float(threshold.offset)),
        )
        self._shape: tuple[int, int] | None = None

    def apply(
        self,
        mask: Array,
        luma: Array,
        state: MaskState,
        before: MaskState | None,
        opacity: Array,
        flags: Array,
    ) -> None:
        """Average one mask with those before it.

        Args:
            mask: (h, w) float32 in [0, 1].
            luma: (gh, gw) uint8, the picture the mask belongs to.
            state: Mask and sums are filled in.
            before: That of the mask before; None: the mask is taken as it is.
            opacity: (h, w) uint8, filled in.
            flags: Of the frame.
        """
        if self._shape != mask.shape:
            self._allocate(mask.shape)
        last = before or state
        self._launch(
            mask.shape,
            self._side.xp.ascontiguousarray(mask),
            *self._picture.arguments(luma, mask.shape),
            *(last.mask, state.mask, last.luma_sums, state.luma_sums),
            *(*self._tables, opacity, flags, int(before is None)),
            *(*self._numbers, *mask.shape, self._scratch),
        )

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._picture = Resized(self._side, shape, np.uint8)
        size = 2 * shape[0] * shape[1] + 6 * (shape[1] + 2 * self._radius)
        self._scratch = self._side.scratch(size, np.uint8)


class EdgeSmoother:
    """Averages mattes of the frame's size over time, in order, where the picture stands still.

    The fit of an edge follows each picture's noise. ``state += (1 − strength) · (alpha − state)``,
    but never further from alpha than the plan's reach, which is 0 where the picture moves. Nor
    further than alpha is from 0 or 255: what is clear or opaque stays so.
    """

    def __init__(self, side: Side, plan: MattePlan) -> None:
        temporal, shape, frame_shape = plan.temporal, plan.shape, plan.format.luma_shape
        self._measure = side.operation("matte_temporal", "steady_reach")
        self._blend = side.operation("matte_temporal", "steady_alpha")
        reach = side.xp.empty(shape, np.uint8)
        radius = temporal.window // 2
        lines = side.scratch(2 * (shape[1] + 2 * radius), np.uint16)
        self._measure_args = (
            *(side.xp.zeros(shape, np.uint16), side.array(temporal.reach), reach),
            *(radius, float(temporal.luma_scale), *shape, lines),
        )
        shift = plan.factor.bit_length() - 1
        self._state = side.xp.empty(frame_shape, np.uint8)
        self._before = (self._state, reach, shift, float(temporal.floor))
        lines = side.scratch(2 * shape[1] * plan.factor, np.uint16)
        self._after = (*shape, *frame_shape, lines)
        self.fresh = True
        """Earlier frames don't count for the next one."""

    def apply(self, alpha: Array, luma: Array) -> None:
        """Smooth the matte of the next frame.

        Args:
            alpha: (H, W) uint8, replaced.
            luma: (gh, gw) uint8, the picture.
        """
        self._measure(luma.shape, luma, *self._measure_args)
        self._blend(alpha.shape, alpha, *self._before, int(self.fresh), *self._after)
        self.fresh = False
