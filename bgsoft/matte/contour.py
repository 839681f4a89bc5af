"""Steps that move the matte's edge on purpose: OpenCV's on the host, kernels on a device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np

from bgsoft.frame import Array
from bgsoft.matte.plan import ContourPlan, DilationPlan, FeatherPlan
from bgsoft.ops.resize import Resized
from bgsoft.ops.sides import Side


class Dilation:
    """Grey dilation, or erosion, by a fractional number of cells.

    On a device one launch: all steps are one window, an octagon; that gives what they give one
    after the other.
    """

    def __init__(self, side: Side, plan: DilationPlan) -> None:
        self._side, self._plan = side, plan
        if side.on_device:
            self._shift = side.operation("morphology", "shift_edge")
            steps, outwards = len(plan.kernels) - 1, int(plan.outwards)
            numbers = steps, float(plan.fraction), outwards, *plan.shape
            self._arguments = side.array(plan.octagons), *numbers
        else:
            self._buffers = np.empty((2, *plan.shape), np.uint8)

    def apply(self, plane: Array, out: Array) -> None:
        """Move the edge: (rows, columns) uint8 planes."""
        if self._side.on_device:
            self._shift(plane.shape, plane, out, *self._arguments)
            return
        morph = cv2.dilate if self._plan.outwards else cv2.erode
        *whole, last = self._plan.kernels
        fraction = self._plan.fraction
        source = plane
        for step, kernel in enumerate(whole):
            target = self._buffers[step % 2]
            morph(source, kernel, dst=target)
            source = target
        if fraction > 0.0:
            target = self._buffers[len(whole) % 2]
            morph(source, last, dst=target)
            cv2.addWeighted(source, 1.0 - fraction, target, fraction, 0.0, dst=out)
        else:
            np.copyto(out, source)


class Feather:
    """A soft rim outside the person, inside of which nothing is lowered.

    On a device four launches, five where the rim is wide.
    """

    def __init__(self, side: Side, plan: FeatherPlan) -> None:
        self._side, self._radius = side, plan.radius
        self._shape, self._small = plan.shape, plan.dilation.shape
        self._dilation = Dilation(side, plan.dilation)
        self._planes = [side.xp.empty(self._small, np.uint8) for _ in range(2)]
        self._shrunk, self._enlarged = (
            Resized(side, shape, np.uint8) for shape in (self._small, self._shape)
        )
        self._resize = side.operation("morphology", "resize_plane")
        if side.on_device:
            self._box_blur = side.operation("morphology", "box_blur")

    def apply(self, plane: Array, out: Array) -> None:
        """Add the rim: (rows, columns) uint8 planes."""
        (first, second), source = self._planes, plane
        if self._small != self._shape:
            source = second
            shrunk = self._shrunk.arguments(plane, self._small, area=True)
            self._resize(self._small, *shrunk, None, 0, source, *self._small)
        self._dilation.apply(source, first)
        # Two boxes make a quadratic spline: no kink at either end of the rim.
        self._blur(first, second)
        self._blur(second, first)
        enlarged = self._enlarged.arguments(first, self._shape)
        self._resize(self._shape, *enlarged, plane, 0, out, *self._shape)

    def _blur(self, plane: Array, out: Array) -> None:
        if self._side.on_device:
            self._box_blur(self._small, plane, out, self._radius, 0, *self._small)
        else:
            side = 2 * self._radius + 1
            cv2.blur(plane, (side, side), dst=out)


class _Copy:
    """Keeps its source for a frame that stands still, where no other step does."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def apply(self, plane: Array, out: Array) -> None:
        self._side.copy(plane, out)


Step = Dilation | Feather | _Copy


def contour_step(side: Side, plan: ContourPlan) -> Step:
    """What moves the edge on purpose; ``apply(plane, out)`` takes planes that are not the same."""
    return Dilation(side, plan) if isinstance(plan, DilationPlan) else Feather(side, plan)


def grid_steps(side: Side, plans: Sequence[ContourPlan]) -> list[Step]:
    """The same on the grid, after the fit, whose own plane must outlive the frame on a device."""
    steps = [contour_step(side, plan) for plan in plans]
    return steps or ([_Copy(side)] if side.on_device else [])


def apply_in_turn(steps: Sequence[Step], planes: Sequence[Array]) -> None:
    """Each step from one plane to the next, of which there is one more."""
    for step, (source, target) in zip(steps, pairwise(planes), strict=True):
        step.apply(source, target)
