"""Shape of the edge: contour smoothing, moving it in or out, an extra soft rim."""

from __future__ import annotations

import math

import cv2
import numpy as np

from bgsoft.frame import Array
from bgsoft.matte.geometry import grid_unit

__all__ = ["ContourSmoother", "EdgeShift", "Feather"]

_SMOOTH_SIGMA = 2.4
"""Gaussian at smooth = 1, in cells of a 270-row grid; it grows with the square of smooth."""
_EDGE_WIDTH = 4.0
"""Width of an edge's ramp, in the same cells, that smoothing keeps."""


class ContourSmoother:
    """Rounds off ragged contours: a Gaussian, then a steeper ramp that restores the edge width."""

    def __init__(self, shape: tuple[int, int], smooth: float) -> None:
        """Prepare the filter.

        Args:
            shape: (gh, gw) of the grid.
            smooth: Amount, above 0 to 1.
        """
        self._sigma = smooth * smooth * _SMOOTH_SIGMA * grid_unit(shape)
        # A ramp of width w has the variance w²/12; the Gaussian adds its own.
        width = _EDGE_WIDTH * grid_unit(shape)
        self._slope = math.sqrt(width * width + 12.0 * self._sigma**2) / width
        radius = max(1, math.ceil(2.5 * self._sigma))
        self._window = (2 * radius + 1, 2 * radius + 1)
        self._scratch = np.empty(shape, np.uint8)

    def apply(self, alpha: Array) -> None:
        """Smooth a plane in place: (gh, gw) uint8."""
        cv2.GaussianBlur(
            alpha, self._window, self._sigma, dst=self._scratch, borderType=cv2.BORDER_REPLICATE
        )
        offset = 127.5 * (1.0 - self._slope)
        cv2.addWeighted(self._scratch, self._slope, self._scratch, 0.0, offset, dst=alpha)


class EdgeShift:
    """Grey dilation (outwards) or erosion (inwards) by a fractional number of cells.

    Steps of a 3×3 cross and a 3×3 square alternate so that the reach is nearly the same in every
    direction (an octagon); the fraction is a blend of the two nearest whole numbers of steps.
    """

    def __init__(self, shape: tuple[int, int], cells: float) -> None:
        """Prepare the filter.

        Args:
            shape: (gh, gw) of the grid.
            cells: How far to move the edge; > 0 outwards.
        """
        self._outwards = cells > 0
        whole, self._fraction = divmod(abs(cells), 1.0)
        self._steps = int(whole)
        self._cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
        self._square = cv2.getStructuringElement(cv2.MORPH_RECT, (3, 3))
        self._buffers = (np.empty(shape, np.uint8), np.empty(shape, np.uint8))

    def apply(self, alpha: Array) -> None:
        """Shift the edge of a plane in place: (gh, gw) uint8."""
        morph = cv2.dilate if self._outwards else cv2.erode
        source = alpha
        for step in range(self._steps):
            target = self._buffers[step % 2]
            morph(source, self._kernel(step), dst=target)
            source = target
        if self._fraction > 0.0:
            target = self._buffers[self._steps % 2]
            morph(source, self._kernel(self._steps), dst=target)
            cv2.addWeighted(source, 1.0 - self._fraction, target, self._fraction, 0.0, dst=alpha)
        elif source is not alpha:
            np.copyto(alpha, source)

    def _kernel(self, step: int) -> Array:
        # A regular octagon needs the share sqrt(2) − 1 of its steps to be squares.
        share = math.sqrt(2.0) - 1.0
        is_square = math.floor((step + 1) * share) > math.floor(step * share)
        return self._square if is_square else self._cross


class Feather:
    """A soft rim outside the person; nothing inside is lowered."""

    def __init__(self, shape: tuple[int, int], cells: float) -> None:
        """Prepare the filter.

        Args:
            shape: (gh, gw) of the grid.
            cells: Width of the rim, from the contour to where it ends.
        """
        # Moved outwards by half the rim and blurred over the other half, the plane keeps its full
        # value at the old contour and reaches 0 at the rim's end. Wide rims are made on a
        # coarser grid: they are smooth.
        coarse = 1
        while cells / coarse > 8.0:
            coarse *= 2
        rows, columns = shape
        small = (-(-rows // coarse), -(-columns // coarse))
        self._size = (columns, rows)
        self._small_size = small[::-1]
        reach = cells / coarse / 2.0
        self._shift = EdgeShift(small, reach)
        side = 2 * max(1, round(reach / 2.0)) + 1
        self._window = (side, side)
        self._small = np.empty(small, np.uint8)
        self._scratch = np.empty(small, np.uint8)
        self._rim = np.empty(shape, np.uint8)

    def apply(self, alpha: Array) -> None:
        """Add the rim to a plane in place: (gh, gw) uint8."""
        cv2.resize(alpha, self._small_size, dst=self._small, interpolation=cv2.INTER_AREA)
        self._shift.apply(self._small)
        # Two boxes make a quadratic spline: no kink at either end of the rim.
        cv2.blur(self._small, self._window, dst=self._scratch)
        cv2.blur(self._scratch, self._window, dst=self._small)
        cv2.resize(self._small, self._size, dst=self._rim, interpolation=cv2.INTER_LINEAR)
        cv2.max(alpha, self._rim, dst=alpha)
