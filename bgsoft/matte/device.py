"""Steps of the matte that kernels of their own do on a device; see :mod:`bgsoft.matte.steps`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.cuda.device import CudaDevice, pinned_array
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
from bgsoft.matte.steps import MaskState
from bgsoft.ops.resize import Resampling, aligned_resampling, resampling
from bgsoft.ops.sides import device

_RUN = 32
"""Samples that one thread of the box filter makes."""


class MaskPicture:
    """Tables by which luma is taken at the mask's size."""

    def __init__(self, shape: Shape, mask_shape: Shape) -> None:
        tables = resampling(device(), shape, mask_shape, area=False, fixed_point=True)
        self._tables = (shape[1], *tables.args)

    def arguments(self, luma: Array) -> tuple[Any, ...]:
        """What ``temporal_threshold`` takes for (gh, gw) uint8."""
        return luma, *self._tables


class IslandFilter:
    """See :class:`bgsoft.matte.host.IslandFilter`.

    Components are found by union-find with atomics: one launch each to merge labels, to count cells
    and to decide, for the person's components and then for the background's.
    """

    def __init__(self, plan: MattePlan) -> None:
        side = device()
        self._plan = plan
        self._half = half = half_shape(plan.shape)
        self._enlarge = side.operation("components", "opacity_to_grid")
        self._merge, self._count, self._decide = (
            side.operation("components", f"{name}_components")
            for name in ("merge", "count", "decide")
        )
        self._small = cupy.empty(half, np.uint8)
        self._labels = [cupy.empty(half, np.int32) for _ in range(2)]
        self._counters = cupy.empty((4, *half), np.int32)
        self.limits = cupy.empty((2, *half), np.uint8)
        """What alpha must not exceed, and what opacity of the background must not."""
        # Views cost more than launches.
        self._areas, self._kept = list(self._counters[::2]), list(self._counters[1::2])
        self._each_limit = list(self.limits)
        self._mask_shape: Shape | None = None
        if plan.islands is not None:
            spans = half_widths(plan.islands.skirt)
            self._spans = cupy.asarray(spans), len(spans) // 2

    def apply(self, opacity: Array, state: MaskState, flags: Array) -> None:
        """Bring opacity to the grid, and make the limits; six launches."""
        if self._mask_shape != opacity.shape:
            self._mask_shape = opacity.shape
            self._tables = (opacity.shape[1], *self._to_grid(opacity.shape).args)
        planes = state.opacity, self._small, self._labels[0], self._counters
        self._enlarge(self._half, opacity, *self._tables, *planes, *self._plan.shape)
        if self._plan.islands is not None:
            for index in range(2):
                self._keep(index, state, flags)

    def _keep(self, index: int, state: MaskState, flags: Array) -> None:
        """Decide on the components of the person (0) or of the background (1)."""
        plan, half, limits = self._plan, self._half, self._plan.islands
        assert limits is not None
        labels, following = self._labels[index], self._labels[1] if index == 0 else None
        areas, kept = self._areas[index], self._kept[index]
        before = None if state.before is None else state.before.regions[index]
        gap = float(limits.gap) if index == 1 else 0.0
        mask = (gap, state.mask, *state.mask.shape, plan.factor, *plan.format.luma_shape)
        self._merge(half, labels, *half, int(index == 0))
        self._count(half, labels, before, areas, kept, *half, *mask)
        numbers = (*self._spans, limits.sure, limits.low, limits.high, int(before is None))
        planes = (self._small, index, self._each_limit[index], flags, following)
        region = state.regions[index]
        self._decide(half, labels, areas, kept, region, *numbers, *planes, *half)

    def _to_grid(self, shape: Shape) -> Resampling:
        scale = self._plan.mask_scale(shape)
        if scale is None:
            return resampling(device(), shape, self._plan.shape, area=False, fixed_point=True)
        return aligned_resampling(device(), shape, self._plan.shape, scale)


class _Dilation:
    """Grey dilation or erosion by a fractional number of cells; one launch.

    All steps are one window, an octagon; that gives what they give one after the other.
    """

    def __init__(self, plan: DilationPlan) -> None:
        self._shift = device().operation("morphology", "shift_edge")
        steps = len(plan.kernels) - 1
        self._args = (
            *(cupy.asarray(plan.octagons), steps, float(plan.fraction)),
            *(int(plan.outwards), *plan.shape),
        )

    def apply(self, plane: Array, out: Array) -> None:
        """Move the edge: (rows, columns) uint8 planes."""
        self._shift(plane.shape, plane, out, *self._args)


