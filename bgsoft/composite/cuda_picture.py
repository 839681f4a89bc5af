"""The picture without its people on a CUDA device, at the resolution that a filter asks for.

The twin of :mod:`bgsoft.composite.picture`.
"""

from __future__ import annotations

from enum import IntEnum

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.composite.cuda_background import device_ints
from bgsoft.composite.cuda_fill import DeviceFill
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import BLOCK, blocks, kernel

__all__ = ["DevicePicture"]


class _Source(IntEnum):
    """Where a plane comes from; the numbers are those of ``picture.cu``."""

    CELLS = 0
    COARSE = 1
    GRID = 2
    FRAME = 3


class DevicePicture:
    """A frame with its people filled in, averaged over cells of a given size.

    Args:
        format: Format of every frame.
        factor: Luma pixels per luma cell, each way, a power of two.
        chroma_factor: Luma pixels per chroma cell, each way, a power of two, 2 or more.
    """

    def __init__(self, format: FrameFormat, factor: int, chroma_factor: int) -> None:
        height, width = format.luma_shape
        grid = grid_factor(width, height)
        grid_size = grid_shape(width, height)
        cell_shape = ((grid_size[0] + 1) // 2, (grid_size[1] + 1) // 2)
        self.shapes: list[tuple[int, int]] = []
        """(h, w) of luma, Cb and Cr."""
        self.offsets: list[int] = []
        """Where they start in :attr:`buffer`."""
        plan: list[int] = []
        cells = cell_shape[0] * cell_shape[1]
        end = 3 * cells
        sources = []
        for plane in range(3):
            edge = factor if plane == 0 else chroma_factor
            source, source_factor = _source(edge, grid, samples=1 if plane == 0 else 2)
            shape = _ceil(height, edge), _ceil(width, edge)
            offset = plane * cells
            if source is not _Source.CELLS:
                offset, end = end, end + shape[0] * shape[1]
            plan += [source, source_factor, max(grid // edge, 1), *shape, offset]
            self.shapes.append(shape)
            self.offsets.append(offset)
            sources.append(source)
        self._fill = DeviceFill(format, end - 3 * cells)
        self.buffer: Array = self._fill.buffer
        """All planes, 16-bit full scale; overwritten by the next update."""
        self.reads_frame = _Source.FRAME in sources
        """Whether the frame itself is read, and not the analysis grid alone."""
        self._derived = any(source is not _Source.CELLS for source in sources)
        self._plan = device_ints(
            *plan, *cell_shape, *grid_size, height, width, *format.chroma_shape[:2]
        )
        rows, columns = (max(sides) for sides in zip(*self.shapes, strict=True))
        self._blocks = blocks(columns, rows, 3)
        bits = 8 * format.bytes_per_sample
        self._planes = kernel("picture", "picture_planes", sample_bits=bits)

    def update(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Take in the next frame: set the planes in :attr:`buffer`.

        Args:
            frame: The frame, not yet composited.
            matte: Its matte.
            reduced: The frame on the analysis grid.

        Raises:
            ValueError: Matte or picture is not on the grid of this format.
        """
        self._fill.update(matte, reduced)
        if self._derived:
            pictures = (reduced.luma, reduced.chroma, frame.luma, frame.chroma)
            arguments = (self._plan, self.buffer, matte.reduced, *pictures)
            self._planes(self._blocks, BLOCK, arguments)


def _source(edge: int, grid: int, samples: int) -> tuple[_Source, int]:
    """Where cells of ``edge`` luma pixels come from, and how many of its samples make one."""
    if edge >= 2 * grid:
        factor = edge // (2 * grid)
        return (_Source.COARSE if factor > 1 else _Source.CELLS), factor
    if edge == grid:
        return _Source.GRID, 1
    return _Source.FRAME, edge // samples


def _ceil(length: int, edge: int) -> int:
    return -(-length // edge)
