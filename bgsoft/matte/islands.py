"""Removes small islands of person and fills small holes in a person."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from bgsoft.analysis.cpu import halve
from bgsoft.frame import Array
from bgsoft.matte.geometry import grid_unit

__all__ = ["IslandFilter"]

_SKIRT = 8.0
"""How far, in cells of a 270-row grid, soft alpha may reach from the half-opaque contour."""
_HYSTERESIS = 1.5
"""A region that was kept in the last frame may shrink by this factor before it goes; one that was
not must be larger by it to come. Without it, regions about as large as the limit flicker."""


class IslandFilter:
    """Keeps large connected regions, of person and of background alike.

    Regions are those of the plane cut at one half, on half the grid. Soft alpha is kept within a
    skirt around the regions that stay; beyond it the plane becomes exactly 0 or 255, so haze in
    the background and thin spots deep inside a person go too.

    A filter has the buffers and the regions of one frame. What the frame before kept is asked for
    only where it counts: for regions about as large as the limit.
    """

    def __init__(self, shape: tuple[int, int], min_area: float) -> None:
        """Prepare the filter.

        Args:
            shape: (gh, gw) of the grid.
            min_area: Smallest region that is kept, as a fraction of the frame.
        """
        rows, columns = shape
        half = (-(-rows // 2), -(-columns // 2))
        self._min_cells = min_area * half[0] * half[1]
        radius = max(1, round(_SKIRT / 2.0 * grid_unit(shape)))
        self._kernel = cv2.getStructuringElement(
            cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1)
        )
        self._rim = np.ones((3, 3), np.uint8)
        self._small = np.empty(half, np.uint8)
        self._binary = np.empty(half, np.uint8)
        self._labels = np.empty(half, np.int32)
        self._regions = np.empty((2, *half), np.uint8)
        """Of the person and of the background, those that stay."""
        self._near = np.empty(half, np.uint8)
        self._soft = np.empty(half, np.uint8)
        # Twice the half grid: where a side of the grid is odd, one cell more than that.
        self._limit = np.empty((2 * half[0], 2 * half[1]), np.uint8)

    def apply(self, alpha: Array, before: Callable[[], IslandFilter] | None = None) -> None:
        """Clean a plane in place.

        Args:
            alpha: (gh, gw) uint8; replaced.
            before: Gives the filter of the frame before, another than this. None: there is none.
        """
        rows, columns = alpha.shape
        person, background = self._regions
        halve(alpha, self._small)
        cv2.threshold(self._small, 127, 255, cv2.THRESH_BINARY, dst=self._binary)
        self._keep_large(0, before)
        if self._exceeds(self._small, self._binary, person):
            cv2.min(alpha, self._limit[:rows, :columns], dst=alpha)
        cv2.bitwise_not(person, dst=self._binary)
        self._keep_large(1, before)
        cv2.bitwise_not(self._small, dst=self._small)
        if self._exceeds(self._small, self._binary, background):
            cv2.bitwise_not(self._limit, dst=self._limit)
            cv2.max(alpha, self._limit[:rows, :columns], dst=alpha)

    def _keep_large(self, side: int, before: Callable[[], IslandFilter] | None) -> None:
        """Find the components of the binary plane that stay, and write their region.

        Args:
            side: Whose components they are: 0, the person's; 1, the background's.
            before: Gives the filter of the frame before.
        """
        binary, region = self._binary, self._regions[side]
        connectivity = (8, 4)[side]
        count, _ = cv2.connectedComponents(
            binary, labels=self._labels, connectivity=connectivity, ltype=cv2.CV_32S
        )
        if count == 2 and cv2.countNonZero(binary) >= self._min_cells * _HYSTERESIS:
            np.copyto(region, binary)
            return
        # Counting labels is much cheaper than OpenCV's statistics, which has boxes and centroids.
        labels = self._labels.ravel()
        areas = np.bincount(labels, minlength=count)
        keep = areas >= self._min_cells
        unsure = (areas * _HYSTERESIS >= self._min_cells) & (areas < self._min_cells * _HYSTERESIS)
        unsure[0] = keep[0] = False
        if unsure.any() and before is not None:
            kept_before = before()._regions[side].ravel()
            was_kept = np.bincount(labels, weights=kept_before, minlength=count) / 255.0
            keep[unsure] = (2.0 * was_kept >= areas)[unsure]
        if keep[1:].all():
            np.copyto(region, binary)
            return
        table = np.where(keep, 255, 0).astype(np.uint8)
        np.take(table, self._labels, out=region, mode="clip")

    def _exceeds(self, opacity: Array, binary: Array, region: Array) -> bool:
        """Whether a plane is above the skirted region of those of its components that stay.

        If so, the region with its skirt is written to the limit plane, which covers the grid.

        Args:
            opacity: (h, w) uint8 on half the grid.
            binary: (h, w) uint8, the components; overwritten.
            region: (h, w) uint8, those that stay.
        """
        near = self._near
        cv2.dilate(region, self._kernel, dst=near)
        cv2.subtract(binary, region, dst=binary)
        if cv2.countNonZero(binary):
            # A component that goes must not survive in the skirt of one that stays.
            cv2.dilate(binary, self._rim, dst=self._soft, iterations=3)
            cv2.dilate(region, self._rim, dst=binary)
            cv2.subtract(self._soft, binary, dst=self._soft)
            cv2.subtract(near, self._soft, dst=near)
        cv2.blur(near, (3, 3), dst=self._soft)
        cv2.subtract(opacity, self._soft, dst=near)
        if cv2.countNonZero(near) == 0:
            return False
        size = self._limit.shape[::-1]
        cv2.resize(self._soft, size, dst=self._limit, interpolation=cv2.INTER_LINEAR)
        return True
