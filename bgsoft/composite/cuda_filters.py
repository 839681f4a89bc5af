"""The frame's own background on a CUDA device; the twin of :mod:`bgsoft.composite.filters`."""

from __future__ import annotations

from typing import Any

import cupy
import cv2
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.composite.background import Background
from bgsoft.composite.cuda_picture import CudaPicture
from bgsoft.composite.fill import PushPull
from bgsoft.composite.plan import (
    BlurPlan,
    BokehPlan,
    PixelatePlan,
    Shape,
    disc_kernel,
)
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.ops.loader import kernel
from bgsoft.ops.sides import device

_THREADS = 256
"""Of a block of the kernels that take cells as one row."""
_BLUR_TILE = 32
_BLUR_BLOCK = (_BLUR_TILE, 8, 1)
_MAX_REACH = 15
"""Cells to each side that ``blur.cu`` has room for."""
_DISC_ROWS, _DISC_COLUMNS = 16, 32
"""Cells of a tile of ``bokeh.cu``."""
_DISC_BLOCK = (32, 4, 1)
_CELLS_PER_THREAD = 4
"""Of a mosaic block, at most, while there are threads for more."""


def _ints(*values: int) -> Array:
    """Numbers that a kernel reads from device memory, (n,) int32: its plan."""
    return device().array(values, np.int32)


class CudaPixelate(Background):
    """The frame's own background in blocks of one colour each."""

    def __init__(self, plan: PixelatePlan) -> None:
        format, factor = plan.format, plan.factor
        grid = analysis_factor(format.width, format.height)
        grid_size = analysis_shape(format.width, format.height)
        # Cells as large as the grid's, or larger, are those of the grid or made of them.
        self._from_grid = factor >= grid
        if self._from_grid:
            luma_shape, luma_factor = grid_size, factor // grid
            # The grid of a small frame has the frame's own chroma, at half its size.
            chroma_shape = luma_shape if grid > 1 else format.chroma_shape[:2]
            chroma_factor = 1
        else:
            luma_shape, luma_factor = format.luma_shape, factor
            chroma_shape, chroma_factor = format.chroma_shape[:2], factor // 2
        lanes = 1
        while lanes < _THREADS and lanes * _CELLS_PER_THREAD < plan.per_block**2:
            lanes *= 2
        block_rows, block_columns = plan.blocks
        self._block = (lanes, _THREADS // lanes, 1)
        self._blocks = (-(-block_rows * block_columns // self._block[1]), 1, 1)
        self._numbers = _ints(
            *(*plan.blocks, plan.per_block, *plan.cells, plan.top, plan.left),
            *luma_shape,
            *chroma_shape,
            *(luma_factor, chroma_factor, *grid_size),
            *(plan.cells_per_grid, plan.grid_per_cell, plan.grid_per_cell),
        )
        cell_count = plan.cells[0] * plan.cells[1]
        self._push_pull = PushPull(
            device(), plan.blocks, sum_count=self._blocks[0], cell_count=cell_count
        )
        places = (block_columns, plan.edge_px, plan.top * factor, plan.left * factor)
        super().__init__("blend_blocks", _ints(*places), self._push_pull.levels)
        bits = 8 * format.bytes_per_sample
        self._average = kernel("pixelate", "pixelate_blocks", sample_bits=bits)

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        source: Frame | AnalysisFrame = reduced if self._from_grid else frame
        planes = (source.luma, source.chroma, matte.reduced)
        sums = (self._push_pull.levels, self._push_pull.sums)
        self._average(self._blocks, self._block, (self._numbers, *planes, *sums))
        self._push_pull.run()
