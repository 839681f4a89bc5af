"""Steps of the matte that OpenCV does on the host; see :mod:`bgsoft.matte.steps`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from bgsoft.analysis.reduce import AreaReducer, alpha_reducer
from bgsoft.frame import Array, FrameFormat
from bgsoft.matte.plan import (
    ContourPlan,
    DilationPlan,
    FeatherPlan,
    MattePlan,
    ObsPlan,
    Shape,
    half_shape,
    half_widths,
)
from bgsoft.matte.steps import UNSURE, MaskState
from bgsoft.ops.sides import HOST

_LOST_RIM = 3
"""As in ``bgsoft/ops/matte.cuh``."""


class MaskPicture:
    """Luma at the mask's size."""

    def __init__(self, shape: Shape, mask_shape: Shape) -> None:
        self._luma = np.empty(mask_shape, np.uint8)

    def arguments(self, luma: Array) -> tuple[Any, ...]:
        """What ``temporal_threshold`` takes for (gh, gw) uint8: without tables, of its size."""
        size = self._luma.shape[::-1]
        cv2.resize(luma, size, dst=self._luma, interpolation=cv2.INTER_LINEAR)
        return self._luma, size[0], None, 0, None, 0, 0


class IslandFilter:
    """Opacity on the grid, and the limits by which it keeps large connected regions.

    Of person and of background alike. Regions are those of the plane cut at one half, on half the
    grid. A small hole in a person is kept, too, where the mask is sure of background somewhere in
    it. Soft alpha is kept within a skirt around the regions that stay; beyond it the plane becomes
    exactly 0 or 255, so haze in the background and thin spots deep inside a person go too.
    """

    def __init__(self, plan: MattePlan) -> None:
        self._plan = plan
        self._half = half = half_shape(plan.shape)
        self.limits = np.empty((2, *half), np.uint8)
        """What alpha must not exceed, and what opacity of the background must not."""
        if plan.islands is None:
            return
        self._keep = HOST.operation("components", "keep_components")
        self._halve = AreaReducer(plan.shape, 2)
        self._small, self._binary, self._rest = np.empty((3, *half), np.uint8)
        self._labels = np.empty(half, np.int32)
        self._counters = np.empty(2 * (half[0] * half[1] + 1), np.int32)
        spans = half_widths(plan.islands.skirt)
        radius = len(spans) // 2
        margin = max(radius, _LOST_RIM) + 1
        size = 5 * (half[0] + 2 * margin) * (half[1] + 2 * margin) + half[0] * half[1] + 1
        self._scratch = np.empty(size, np.uint8)
        limits = plan.islands
        self._numbers = spans, radius, limits.sure, limits.low, limits.high

    def apply(self, opacity: Array, state: MaskState, flags: Array) -> None:
        """Bring opacity to the grid, and make the limits.

        What the frame before kept is waited for only where it counts: for regions about as large as
        the limit.

        Args:
            opacity: (h, w) uint8, of the mask's size.
            state: Its mask is read; opacity and regions are filled in.
            flags: Say afterwards which limits are exceeded.
        """
        to_grid(opacity, self._plan.mask_scale(opacity.shape), state.opacity)
        if self._plan.islands is None:
            return
        self._halve.reduce(state.opacity, self._small)
        cv2.threshold(self._small, 127, 1, cv2.THRESH_BINARY, dst=self._binary)
        self._decide(0, self._binary, 8, state, flags)
        self._decide(1, self._rest, 4, state, flags)

    def _decide(
        self, index: int, binary: Array, connectivity: int, state: MaskState, flags: Array
    ) -> None:
        """Find the components of the person (0) or of the background (1) that stay."""
        count, _ = cv2.connectedComponents(
            binary, labels=self._labels, connectivity=connectivity, ltype=cv2.CV_32S
        )
        plan = self._plan
        assert plan.islands is not None
        gaps = (None, 0.0) if index == 0 else (state.mask, float(plan.islands.gap))
        before = state.before
        after = (
            *(*gaps, *state.mask.shape, plan.factor, *plan.format.luma_shape, *self._numbers),
            *(int(before is None), self._small, index, state.regions[index]),
            *(self._rest, self.limits[index], flags, *self._half, self._scratch),
        )
        self._keep(self._half, self._labels, count, self._counters, None, *after)
        if flags[UNSURE]:
            assert before is not None
            before.is_clean.wait()
            kept = before.regions[index]
            self._keep(self._half, self._labels, count, self._counters, kept, *after)


def to_grid(plane: Array, scale: tuple[float, float] | None, out: Array) -> None:
    """Enlarge (or reduce) a plane of the model's size to the grid: bilinear, centres aligned.

    Args:
        plane: (h, w) uint8 or float32, covering the frame.
        scale: :meth:`MattePlan.mask_scale` of its shape.
        out: (gh, gw) of the same dtype; filled.
    """
    size = out.shape[::-1]
    if scale is not None:
        y, x = scale
        # Centre of cell i is (i + 1/2)·scale in the mask's units, whose samples sit at 1/2.
        matrix = np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5]], np.float64)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        border = cv2.BORDER_REPLICATE
        cv2.warpAffine(plane, matrix, size, dst=out, flags=flags, borderMode=border)
    else:
        cv2.resize(plane, size, dst=out, interpolation=cv2.INTER_LINEAR)


