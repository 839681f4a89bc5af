"""The picture without its people: what is behind them is filled in from around them.

A background filter that looked at a person's samples would smear their colours around them, as a
halo. So people are cut out first, generously, and the hole is closed by push-pull interpolation:
S. Gortler et al., "The Lumigraph", SIGGRAPH 1996, section 3.4. The filter then works on a
complete picture and needs no mask. The fill is only ever seen blurred, close to a person's edge.
"""

from __future__ import annotations

import numpy as np

from bgsoft.composite.plan import FillPlan, Shape, level_shapes, level_table
from bgsoft.frame import AnalysisFrame, Array, FrameFormat
from bgsoft.ops.loader import BLOCK
from bgsoft.ops.sides import Side

_RESIDENT_CELLS = 2900
"""float4s of shared memory: with what the kernel declares itself, less than 48 KiB."""
_SINGLE_BLOCK_CELLS = 16384
"""Levels up to this size are left to the kernel of one block."""
_SINGLE_BLOCK_THREADS = 1024
_FLOAT4_BYTES = 16


class PushPull:
    """Fills holes in three planes of the same size from around them.

    Args:
        side: Where they are.
        shape: (h, w) of the planes.
        sum_count: Groups of sums that the maker of level 0 writes to :attr:`sums`.
        cell_count: Cells that the sums are over.
        left: Whether the finest level is left to the reader of the result, which finds the next one
            filled in, if there is one; see :attr:`filled`.
    """

    def __init__(
        self,
        side: Side,
        shape: Shape,
        *,
        sum_count: int,
        cell_count: int,
        left: bool = False,
    ) -> None:
        shapes = level_shapes(shape)
        sizes = [rows * columns for rows, columns in shapes]
        numbers, count = level_table(shapes)
        self.table = side.array(numbers, np.int32)
        """How the kernels find the levels."""
        self.levels = side.xp.empty((count, 4), np.float32)
        """All levels; of level 0, first in it, the maker writes weighted planes and weight."""
        self.sums = side.xp.empty((sum_count, 3), np.uint64)
        """Sums of the planes, unweighted, in any number of groups."""

        top = len(shapes) - 1
        self.filled = min(left, top)
        """The level that :meth:`run` has filled in at its end."""
        # The host makes all levels in one call. On a device the coarse ones are left to one block.
        first = 0
        while side.on_device and first < top and sizes[first] > _SINGLE_BLOCK_CELLS:
            first += 1
        # Large levels are pushed, and pulled, by kernels of their own.
        last = max(self.filled, first) if first else self.filled
        resident = first + 1
        while sum(sizes[resident:]) > _RESIDENT_CELLS:
            resident += 1
        self._pushes = [(shapes[level], level) for level in range(1, first + 1)]
        self._pulls = [(shapes[level], level) for level in range(last - 1, self.filled - 1, -1)]
        self._numbers = (first, last, resident, self.sums, sum_count, cell_count)
        if side.on_device:
            self._push, self._pull = (
                side.operation("fill", f"fill_{name}") for name in ("push", "pull")
            )
        self._pyramid = side.operation(
            "fill",
            "fill_pyramid",
            block=(_SINGLE_BLOCK_THREADS, 1, 1),
            shared_bytes=sum(sizes[resident:]) * _FLOAT4_BYTES,
        )

    def run(self) -> None:
        """Fill in level :attr:`filled`, in place; where that is above 0, finer ones stay as is."""
        for shape, level in self._pushes:
            self._push(shape, self.table, self.levels, level)
        self._pyramid((1, _SINGLE_BLOCK_THREADS), self.table, self.levels, *self._numbers)
        for shape, level in self._pulls:
            self._pull(shape, self.table, self.levels, level)


class BackgroundFill:
    """Fills people in on cells twice as large as those of the analysis frame.

    Args:
        side: Where they are.
        format: Format of every frame.
        extra_cells: Room to leave in :attr:`buffer` for planes derived from the cells.
        last_resort: Luma, Cb and Cr to fill in where there is nothing to fill in from, 16-bit full
            scale; None: the whole picture's mean.
    """

    def __init__(
        self,
        side: Side,
        format: FrameFormat,
        extra_cells: int = 0,
        last_resort: tuple[int, int, int] | None = None,
    ) -> None:
        self.plan = plan = FillPlan.of(format)
        rows, columns = plan.shape
        self.buffer = side.xp.empty(3 * rows * columns + extra_cells, np.uint16)
        """Luma, Cb and Cr cells, 16-bit full scale, people filled in; then the extra ones."""
        # Groups of sums: a device has one a warp.
        warps = -(-columns // BLOCK[0]) * -(-rows // BLOCK[1]) * BLOCK[1]
        groups = warps if side.on_device else 1
        self._push_pull = push_pull = PushPull(
            side,
            plan.shape,
            sum_count=1 if last_resort else groups,
            cell_count=1 if last_resort else rows * columns,
            left=True,
        )
        sums = push_pull.sums
        if last_resort:
            # The mean that the pyramid finds; the picture's own sums go nowhere.
            sums[0] = side.array(last_resort, np.uint64)
            sums = side.xp.empty((groups, 3), np.uint64)
        grid = side.array((*plan.grid, plan.has_chroma), np.int32)
        self._prepare_arguments = (grid, push_pull.table, self.buffer, push_pull.levels, sums)
        self._finish_arguments = (push_pull.table, push_pull.levels, push_pull.filled, self.buffer)
        bits = 8 * format.bytes_per_sample
        self._prepare = side.operation("fill", "fill_prepare", sample_bits=bits)
        self._finish = side.operation("fill", "fill_finish")

    def update(self, matte: Array, reduced: AnalysisFrame) -> None:
        """Take in the next frame: set the cells in :attr:`buffer`.

        Args:
            matte: (gh, gw) uint8, on the analysis frame: what is filled in.
            reduced: The frame's analysis frame.
        """
        planes = (reduced.luma, reduced.chroma, matte)
        self._prepare(self.plan.shape, *planes, *self._prepare_arguments)
        self._push_pull.run()
        self._finish(self.plan.shape, *self._finish_arguments)
