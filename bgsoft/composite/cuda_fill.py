"""People filled in from around them, on a CUDA device; the twin of :mod:`bgsoft.composite.fill`."""

from __future__ import annotations

import cupy
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.composite.cuda_background import device_ints
from bgsoft.frame import Array, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import BLOCK, blocks, kernel

__all__ = ["DeviceFill", "DevicePushPull", "check_grid"]

_RESIDENT_CELLS = 2900
"""float4s of shared memory: with what the kernel declares itself, less than 48 KiB."""
_SINGLE_BLOCK_CELLS = 16384
"""Levels up to this size are left to the kernel of one block."""
_SINGLE_BLOCK_THREADS = 1024
_FLOAT4_BYTES = 16


def check_grid(format: FrameFormat, matte: Matte, reduced: Reduced) -> None:
    """Raise ValueError where a matte or picture is not on the format's analysis grid."""
    wanted = grid_shape(format.width, format.height)
    if matte.reduced.shape != wanted or reduced.luma.shape != wanted:
        raise ValueError(
            f"matte and picture are {matte.reduced.shape} and {reduced.luma.shape} "
            f"on a grid of {wanted}"
        )


class DevicePushPull:
    """Fills holes in three planes of the same size from around them.

    Args:
        shape: (h, w) of the planes.
        sum_count: Groups of sums that the maker of level 0 writes to :attr:`sums`.
        cell_count: Cells that the sums are over.
        given: How many levels the maker writes, 1 or 2.
        left: Up to how many fine levels are left to the reader of the result, which finds the
            next level filled in; see :attr:`filled`.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        sum_count: int,
        cell_count: int,
        given: int = 1,
        left: int = 0,
    ) -> None:
        shapes = [shape]
        while max(shape) > 2:
            shape = ((shape[0] + 1) // 2, (shape[1] + 1) // 2)
            shapes.append(shape)
        sizes = [rows * columns for rows, columns in shapes]
        offsets = [sum(sizes[:level]) for level in range(len(sizes))]
        numbers = [
            number
            for (rows, columns), offset in zip(shapes, offsets, strict=True)
            for number in (rows, columns, offset)
        ]
        self.table = device_ints(len(shapes), *numbers)
        """How the kernels find the levels."""
        self.levels = cupy.empty((sum(sizes), 4), np.float32)
        """All levels; of level 0, first in it, the maker writes weighted planes and weight."""
        self.sums = cupy.empty((sum_count, 3), np.uint64)
        """Sums of the planes, unweighted, in any number of groups."""

        top = len(shapes) - 1
        self.filled = min(left, top)
        """The level that :meth:`run` has filled in at its end."""
        first = given = min(given - 1, top)
        while first < top and sizes[first] > _SINGLE_BLOCK_CELLS:
            first += 1
        # Large levels are pushed, and pulled, by kernels of their own.
        last = max(self.filled, first) if first > given else self.filled
        resident = first + 1
        while sum(sizes[resident:]) > _RESIDENT_CELLS:
            resident += 1
        self._pushes = [
            (blocks(*shapes[level][::-1]), (self.table, self.levels, np.int32(level)))
            for level in range(given + 1, first + 1)
        ]
        self._pulls = [
            (blocks(*shapes[level][::-1]), (self.table, self.levels, np.int32(level)))
            for level in range(last - 1, self.filled - 1, -1)
        ]
        self._shared_bytes = sum(sizes[resident:]) * _FLOAT4_BYTES
        self._arguments = (
            self.table,
            self.levels,
            *(np.int32(number) for number in (first, last, resident)),
            self.sums,
            np.int32(sum_count),
            np.int32(cell_count),
        )
        self._push, self._pull = kernel("fill", "fill_push"), kernel("fill", "fill_pull")
        self._pyramid = kernel("fill", "fill_pyramid")

    def run(self) -> None:
        """Fill in level :attr:`filled`, in place; where that is above 0, finer ones stay as is."""
        for grid, arguments in self._pushes:
            self._push(grid, BLOCK, arguments)
        threads = (_SINGLE_BLOCK_THREADS, 1, 1)
        self._pyramid((1, 1, 1), threads, self._arguments, shared_mem=self._shared_bytes)
        for grid, arguments in self._pulls:
            self._pull(grid, BLOCK, arguments)


class DeviceFill:
    """Fills people in on a grid with cells twice as large as those of the analysis grid.

    Args:
        format: Format of every frame.
        extra_cells: Room to leave in :attr:`buffer` for planes derived from the cells.
        last_resort: See :class:`bgsoft.composite.fill.BackgroundFill`.
    """

    def __init__(
        self,
        format: FrameFormat,
        extra_cells: int = 0,
        last_resort: tuple[int, int, int] | None = None,
    ) -> None:
        self._format = format
        self.grid_shape = grid_rows, grid_columns = grid_shape(format.width, format.height)
        """(h, w) of the analysis grid."""
        self.factor = 2 * grid_factor(format.width, format.height)
        """Luma pixels per cell, each way."""
        self.shape = rows, columns = (grid_rows + 1) // 2, (grid_columns + 1) // 2
        """(h, w) of the cells."""
        self.buffer = cupy.empty(3 * rows * columns + extra_cells, np.uint16)
        """Luma, Cb and Cr cells, 16-bit full scale, people filled in; then the extra ones."""
        shape = device_ints(grid_rows, grid_columns, self.factor > 2)
        wide, high, _ = blocks(columns, rows)
        self._blocks = (wide, high, 2)
        self._finish_blocks = (wide, high, 1)
        sum_count, cell_count = (1, 1) if last_resort else (wide * high, rows * columns)
        self._push_pull = push_pull = DevicePushPull(
            self.shape, sum_count=sum_count, cell_count=cell_count, given=2, left=2
        )
        sums = push_pull.sums
        if last_resort:
            # The mean that the pyramid finds; the picture's own sums go nowhere.
            sums.set(np.array([last_resort], np.uint64))
            sums = cupy.empty((wide * high, 3), np.uint64)
        self._prepare_arguments = (
            shape,
            push_pull.table,
            self.buffer,
            push_pull.levels,
            sums,
        )
        self._finish_arguments = (
            push_pull.table,
            push_pull.levels,
            np.int32(push_pull.filled),
            self.buffer,
        )
        bits = 8 * format.bytes_per_sample
        self._prepare = kernel("fill", "fill_prepare", sample_bits=bits)
        self._finish = kernel("fill", "fill_finish")

    def update(self, matte: Matte, reduced: Reduced) -> None:
        """Take in the next frame: set the cells in :attr:`buffer`.

        Args:
            matte: Its matte.
            reduced: The frame on the analysis grid.

        Raises:
            ValueError: They are not on the grid of this format.
        """
        check_grid(self._format, matte, reduced)
        planes: tuple[Array, ...] = (reduced.luma, reduced.chroma, matte.reduced)
        self._prepare(self._blocks, BLOCK, (*planes, *self._prepare_arguments))
        self._push_pull.run()
        self._finish(self._finish_blocks, BLOCK, self._finish_arguments)
