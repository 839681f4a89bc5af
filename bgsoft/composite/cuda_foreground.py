"""People's own colour at their edges on a CUDA device; twin of :mod:`bgsoft.composite.foreground`.

Nothing is allocated after construction.
"""

from __future__ import annotations

import cupy
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.composite.foreground import LEVELS
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.ops.sides import device

_SINGLE_BLOCK_CELLS = 4096
"""The first level up to this size, and all after it, are left to a kernel of one block."""
_SINGLE_BLOCK_THREADS = 512


class CudaForeground:
    """Replaces the partly transparent samples of frames of one format, in place.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        factor = analysis_factor(format.width, format.height)
        size = format.width, format.height
        shapes = [analysis_shape(*size, 2 * factor << level) for level in range(LEVELS)]
        sizes = [rows * columns for rows, columns in shapes]
        offsets = [sum(sizes[:level]) for level in range(LEVELS)]
        numbers = [
            number
            for (rows, columns), offset in zip(shapes, offsets, strict=True)
            for number in (rows, columns, offset)
        ]
        self._table = device().array(numbers, np.int32)
        self._cells, self._foreground, self._background = (
            cupy.empty((sum(sizes), 4), np.float32) for _ in range(3)
        )
        small = [level for level, size in enumerate(sizes) if size <= _SINGLE_BLOCK_CELLS]
        self._coarse_from = min(small, default=LEVELS - 1)
        self._level_blocks = [blocks(*shape[::-1]) for shape in shapes]
        self._grid_size = tuple(np.int32(side) for side in analysis_shape(*size))
        self._cell_size = tuple(np.int32(side) for side in shapes[0])
        self._grid_has_chroma = np.int32(factor > 1)
        self._frame_size = np.int32(format.height), np.int32(format.width)
        self._frame_blocks = blocks(format.chroma_shape[1], format.chroma_shape[0])
        self._scale = np.float32(1 / (2 * factor))
        bits = 8 * format.bytes_per_sample
        self._first, self._halve, self._coarse, self._level, self._restore = (
            kernel("foreground", f"foreground_{name}", sample_bits=bits)
            for name in ("first", "halve", "coarse", "level", "restore")
        )

    def _estimate(self, matte: Matte, reduced: AnalysisFrame) -> None:
        """Estimate both colours from the analysis frame."""
        table, cells, first = self._table, self._cells, self._coarse_from
        planes = (reduced.luma, reduced.chroma, matte.reduced)
        arguments = (*planes, *self._grid_size, self._grid_has_chroma, cells)
        self._first(self._level_blocks[0], BLOCK, arguments)
        for level in range(1, first + 1):
            self._halve(self._level_blocks[level], BLOCK, (table, np.int32(level), cells))
        buffers = (np.int32(LEVELS), cells, self._foreground, self._background)
        threads = (_SINGLE_BLOCK_THREADS, 1, 1)
        self._coarse((1, 1, 1), threads, (table, np.int32(first), *buffers))
        for level in reversed(range(first)):
            self._level(self._level_blocks[level], BLOCK, (table, np.int32(level), *buffers))

    def restore(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """See :class:`bgsoft.composite.compositor.ForegroundColor`."""
        self._estimate(matte, reduced)
        planes = (frame.luma, frame.chroma, matte.alpha, *self._frame_size)
        colors = (self._foreground, self._background, *self._cell_size, self._scale)
        self._restore(self._frame_blocks, BLOCK, (*planes, *colors))
