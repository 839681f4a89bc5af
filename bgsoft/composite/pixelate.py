"""Mosaic of the background."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.analysis.cpu import AreaReducer, Samples
from bgsoft.composite.blend import Background
from bgsoft.composite.fill import CLEAR_ALPHA, PushPull
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["PixelateBackground", "block_edge_px"]

Indices = NDArray[np.intp]


def block_edge_px(length_px: float) -> int:
    """Edge of the blocks: the nearest even number of pixels, 2 or more.

    Even, so that no chroma sample lies in two blocks, which would give them coloured rims.
    """
    return max(2, 2 * round(length_px / 2))


class PixelateBackground(Background):
    """The frame's own background in blocks of one colour each, people left out of the averages.

    Blocks are aligned to the centre of the frame. One that shows people only takes its colour
    from the blocks around it.

    Args:
        format: Format of every frame.
        length_px: Wanted edge of a block, frame pixels.
    """

    def __init__(self, format: FrameFormat, length_px: float) -> None:
        block = block_edge_px(length_px)
        grid = grid_factor(format.width, format.height)
        # The largest cells that blocks are made of exactly; chroma samples are 2 pixels wide.
        factor = min(block & -block, max(grid, 2))
        self._factor, self._grid = factor, grid
        height, width = format.luma_shape
        half_height, half_width, _ = format.chroma_shape
        self._luma_reducer = AreaReducer(height, width, factor, format.dtype)
        self._chroma_reducer = AreaReducer(half_height, half_width, factor // 2, format.dtype)
        rows, columns = shape = self._luma_reducer.shape
        self._split = [np.empty((half_height, half_width), format.dtype) for _ in "br"]
        self._cells: list[Samples] = [np.empty(shape, format.dtype) for _ in range(3)]

        per_block = block // factor
        top = -(height // 2 // factor) % per_block
        left = -(width // 2 // factor) % per_block
        block_shape = -(-(top + rows) // per_block), -(-(left + columns) // per_block)
        padded = block_shape[0] * per_block, block_shape[1] * per_block
        # Weighted luma, Cb and Cr, and the weight; the border around the frame weighs nothing.
        self._padded = np.zeros((4, *padded), np.float32)
        self._inner = self._padded[:, top : top + rows, left : left + columns]
        self._sums = np.empty((4, *block_shape), np.float32)
        self._push_pull = PushPull(block_shape)

        grid_rows, grid_columns = grid_shape(width, height)
        self._reach = np.ones((3, 3) if factor <= grid else (4, 4), np.uint8)
        self._near = np.empty((grid_rows, grid_columns), np.uint8)
        scale = max(grid // factor, 1)
        self._clear = np.empty((grid_rows * scale, grid_columns * scale), np.uint8)
        self._skip = max(factor // grid, 1)
        self._least_weight = 0.5 / per_block**2

        self._shift = format.shift
        self._luma_blocks: Samples = np.empty(block_shape, format.dtype)
        self._chroma_blocks: Samples = np.empty((*block_shape, 2), format.dtype)
        # Which block each row and column of the frame is in.
        self._row_block = (np.arange(height) + top * factor) // block
        self._column_block = (np.arange(width) + left * factor) // block
        self._half_row_block = (np.arange(half_height) * 2 + top * factor) // block
        self._half_column_block = (np.arange(half_width) * 2 + left * factor) // block
        self._luma: Samples = np.empty(format.luma_shape, format.dtype)
        self._chroma: Samples = np.empty(format.chroma_shape, format.dtype)

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        self._luma_reducer.reduce(frame.luma, self._cells[0])
        cv2.split(frame.chroma, self._split)
        for plane, cells in zip(self._split, self._cells[1:], strict=True):
            self._chroma_reducer.reduce(plane, cells)
        weight = self._inner[3]
        self._weigh(matte)
        for index, cells in enumerate(self._cells):
            np.multiply(cells, weight, out=self._inner[index])
        size = self._sums.shape[:0:-1]
        for source, target in zip(self._padded, self._sums, strict=True):
            cv2.resize(source, size, dst=target, interpolation=cv2.INTER_AREA)
        self._average()
        _spread(self._luma_blocks, self._row_block, self._column_block, self._luma)
        _spread(self._chroma_blocks, self._half_row_block, self._half_column_block, self._chroma)

    def planes(self) -> tuple[Samples, Samples]:
        return self._luma, self._chroma

    def _weigh(self, matte: Matte) -> None:
        """Weight 1 for cells away from people, 0 for others."""
        anchor = (1, 1)
        border = cv2.BORDER_REPLICATE
        cv2.dilate(matte.reduced, self._reach, dst=self._near, anchor=anchor, borderType=border)
        cv2.threshold(self._near, CLEAR_ALPHA, 1, cv2.THRESH_BINARY_INV, dst=self._near)
        clear = self._near
        if self._clear.shape != clear.shape:
            size = self._clear.shape[::-1]
            cv2.resize(clear, size, dst=self._clear, interpolation=cv2.INTER_NEAREST)
            clear = self._clear
        rows, columns = self._inner.shape[1:]
        np.copyto(self._inner[3], clear[:: self._skip, :: self._skip][:rows, :columns])

    def _average(self) -> None:
        """Block colours from weighted means, in the frame's code values."""
        sums, weighted = self._sums, self._push_pull.weighted
        known = weighted[3]
        np.greater(sums[3], self._least_weight, out=known, casting="unsafe")
        np.maximum(sums[3], self._least_weight, out=sums[3])
        np.divide(sums[:3], sums[3], out=weighted[:3])
        np.multiply(weighted[:3], known, out=weighted[:3])
        means = tuple(cv2.mean(cells)[0] for cells in self._cells)
        colors = self._push_pull.fill(means)
        code = 1 << self._shift
        np.divide(colors, code, out=colors)
        np.rint(colors, out=colors)
        np.multiply(colors, code, out=colors)
        np.copyto(self._luma_blocks, colors[0], casting="unsafe")
        np.copyto(self._chroma_blocks[..., 0], colors[1], casting="unsafe")
        np.copyto(self._chroma_blocks[..., 1], colors[2], casting="unsafe")


def _spread(blocks: Samples, rows: Indices, columns: Indices, target: Samples) -> None:
    """Give each sample of ``target`` the colour of its block."""
    np.take(blocks.take(columns, axis=1), rows, axis=0, out=target, mode="clip")
