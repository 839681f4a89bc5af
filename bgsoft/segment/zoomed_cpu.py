"""Planes of the zoomed segmenter on the host: the reference for the device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.cpu import halve
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.segment.schedule import (
    CELL,
    BlendWeights,
    Box,
    Cells,
    cell_shape,
    fade_widths,
    pass_weight,
)
from bgsoft.segment.zoomed import ZoomSide
from bgsoft.workers import Workers

_WEIGHT = 2.0
"""Of the close pass, against 1 of each whole one; where the box is the frame, 1, too."""
_SMALL, _MOST_WEIGHT = 0.1, 8.0
"""Share of the frame below which a box's close look counts the more, the smaller it is, up to this
much: of small figures the whole passes see nothing, and that is no evidence."""


def is_halved(shape: tuple[int, int], model: tuple[int, int]) -> bool:
    """Whether a crop's luma is averaged over 2×2 samples before it is sampled for a model.

    Bilinear sampling reaches as far as it goes without, and averaging from there on takes OpenCV
    ten times as long.
    """
    return shape[0] >= 2 * model[0] and shape[1] >= 2 * model[1]


def resize_mask(mask: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Resize a plane, averaging where it becomes smaller both ways.

    Args:
        mask: (h, w).
        out: (rows, columns); filled.
    """
    smaller = mask.shape[0] >= out.shape[0] and mask.shape[1] >= out.shape[1]
    method = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    cv2.resize(mask, out.shape[::-1], dst=out, interpolation=method)


def close_weight(box: Box, grid: tuple[int, int]) -> float:
    """Of a close pass, where it has faded in."""
    if box.shape == grid:
        return 1.0
    share = box.shape[0] * box.shape[1] / (grid[0] * grid[1])
    return min(_MOST_WEIGHT, _WEIGHT * max(1.0, _SMALL / share))


@lru_cache(maxsize=64)
def close_weights(box: Box, grid: tuple[int, int]) -> NDArray[np.float32]:
    """(rows, columns) of the box: the close look's weight, which fades in from inner borders."""
    left, top, right, bottom = fade_widths(box, grid)
    rows, columns = box.shape

    def ramp(count: int, first: float, last: float) -> NDArray[np.float32]:
        at = np.arange(count, dtype=np.float32) + np.float32(0.5)
        rise = at / np.float32(first) if first else np.ones(count, np.float32)
        fall = at[::-1] / np.float32(last) if last else np.ones(count, np.float32)
        return np.minimum(np.minimum(rise, fall), np.float32(1.0))

    across = np.float32(close_weight(box, grid)) * ramp(columns, left, right)
    return np.outer(ramp(rows, top, bottom), across)


class CpuZoomSide(ZoomSide):
    """Works on the frames of a batch side by side.

    Args:
        format: Format of the frames.
        model: (rows, columns) of the general model's input.
        workers: What does it; a lane a frame.
        half: The mean of all passes that becomes 0.5.
    """

    def __init__(
        self,
        format: FrameFormat,
        model: tuple[int, int],
        workers: Workers,
        half: float = 0.5,
    ) -> None:
        self._format = format
        self._workers = workers
        lanes = workers.lanes
        self.slots = 2 * lanes + 1
        grid = analysis_shape(format.width, format.height)
        self._kept = np.zeros((2, self.slots, *grid), np.float32)
        self._masks = np.empty((lanes, *grid), np.float32)
        self._cell_shape = cell_shape(grid)
        self._lumas = np.empty((lanes, *self._cell_shape), np.float32)
        self._luma = np.empty(grid, np.float32)
        self._lanes = [_Scratch(format, model, half) for _ in range(lanes)]

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        # P010 holds its code values in the high bits, so 8-bit code is the sample over 256.
        scale = 1.0 if self._format.bit_depth == 8 else 1.0 / 256.0
        for grid, cells in zip(reduced, self._lumas, strict=False):
            np.multiply(grid.luma, np.float32(scale), out=self._luma, dtype=np.float32)
            _average(self._luma, cells)

    def apart(self) -> AbstractContextManager[None]:
        return nullcontext()

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        kept = self._kept[network, slot]
        resize_mask(mask, kept)
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        people = [np.empty(self._cell_shape, np.float32) for _ in masks]
        for mask, cells in zip(masks, people, strict=True):
            _average(mask, cells)
        return lambda: [*self._lumas[:lumas], *people]

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[AnalysisFrame]:
        return self._workers.map(self._crop, frames, boxes)

    def _crop(self, lane: int, frame: Frame, box: Box) -> AnalysisFrame:
        return self._lanes[lane].crop(frame, box)

    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        masks = list(self._masks[first : first + len(blends)])
        self._workers.map(self._blend, blends, close, masks)
        return masks

    def _blend(self, lane: int, weights: BlendWeights, close: Array | None, mask: Array) -> None:
        whole = [self._kept[network, each.slot] for network, each in enumerate(weights.passes)]
        self._lanes[lane].blend(weights, whole, close, mask)


