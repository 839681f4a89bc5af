"""Mosaic of the background on a CUDA device; the twin of :mod:`bgsoft.composite.pixelate`."""

from __future__ import annotations

from typing import Any

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.composite.cuda_background import device_ints
from bgsoft.composite.cuda_fill import DevicePushPull, check_grid
from bgsoft.composite.pixelate import block_edge_px
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import kernel

__all__ = ["DevicePixelate"]

_THREADS = 256
_CELLS_PER_THREAD = 4


class DevicePixelate:
    """The frame's own background in blocks of one colour each, people left out of the averages.

    Args:
        format: Format of every frame.
        length_px: Wanted edge of a block, frame pixels.
    """

    blend_kernel = "blend_blocks"

    def __init__(self, format: FrameFormat, length_px: float) -> None:
        self._format = format
        block = block_edge_px(length_px)
        height, width = format.luma_shape
        grid = grid_factor(width, height)
        # The largest cells that blocks are made of exactly; chroma samples are 2 pixels wide.
        factor = min(block & -block, max(grid, 2))
        rows, columns = -(-height // factor), -(-width // factor)
        per_block = block // factor
        top = -(height // 2 // factor) % per_block
        left = -(width // 2 // factor) % per_block
        block_rows, block_columns = -(-(top + rows) // per_block), -(-(left + columns) // per_block)

        # Cells as large as the grid's, or larger, are those of the grid or made of them.
        self._from_grid = factor >= grid
        grid_rows, grid_columns = grid_shape(width, height)
        half_height, half_width, _ = format.chroma_shape
        if self._from_grid:
            luma_shape, luma_factor = (grid_rows, grid_columns), factor // grid
            # The grid of a small frame has the frame's own chroma, at half its size.
            chroma_shape = luma_shape if grid > 1 else (half_height, half_width)
            chroma_factor = 1
        else:
            luma_shape, luma_factor = (height, width), factor
            chroma_shape, chroma_factor = (half_height, half_width), factor // 2
        lanes = 1
        while lanes < _THREADS and lanes * _CELLS_PER_THREAD < per_block**2:
            lanes *= 2
        self._block = (lanes, _THREADS // lanes, 1)
        self._blocks = (-(-block_rows * block_columns // self._block[1]), 1, 1)
        self._plan = device_ints(
            *(block_rows, block_columns, per_block, rows, columns, top, left),
            *luma_shape,
            *chroma_shape,
            *(luma_factor, chroma_factor, grid_rows, grid_columns),
            *(max(grid // factor, 1), max(factor // grid, 1), 1 if factor <= grid else 2),
        )
        self._push_pull = DevicePushPull(
            (block_rows, block_columns), sum_count=self._blocks[0], cell_count=rows * columns
        )
        plan = device_ints(block_columns, block, top * factor, left * factor)
        self.blend_arguments: tuple[Any, ...] = (plan, self._push_pull.levels)
        bits = 8 * format.bytes_per_sample
        self._average = kernel("pixelate", "pixelate_blocks", sample_bits=bits)

    @property
    def is_fixed(self) -> bool:
        return self._from_grid

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        check_grid(self._format, matte, reduced)
        source: Frame | Reduced = reduced if self._from_grid else frame
        planes = (source.luma, source.chroma, matte.reduced)
        sums = (self._push_pull.levels, self._push_pull.sums)
        self._average(self._blocks, self._block, (self._plan, *planes, *sums))
        self._push_pull.run()

    def close(self) -> None:
        """Nothing to free on the host."""
