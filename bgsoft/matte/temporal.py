"""Smoothing over time: of masks, and of an edge that is fitted on the frame."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.frame import Array, FrameFormat
from bgsoft.matte.islands import MaskState
from bgsoft.ops.placement import Placement
from bgsoft.ops.resize import NO_TABLES, Resized
from bgsoft.settings.config import MatteConfig

_WINDOW = 5, 5
"""Box, in samples, over which changes are averaged; the kernels contain it too."""


class TemporalFilter:
    """A recursive average per mask sample whose weight depends on what happens there.

    ``state += w · (mask − state)``. ``w`` is between ``1 − strength``, where mask and picture are
    steady (model noise, flicker), and 1, where either changes over a neighbourhood (movement). So
    moving edges follow in the same frame. Differences are compared with fixed amounts, never
    stretched to the frame's own extremes: noise stays small. The soft threshold then gives opacity.
    """

    def __init__(self, placement: Placement, config: MatteConfig) -> None:
        self._placement, self._follows = placement, config.temporal > 0.0
        self._average = placement.operation("matte_temporal", "average_mask")
        if not placement.on_device:
            self._change = placement.operation("matte_temporal", "mask_changes")
        scale, offset = soft_step(config.threshold, config.softness)
        shaped = int(config.threshold is not None)
        self._numbers = 1.0 - config.temporal, scale, offset, shaped
        self._shape: tuple[int, int] | None = None

    def apply(
        self, mask: Array, luma: Array, state: MaskState, before: MaskState | None, opacity: Array
    ) -> None:
        """Average one mask with earlier ones.

        Args:
            mask: (h, w) float32 in [0, 1].
            luma: (gh, gw) uint8, the picture the mask belongs to.
            state: State whose mask and sums are written.
            before: State of the mask before; None: the mask is used unchanged.
            opacity: (h, w) uint8, written.
        """
        shape = mask.shape
        if self._shape != shape:
            self._shape = shape
            self._resized = Resized(self._placement, shape, np.uint8)
            self._changes: Any = self._placement.scratch(shape, np.uint8)
            self._change_sums = self._placement.scratch(shape, np.uint16)
        mask = self._placement.xp.ascontiguousarray(mask)
        follows = self._follows and before is not None
        last = before or state
        picture: tuple[Any, ...] = luma, 0, *NO_TABLES
        if self._follows:
            picture = self._resized.arguments(luma, shape)
        if self._follows and not self._placement.on_device:
            cv2.boxFilter(picture[0], cv2.CV_16U, _WINDOW, state.luma_sums, normalize=False)
            if follows:
                self._change(shape, mask, last.mask, self._changes, *shape)
                changes, sums = self._changes, self._change_sums
                cv2.boxFilter(changes, cv2.CV_16U, _WINDOW, sums, normalize=False)
        masks, sums = (last.mask, state.mask), (last.luma_sums, state.luma_sums)
        planes = mask, *picture, *masks, self._change_sums, *sums
        self._average(shape, *planes, opacity, int(follows), *self._numbers, *shape)


def soft_step(threshold: float | None, softness: float) -> tuple[float, float]:
    """Return the scale and offset from mask values to opacity of 0 to 255.

    Opacity rises from ``threshold - h`` to ``threshold + h``, where ``h`` is ``softness`` times the
    distance from the threshold to the nearer end of [0, 1]. It is 0 below, 255 above, and one half
    at the threshold. Without a threshold, opacity is the mask value.
    """
    middle = 0.5 if threshold is None else threshold
    half = 0.5 if threshold is None else softness * min(threshold, 1.0 - threshold)
    # At least 1/256 of the range wide, so that the scale stays finite for a hard step.
    half = max(half, 1.0 / 512.0)
    scale = 255.0 / (2.0 * half)
    return scale, -(middle - half) * scale


class EdgeSmoother:
    """Averages mattes of the frame's size over time where the picture is still; call in order.

    The fit of an edge follows each picture's noise. ``state += (1 − strength) · (alpha − state)``.
    The state is never further from alpha than a reach, which is 0 where the picture moves. Nor is
    it further than alpha is from 0 or 255, so clear and opaque samples are unchanged.
    """

    def __init__(self, placement: Placement, strength: float, format: FrameFormat) -> None:
        factor = analysis_factor(format.width, format.height)
        shape, frame_shape = analysis_shape(format.width, format.height), format.luma_shape
        self._on_device = placement.on_device
        self._measure = placement.operation("matte_temporal", "steady_reach")
        self._blend = placement.operation("matte_temporal", "steady_alpha")
        self._now, self._last = (placement.xp.zeros(shape, np.uint16) for _ in range(2))
        reach = placement.xp.empty(shape, np.uint8)
        self._measure_args = reach, *shape
        self._state = placement.xp.empty(frame_shape, np.uint8)
        self._before = self._state, reach, factor.bit_length() - 1, 1.0 - strength
        self._after = *shape, *frame_shape, placement.scratch(2 * shape[1] * factor, np.uint16)
        self.fresh = True
        """Whether the next frame ignores earlier ones."""

    def apply(self, alpha: Array, luma: Array) -> None:
        """Smooth the matte of the next frame.

        Args:
            alpha: (H, W) uint8, replaced.
            luma: (gh, gw) uint8, the picture.
        """
        if not self._on_device:
            cv2.boxFilter(luma, cv2.CV_16U, _WINDOW, self._now, normalize=False)
        self._measure(luma.shape, luma, self._now, self._last, *self._measure_args)
        self._now, self._last = self._last, self._now
        self._blend(alpha.shape, alpha, *self._before, int(self.fresh), *self._after)
        self.fresh = False
