"""Steps that smooth the matte's contour or move it: OpenCV on the host, kernels on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Array
from bgsoft.ops.placement import Placement
from bgsoft.ops.resize import Resized
from bgsoft.settings.config import MatteConfig

Shape = tuple[int, int]

_SMOOTH_SIGMA = 2.4
"""Gaussian at smooth = 1, in cells of a grid of 270 rows; it grows with the square of smooth."""
_EDGE_WIDTH = 4.0
"""Width of an edge's ramp that smoothing keeps, in the same cells."""


class ContourSmoothing:
    """Rounds ragged contours: a Gaussian, then a ramp that restores the edge's width."""

    def __init__(self, placement: Placement, shape: Shape, amount: float) -> None:
        unit = min(shape) / 270.0
        self._sigma = sigma = amount * amount * _SMOOTH_SIGMA * unit
        self._radius = max(1, math.ceil(2.5 * sigma))
        # A ramp of width w has the variance w²/12; the Gaussian adds its own.
        width = _EDGE_WIDTH * unit
        slope = math.sqrt(width * width + 12.0 * sigma**2) / width
        self._ramp = slope, 127.5 * (1.0 - slope), *shape
        self._blur = None
        if placement.on_device:
            self._blur = placement.operation("morphology", "smooth_contour")
            self._weights = placement.array(gaussian_weights(self._radius, sigma))
        else:
            self._steepen = placement.operation("morphology", "steepen_contour")

    def apply(self, plane: Array, out: Array) -> None:
        """Smooth one (rows, columns) uint8 plane into another."""
        if self._blur is not None:
            self._blur(plane.shape, plane, out, self._weights, self._radius, *self._ramp)
        else:
            size, edge = 2 * self._radius + 1, cv2.BORDER_REPLICATE
            cv2.GaussianBlur(plane, (size, size), self._sigma, dst=out, borderType=edge)
            self._steepen(plane.shape, out, *self._ramp)


def gaussian_weights(radius: int, sigma: float) -> NDArray[np.int32]:
    """Return (2 · radius + 1,) weights in 1/256, as in OpenCV's 8-bit Gaussian."""
    size = 2 * radius + 1
    exact = cv2.getGaussianKernel(size, sigma, cv2.CV_64F).ravel() * 256.0
    weights = np.zeros(size, np.int32)
    # Each weight passes its rounding error on to the next; the middle one takes the rest.
    error = 0.0
    for index in range(radius):
        wanted = exact[index] + error
        weights[index] = weights[size - 1 - index] = round(wanted)
        error = wanted - round(wanted)
    weights[radius] = 256 - weights.sum()
    return weights


class Dilation:
    """Grey dilation, or erosion, by a fractional number of cells.

    Steps of a 3×3 cross and a 3×3 square alternate so that the reach is nearly the same in every
    direction (an octagon). A fraction is a blend of the two nearest whole numbers of steps. A
    device takes one launch: all steps are one window with the same result.

    Args:
        placement: Device of the planes, or the host.
        shape: (rows, columns) of the planes.
        cells: How far the edge moves; negative: inwards (erosion).
    """

    def __init__(self, placement: Placement, shape: Shape, cells: float) -> None:
        whole, self._fraction = divmod(abs(cells), 1.0)
        self._outwards = cells > 0
        self._kernels = octagon_steps(int(whole) + 1)
        self._launch = None
        if placement.on_device:
            self._launch = placement.operation("morphology", "shift_edge")
            numbers = int(whole), self._fraction, int(self._outwards), *shape
            self._arguments = placement.array(octagons(self._kernels)), *numbers

    def apply(self, plane: Array, out: Array) -> None:
        """Move the edge: (rows, columns) uint8 planes."""
        if self._launch is not None:
            self._launch(plane.shape, plane, out, *self._arguments)
            return
        morph = cv2.dilate if self._outwards else cv2.erode
        *whole, last = self._kernels
        for kernel in whole:
            plane = morph(plane, kernel)
        part = self._fraction
        cv2.addWeighted(plane, 1.0 - part, morph(plane, last), part, 0.0, dst=out)


def octagon_steps(count: int) -> list[Array]:
    """Return (3, 3) uint8 kernels: the cross or the square of each step."""
    # A regular octagon needs the share sqrt(2) − 1 of its steps to be squares.
    share = math.sqrt(2.0) - 1.0
    cross, square = (
        cv2.getStructuringElement(kind, (3, 3)) for kind in (cv2.MORPH_CROSS, cv2.MORPH_RECT)
    )
    is_square = (math.floor((step + 1) * share) > math.floor(step * share) for step in range(count))
    return [square if each else cross for each in is_square]