class _Feather:
    """A soft rim outside the person; four launches, five where the rim is wide."""

    def __init__(self, plan: FeatherPlan) -> None:
        side, shape, small = device(), plan.shape, plan.dilation.shape
        self._shape, self._small = shape, small
        self._dilation = _Dilation(plan.dilation)
        self._planes = [cupy.empty(small, np.uint8) for _ in range(2)]
        self._resize = side.operation("morphology", "resize_plane")
        self._blur = side.operation("morphology", "box_blur")
        self._blur_args = (plan.radius, *small)
        self._reduce_args: tuple[Any, ...] | None = None
        if small != shape:
            down = resampling(device(), shape, small, area=True, fixed_point=True)
            self._reduce_args = (shape[1], *down.args, None, self._planes[1], *small)
        up = resampling(device(), small, shape, area=False, fixed_point=True)
        self._enlarge_args = (small[1], *up.args)

    def apply(self, plane: Array, out: Array) -> None:
        """Add the rim: (rows, columns) uint8 planes."""
        first, second = self._planes
        source = plane
        if self._reduce_args is not None:
            self._resize(self._small, plane, *self._reduce_args)
            source = second
        self._dilation.apply(source, first)
        self._blur(self._small, first, second, *self._blur_args)
        self._blur(self._small, second, first, *self._blur_args)
        self._resize(self._shape, first, *self._enlarge_args, plane, out, *self._shape)


class _Copy:
    """Keeps its source for a frame that stands still, where no other step does."""

    def apply(self, plane: Array, out: Array) -> None:
        """Copy a plane."""
        device().copy(plane, out)


def contour_step(plan: ContourPlan) -> _Dilation | _Feather:
    """What moves the edge on purpose; ``apply(plane, out)`` takes planes that are not the same."""
    return _Dilation(plan) if isinstance(plan, DilationPlan) else _Feather(plan)


def grid_steps(plans: Sequence[ContourPlan]) -> list[_Dilation | _Feather | _Copy]:
    """The same on the grid, after the fit, whose own plane must outlive the frame."""
    return [contour_step(plan) for plan in plans] or [_Copy()]


class Crossing:
    """Small masks to the host and back, through pinned memory; the host waits for them.

    Args:
        device: Whose copies are counted.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._copied = cupy.cuda.Event(disable_timing=True)
        self._shape: Shape | None = None

    def download(self, mask: Array) -> NDArray[np.float32]:
        """The mask on the host; overwritten by the next."""
        if self._shape != mask.shape:
            self._shape = mask.shape
            self._mask: NDArray[np.float32] = pinned_array(mask.shape, np.float32)
            self._staged: NDArray[np.uint8] = pinned_array(mask.shape, np.uint8)
            self._small = cupy.empty(mask.shape, np.uint8)
        stream = cupy.cuda.get_current_stream()
        mask.data.copy_to_host_async(self._mask.ctypes.data, self._mask.nbytes, stream)
        self._copied.record(stream)
        self._copied.synchronize()
        self._device.copies.add_d2h(self._mask.nbytes)
        return self._mask

    def upload(self, mask: NDArray[np.uint8]) -> Array:
        """(h, w) uint8 on the device; overwritten by the next."""
        # The last upload has ended: it came before the download that was waited for.
        np.copyto(self._staged, mask)
        stream = cupy.cuda.get_current_stream()
        source, size = self._staged.ctypes.data, self._staged.nbytes
        self._small.data.copy_from_host_async(source, size, stream)
        self._device.copies.add_h2d(size)
        return self._small


class ObsEdge:
    """Steps 5 to 7 of style obs, at the frame's size; see :class:`bgsoft.matte.host.ObsEdge`."""

    def __init__(self, plan: ObsPlan, format: FrameFormat) -> None:
        self._plan = plan
        self._shape = shape = format.luma_shape
        self._background, self._scratch = (cupy.empty(shape, np.uint8) for _ in range(2))
        self._sums = cupy.empty(shape if plan.feather_side else (0, 0), np.int32)
        self._enlarge, self._extreme, self._row_sums, self._column_means, self._invert = (
            device().operation("matte_obs", f"obs_{name}")
            for name in ("enlarge", "extreme", "row_sums", "column_means", "invert")
        )
        self._reducer = alpha_reducer(format, device())
        self._mask_shape: Shape | None = None

    def apply(self, mask: Array, alpha: Array, reduced: Array) -> None:
        """Make a matte, and its reduction to the grid."""
        plan, shape = self._plan, self._shape
        if self._mask_shape != mask.shape:
            self._mask_shape = mask.shape
            tables = resampling(device(), mask.shape, shape, area=False, fixed_point=True)
            self._tables = (mask.shape[1], *tables.args)
        binarise = int(plan.smooth_side > 0)
        self._enlarge(shape, mask, *self._tables, self._background, binarise, *shape)
        self._morph(abs(plan.dilation_px), largest=plan.dilation_px < 0)
        if plan.feather_side:
            self._morph(plan.feather_side // 3, largest=True)
            self._blur(plan.feather_side // 2)
        self._invert(shape, self._background, alpha, *shape)
        self._reducer.reduce(alpha, reduced)

    def _morph(self, reach: int, *, largest: bool) -> None:
        """Extreme over squares: iterated 3×3 is one square, and that is rows, then columns."""
        for along_rows in (1, 0) if reach else ():
            planes = (self._background, self._scratch)
            self._extreme(self._shape, *planes, reach, int(largest), along_rows, *self._shape)
            self._background, self._scratch = self._scratch, self._background

    def _blur(self, radius: int) -> None:
        rows, columns = self._shape
        sizes = (radius, *self._shape)
        self._row_sums((rows, -(-columns // _RUN)), self._background, self._sums, *sizes)
        self._column_means((-(-rows // _RUN), columns), self._sums, self._background, *sizes)