class _Dilation:
    """Grey dilation, or erosion, by a fractional number of cells."""

    def __init__(self, plan: DilationPlan) -> None:
        self._plan = plan
        self._morph = cv2.dilate if plan.outwards else cv2.erode
        self._buffers = np.empty((2, *plan.shape), np.uint8)

    def apply(self, plane: Array, out: Array) -> None:
        """Move the edge: (rows, columns) uint8 planes."""
        *whole, last = self._plan.kernels
        fraction = self._plan.fraction
        source = plane
        for step, kernel in enumerate(whole):
            target = self._buffers[step % 2]
            self._morph(source, kernel, dst=target)
            source = target
        if fraction > 0.0:
            target = self._buffers[len(whole) % 2]
            self._morph(source, last, dst=target)
            cv2.addWeighted(source, 1.0 - fraction, target, fraction, 0.0, dst=out)
        else:
            np.copyto(out, source)


class _Feather:
    """A soft rim outside the person; nothing inside is lowered."""

    def __init__(self, plan: FeatherPlan) -> None:
        self._dilation = _Dilation(plan.dilation)
        self._window = (2 * plan.radius + 1, 2 * plan.radius + 1)
        self._small, self._scratch = np.empty((2, *plan.dilation.shape), np.uint8)
        self._rim = np.empty(plan.shape, np.uint8)

    def apply(self, plane: Array, out: Array) -> None:
        """Add the rim: (rows, columns) uint8 planes."""
        small, size = self._small, self._rim.shape[::-1]
        cv2.resize(plane, small.shape[::-1], dst=small, interpolation=cv2.INTER_AREA)
        self._dilation.apply(small, small)
        # Two boxes make a quadratic spline: no kink at either end of the rim.
        cv2.blur(small, self._window, dst=self._scratch)
        cv2.blur(self._scratch, self._window, dst=small)
        cv2.resize(small, size, dst=self._rim, interpolation=cv2.INTER_LINEAR)
        cv2.max(plane, self._rim, dst=out)


def contour_step(plan: ContourPlan) -> _Dilation | _Feather:
    """What moves the edge on purpose; ``apply(plane, out)`` takes planes that are not the same."""
    return _Dilation(plan) if isinstance(plan, DilationPlan) else _Feather(plan)


def grid_steps(plans: Sequence[ContourPlan]) -> list[_Dilation | _Feather]:
    """The same on the grid, after the fit."""
    return [contour_step(plan) for plan in plans]


class Crossing:
    """Small masks to the host and back: on the host they are there."""

    def __init__(self, device: None) -> None:
        pass

    def download(self, mask: Array) -> Array:
        return mask

    def upload(self, mask: Array) -> Array:
        # The next mask is made in the same plane, while this one may still be held.
        return mask.copy()


class ObsEdge:
    """Steps 5 to 7 of style obs, at the frame's size; see :mod:`bgsoft.matte.obs`."""

    def __init__(self, plan: ObsPlan, format: FrameFormat) -> None:
        self._plan = plan
        self._kernel = np.ones((3, 3), np.uint8)
        self._background, self._scratch = np.empty((2, *format.luma_shape), np.uint8)
        self._reducer = alpha_reducer(format, HOST)

    def apply(self, mask: Array, alpha: Array, reduced: Array) -> None:
        """Make a matte, and its reduction to the grid.

        Args:
            mask: (h, w) uint8, the background of the model's size.
            alpha: (H, W) uint8, written.
            reduced: (gh, gw) uint8, written.
        """
        plan, background = self._plan, self._background
        size = background.shape[::-1]
        cv2.resize(mask, size, dst=background, interpolation=cv2.INTER_LINEAR)
        if plan.smooth_side:
            cv2.threshold(background, 128, 255, cv2.THRESH_BINARY, dst=background)
        grow = cv2.MORPH_ERODE if plan.dilation_px > 0 else cv2.MORPH_DILATE
        self._morph(grow, abs(plan.dilation_px))
        side = plan.feather_side
        if side:
            self._morph(cv2.MORPH_DILATE, side // 3)
            cv2.blur(self._background, (side, side), dst=self._scratch)
            self._swap()
        cv2.bitwise_not(self._background, dst=alpha)
        self._reducer.reduce(alpha, reduced)

    def _morph(self, operation: int, times: int) -> None:
        if times:
            background, scratch = self._background, self._scratch
            cv2.morphologyEx(background, operation, self._kernel, dst=scratch, iterations=times)
            self._swap()

    def _swap(self) -> None:
        self._background, self._scratch = self._scratch, self._background