def octagons(kernels: Sequence[Array]) -> Array:
    """Return (2, 2·steps + 1) int32: :func:`half_widths` of all steps but the last, and of all."""
    side = 2 * len(kernels) + 1
    window: Array = np.zeros((side, side), np.uint8)
    window[side // 2, side // 2] = 1
    spans = [half_widths(window)]
    for kernel in kernels:
        window = cv2.dilate(window, kernel)
        spans.append(half_widths(window))
    return np.stack(spans[-2:])


def half_widths(window: Array) -> Array:
    """Return (side,) int32: half the width of each row of a symmetric window; −1 where empty."""
    # A row of 2·n + 1 cells has the half-width n.
    return ((np.count_nonzero(window, axis=1) + 1) // 2 - 1).astype(np.int32)


class Feather:
    """A soft rim outside the person; inside, opacity is not lowered.

    The plane is dilated by half the rim and blurred over the other half. So it keeps its full value
    at the old contour and reaches 0 at the rim's end. Wide rims, which are smooth, are made on a
    coarser grid. A device takes four launches, five for a wide rim.

    Args:
        placement: Device of the planes, or the host.
        shape: (rows, columns) of the planes.
        cells: Width of the rim.
    """

    def __init__(self, placement: Placement, shape: Shape, cells: float) -> None:
        coarse = 1
        while cells / coarse > 8.0:
            coarse *= 2
        reach = cells / coarse / 2.0
        self._placement, self._radius = placement, max(1, round(reach / 2.0))
        self._shape, self._small = shape, (-(-shape[0] // coarse), -(-shape[1] // coarse))
        self._dilation = Dilation(placement, self._small, reach)
        self._planes = [placement.xp.empty(self._small, np.uint8) for _ in range(2)]
        self._shrunk, self._enlarged = (
            Resized(placement, each, np.uint8) for each in (self._small, shape)
        )
        self._resize = placement.operation("morphology", "resize_plane")
        if placement.on_device:
            self._box_blur = placement.operation("morphology", "box_blur")

    def apply(self, plane: Array, out: Array) -> None:
        """Add the rim: (rows, columns) uint8 planes."""
        (first, second), source = self._planes, plane
        if self._small != self._shape:
            source = second
            shrunk = self._shrunk.arguments(plane, self._small, area=True)
            self._resize(self._small, *shrunk, None, 0, source, *self._small)
        self._dilation.apply(source, first)
        # Two box blurs make a quadratic spline: no kink at either end of the rim.
        self._blur(first, second)
        self._blur(second, first)
        enlarged = self._enlarged.arguments(first, self._shape)
        self._resize(self._shape, *enlarged, plane, 0, out, *self._shape)

    def _blur(self, plane: Array, out: Array) -> None:
        if self._placement.on_device:
            self._box_blur(self._small, plane, out, self._radius, *self._small)
        else:
            side = 2 * self._radius + 1
            cv2.blur(plane, (side, side), dst=out)


class ContourSteps:
    """The steps on the contour, in order: smoothing, expansion, feather.

    Args:
        placement: Device of the planes, or the host.
        config: The amounts.
        shape: (rows, columns) of the planes.
        smooths: Whether the contour is smoothed.
        lines: Rows of the planes for the frame's height; 0: the edge is not moved.
    """

    def __init__(
        self,
        placement: Placement,
        config: MatteConfig,
        shape: Shape,
        *,
        smooths: bool,
        lines: float,
    ) -> None:
        self._steps: list[ContourSmoothing | Dilation | Feather] = []
        if smooths and config.smooth > 0:
            self._steps.append(ContourSmoothing(placement, shape, config.smooth))
        if lines and config.expand_pct:
            self._steps.append(Dilation(placement, shape, config.expand_pct * lines / 100.0))
        if lines and config.feather_pct > 0:
            self._steps.append(Feather(placement, shape, config.feather_pct * lines / 100.0))
        self._planes = [placement.xp.empty(shape, np.uint8) for _ in self._steps]

    def source(self, out: Array) -> Array:
        """Return the plane to fill before :meth:`apply`; ``out`` if there are no steps."""
        return self._planes[0] if self._planes else out

    def apply(self, out: Array) -> None:
        """Process the source into a (rows, columns) uint8 plane."""
        for step, (plane, made) in zip(self._steps, pairwise([*self._planes, out]), strict=True):
            step.apply(plane, made)
