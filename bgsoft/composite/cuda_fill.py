"""The picture without its people on a CUDA device; the twin of :mod:`bgsoft.composite.fill`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.composite.plan import CellsPlan, FillPlan, Shape, Source, level_shapes
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.ops.loader import BLOCK, blocks, kernel

_RESIDENT_CELLS = 2900
"""float4s of shared memory: with what the kernel declares itself, less than 48 KiB."""
_SINGLE_BLOCK_CELLS = 16384
"""Levels up to this size are left to the kernel of one block."""
_SINGLE_BLOCK_THREADS = 1024
_FLOAT4_BYTES = 16


def cuda_ints(*values: int) -> Array:
    """Numbers that a kernel reads from device memory, (n,) int32: its plan."""
    return cupy.asarray(np.array(values, np.int32))


class CudaPushPull:
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
        self, shape: Shape, *, sum_count: int, cell_count: int, given: int = 1, left: int = 0
    ) -> None:
        shapes = level_shapes(shape)
        sizes = [rows * columns for rows, columns in shapes]
        numbers = [len(shapes)]
        for level, level_shape in enumerate(shapes):
            numbers += [*level_shape, sum(sizes[:level])]
        self.table = cuda_ints(*numbers)
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
        self._pushes = [self._launch(level, shapes[level]) for level in range(given + 1, first + 1)]
        self._pulls = [
            self._launch(level, shapes[level]) for level in range(last - 1, self.filled - 1, -1)
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

    def _launch(self, level: int, shape: Shape) -> tuple[tuple[int, int, int], tuple[Any, ...]]:
        """Blocks and arguments of a kernel that makes one level."""
        return blocks(*shape[::-1]), (self.table, self.levels, np.int32(level))

    def run(self) -> None:
        """Fill in level :attr:`filled`, in place; where that is above 0, finer ones stay as is."""
        for grid, arguments in self._pushes:
            self._push(grid, BLOCK, arguments)
        threads = (_SINGLE_BLOCK_THREADS, 1, 1)
        self._pyramid((1, 1, 1), threads, self._arguments, shared_mem=self._shared_bytes)
        for grid, arguments in self._pulls:
            self._pull(grid, BLOCK, arguments)


class CudaFill:
    """Fills people in on cells twice as large as those of the analysis frame.

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
        self.plan = plan = FillPlan.of(format)
        rows, columns = plan.shape
        self.buffer = cupy.empty(3 * rows * columns + extra_cells, np.uint16)
        """Luma, Cb and Cr cells, 16-bit full scale, people filled in; then the extra ones."""
        wide, high, _ = blocks(columns, rows)
        self._blocks = (wide, high, 2)
        self._finish_blocks = (wide, high, 1)
        sum_count, cell_count = (1, 1) if last_resort else (wide * high, rows * columns)
        self._push_pull = push_pull = CudaPushPull(
            plan.shape, sum_count=sum_count, cell_count=cell_count, given=2, left=2
        )
        sums = push_pull.sums
        if last_resort:
            # The mean that the pyramid finds; the picture's own sums go nowhere.
            sums.set(np.array([last_resort], np.uint64))
            sums = cupy.empty((wide * high, 3), np.uint64)
        table, levels = push_pull.table, push_pull.levels
        grid = cuda_ints(*plan.grid, plan.has_chroma)
        self._prepare_arguments = (grid, table, self.buffer, levels, sums)
        self._finish_arguments = (table, levels, np.int32(push_pull.filled), self.buffer)
        bits = 8 * format.bytes_per_sample
        self._prepare = kernel("fill", "fill_prepare", sample_bits=bits)
        self._finish = kernel("fill", "fill_finish")

    def update(self, matte: Array, reduced: AnalysisFrame) -> None:
        """Take in the next frame: set the cells in :attr:`buffer`.

        Args:
            matte: (gh, gw) uint8, on the grid: what is filled in.
            reduced: The frame on the analysis frame.
        """
        planes = (reduced.luma, reduced.chroma, matte)
        self._prepare(self._blocks, BLOCK, (*planes, *self._prepare_arguments))
        self._push_pull.run()
        self._finish(self._finish_blocks, BLOCK, self._finish_arguments)


class CudaPicture:
    """A frame with its people filled in, at the resolution that a filter asks for."""

    def __init__(self, plan: CellsPlan) -> None:
        format, fill = plan.format, FillPlan.of(plan.format)
        cells = fill.shape[0] * fill.shape[1]
        end = 3 * cells
        self.offsets: list[int] = []
        """Where luma, Cb and Cr start in :attr:`buffer`."""
        numbers: list[int] = []
        for index, plane in enumerate(plan.planes):
            offset = index * cells
            if plane.source is not Source.CELLS:
                offset, end = end, end + plane.shape[0] * plane.shape[1]
            numbers += [plane.source, plane.factor, plane.fine, *plane.shape, offset]
            self.offsets.append(offset)
        self._fill = CudaFill(format, end - 3 * cells)
        self.buffer: Array = self._fill.buffer
        """All planes, 16-bit full scale; overwritten by the next update."""
        self._derived = any(plane.source is not Source.CELLS for plane in plan.planes)
        sizes = (*fill.shape, *fill.grid, *format.luma_shape, *format.chroma_shape[:2])
        self._numbers = cuda_ints(*numbers, *sizes)
        rows, columns = (max(sides) for sides in zip(*plan.shapes, strict=True))
        self._blocks = blocks(columns, rows, 3)
        bits = 8 * format.bytes_per_sample
        self._planes = kernel("picture", "picture_planes", sample_bits=bits)

    def update(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Take in the next frame, not yet composited: set the planes in :attr:`buffer`."""
        self._fill.update(matte.reduced, reduced)
        if self._derived:
            pictures = (reduced.luma, reduced.chroma, frame.luma, frame.chroma)
            arguments = (self._numbers, self.buffer, matte.reduced, *pictures)
            self._planes(self._blocks, BLOCK, arguments)