def _average(plane: NDArray[np.float32], cells: Cells) -> None:
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


class _Scratch:
    """The buffers of one frame."""

    def __init__(self, format: FrameFormat, model: tuple[int, int], half: float) -> None:
        self._format = format
        self._model = model
        self._lift = 0.5 / half
        rows, columns = format.luma_shape
        self._half = np.empty((-(-rows // 2), -(-columns // 2)), format.dtype)
        self._grid = analysis_shape(format.width, format.height)
        rows, columns = cell_shape(self._grid)
        self._weights = np.empty((2, CELL * rows, CELL * columns), np.float32)
        self._term, self._close = (np.empty(self._grid, np.float32) for _ in range(2))

    def crop(self, frame: Frame, box: Box) -> AnalysisFrame:
        left, top, right, bottom = box.in_pixels(self._format)
        luma = frame.luma[top:bottom, left:right]
        chroma = frame.chroma[top // 2 : -(-bottom // 2), left // 2 : -(-right // 2)]
        if not is_halved(luma.shape, self._model):
            return AnalysisFrame(1, luma, chroma)
        half = self._half[: -(-luma.shape[0] // 2), : -(-luma.shape[1] // 2)]
        halve(luma, half)
        return AnalysisFrame(2, half, chroma)

    def blend(
        self,
        weights: BlendWeights,
        whole: Sequence[NDArray[np.float32]],
        close: Array | None,
        mask: NDArray[np.float32],
    ) -> None:
        term = self._term
        size = self._weights.shape[:0:-1]
        each = zip(weights.passes, weights.limits, self._weights, strict=True)
        for whole_pass, limits, target in each:
            cells = pass_weight(whole_pass.luma, weights.luma, limits)
            cv2.resize(cells, size, dst=target, interpolation=cv2.INTER_LINEAR)
        maps = self._weights[:, : self._grid[0], : self._grid[1]]
        cv2.multiply(whole[0], maps[0], dst=mask)
        cv2.multiply(whole[1], maps[1], dst=term)
        cv2.add(mask, term, dst=mask)
        total = maps[0]
        cv2.add(total, maps[1], dst=total)
        if weights.box is not None and close is not None:
            box = weights.box
            inside = (slice(box.top, box.bottom), slice(box.left, box.right))
            weight = close_weights(box, self._grid)
            resized = self._close[: box.shape[0], : box.shape[1]]
            resize_mask(close, resized)
            cv2.multiply(resized, weight, dst=resized)
            cv2.add(mask[inside], resized, dst=mask[inside])
            cv2.add(total[inside], weight, dst=total[inside])
        cv2.divide(mask, total, dst=mask, scale=self._lift)
        if self._lift > 1.0:
            np.minimum(mask, np.float32(1.0), out=mask)
