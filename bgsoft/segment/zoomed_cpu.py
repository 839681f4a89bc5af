"""Planes of the zoomed segmenter on the host: the reference for the device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import halve
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.segment.schedule import CELL, BlendWeights, Box, Cells
from bgsoft.segment.zoomed import ZoomPlanes
from bgsoft.workers import Workers

Plane = NDArray[np.float32]


def _resize_mask(mask: Plane, out: Plane) -> None:
    """Resize a plane, averaging where it becomes smaller both ways."""
    smaller = mask.shape[0] >= out.shape[0] and mask.shape[1] >= out.shape[1]
    method = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    cv2.resize(mask, out.shape[::-1], dst=out, interpolation=method)


@lru_cache(maxsize=64)
def _close_weights(box: Box, grid: tuple[int, int]) -> Plane:
    """(rows, columns) of the box: the close pass's weight, which fades in from inner borders."""
    left, top, right, bottom = box.fade_widths(grid)
    rows, columns = box.shape

    def ramp(count: int, first: float, last: float) -> Plane:
        at = np.arange(count, dtype=np.float32) + np.float32(0.5)
        rise = at / np.float32(first) if first else np.ones(count, np.float32)
        fall = at[::-1] / np.float32(last) if last else np.ones(count, np.float32)
        return np.minimum(np.minimum(rise, fall), np.float32(1.0))

    across = np.float32(box.weight(grid)) * ramp(columns, left, right)
    return np.outer(ramp(rows, top, bottom), across)


class CpuZoomPlanes(ZoomPlanes):
    """Works on the frames of a batch side by side; see :class:`ZoomPlanes`."""

    def __init__(
        self, format: FrameFormat, model: tuple[int, int], workers: Workers, half: float = 0.5
    ) -> None:
        batch = workers.lanes
        super().__init__(format, model, batch, half)
        self._workers = workers
        self._kept = np.zeros((2, self.slots, *self.grid), np.float32)
        self._masks = np.empty((batch, *self.grid), np.float32)
        self._lumas = np.empty((batch, *self._cell_shape), np.float32)
        self._luma = np.empty(self.grid, np.float32)
        rows, columns = format.luma_shape
        self._halves = np.empty((batch, -(-rows // 2), -(-columns // 2)), format.dtype)
        cells = (CELL * side for side in self._cell_shape)
        # One for each frame that is blended: the weights of the whole passes; and what is added.
        self._weights = np.empty((batch, 2, *cells), np.float32)
        self._terms = np.empty((batch, *self.grid), np.float32)

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        for grid, cells in zip(reduced, self._lumas, strict=False):
            np.multiply(grid.luma, self._luma_scale, out=self._luma, dtype=np.float32)
            _average(self._luma, cells)

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        kept = self._kept[network, slot]
        _resize_mask(mask, kept)
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        people = [np.empty(self._cell_shape, np.float32) for _ in masks]
        for mask, cells in zip(masks, people, strict=True):
            _average(mask, cells)
        return lambda: [*self._lumas[:lumas], *people]

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[AnalysisFrame]:
        return self._workers.map(self._crop, frames, boxes)

    def _halved(self, index: int, frame: Frame, luma: Array, place: tuple[slice, slice]) -> Array:
        half = self._halves[index, : -(-luma.shape[0] // 2), : -(-luma.shape[1] // 2)]
        halve(luma, half)
        return half

    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        masks = list(self._masks[first : first + len(blends)])
        self._workers.map(self._blend, blends, close, masks)
        return masks

    def _blend(self, index: int, blend: BlendWeights, close: Array | None, mask: Plane) -> None:
        for each, limits, weights in zip(
            blend.passes, blend.limits, self._weights[index], strict=True
        ):
            cells = each.weight(blend.luma, limits)
            cv2.resize(cells, weights.shape[::-1], dst=weights, interpolation=cv2.INTER_LINEAR)
        total, other = self._weights[index, :, : self.grid[0], : self.grid[1]]
        whole = (self._kept[network, each.slot] for network, each in enumerate(blend.passes))
        term = self._terms[index]
        cv2.multiply(next(whole), total, dst=mask)
        cv2.multiply(next(whole), other, dst=term)
        cv2.add(mask, term, dst=mask)
        cv2.add(total, other, dst=total)
        if blend.box is not None and close is not None:
            self._add_close(blend.box, close, mask, total, term)
        cv2.divide(mask, total, dst=mask, scale=self._lift)
        if self._lift > 1.0:
            np.minimum(mask, np.float32(1.0), out=mask)

    def _add_close(self, box: Box, close: Plane, mask: Plane, total: Plane, term: Plane) -> None:
        inside = (slice(box.top, box.bottom), slice(box.left, box.right))
        weight = _close_weights(box, self.grid)
        resized = term[: box.shape[0], : box.shape[1]]
        _resize_mask(close, resized)
        cv2.multiply(resized, weight, dst=resized)
        cv2.add(mask[inside], resized, dst=mask[inside])
        cv2.add(total[inside], weight, dst=total[inside])


def _average(plane: Plane, cells: Cells) -> None:
    """Means over cells; those that the right and lower edges cut, over what they hold."""
    rows, columns = plane.shape
    down, right = rows // CELL, columns // CELL
    for y, cell_y in (
        (slice(CELL * down), slice(down)),
        (slice(CELL * down, rows), slice(down, None)),
    ):
        for x, cell_x in (
            (slice(CELL * right), slice(right)),
            (slice(CELL * right, columns), slice(right, None)),
        ):
            target = cells[cell_y, cell_x]
            if target.size:
                size = target.shape[::-1]
                cv2.resize(plane[y, x], size, dst=target, interpolation=cv2.INTER_AREA)
