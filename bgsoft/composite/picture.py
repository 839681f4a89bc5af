"""The picture without its people: the area behind them is filled in from around them.

A background filter that read a person's samples would smear their colours around them, as a halo.
So people are cut out first, with a margin, and the hole is closed by push-pull interpolation:
S. Gortler et al., "The Lumigraph", SIGGRAPH 1996, section 3.4. The filter then works on a complete
picture and needs no mask. The fill is only visible blurred, close to a person's edge.
"""

from __future__ import annotations

import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.composite.plan import CellsPlan, Source, black_and_neutral, level_shapes, level_table
from bgsoft.frame import AnalysisFrame, Array, Frame
from bgsoft.ops.placement import Placement

_RUN = 32
"""RUN of ``picture.cu``: samples of a row that are made together on the host."""
_MIN_WEIGHT = 1e-4
"""Weight of people, against 1 of the surroundings. It only matters where there is almost nothing
else, and gives the whole picture's mean there."""
_BLOCK = (1024, 1, 1)
"""Threads that make the pyramid."""


class FilledPicture:
    """A frame with its people filled in, at a filter's resolution.

    Args:
        placement: Device of the frames, or the host.
        plan: The cells of the filter.
        min_weight: Weight of people; 0: where there is nothing else, the fill is black.
    """

    def __init__(
        self, placement: Placement, plan: CellsPlan, min_weight: float = _MIN_WEIGHT
    ) -> None:
        format = plan.format
        size = format.width, format.height
        factor, grid = analysis_factor(*size), analysis_shape(*size)
        # People are filled in on cells twice as large as those of the analysis frame.
        levels = level_shapes(analysis_shape(*size, 2 * factor))
        self._filled = levels[0]
        cells = levels[0][0] * levels[0][1]
        end = 3 * cells
        self.offsets: list[int] = []
        """Offsets of luma, Cb and Cr in :attr:`buffer`."""
        numbers: list[int] = []
        for index, plane in enumerate(plan.planes):
            offset = index * cells
            if plane.source is not Source.CELLS:
                offset, end = end, end + plane.shape[0] * plane.shape[1]
            numbers += [plane.source, plane.factor, plane.fine, *plane.shape, offset]
            self.offsets.append(offset)
        self.buffer: Array = placement.xp.empty(end, np.uint16)
        """All planes, 16-bit full scale, after the filled cells; overwritten by the next update."""
        table, count = level_table(levels)
        pyramid = placement.array(table, np.int32), placement.xp.empty((count, 4), np.float32)
        marks = placement.scratch(grid[1] + 3, np.uint8)
        shape = placement.array((*grid, factor > 1), np.int32)
        self._prepared = (shape, float(min_weight), pyramid[0], self.buffer, pyramid[1], marks)
        self._pyramid = (*pyramid, *black_and_neutral(format))
        self._finished = (*pyramid, self.buffer)
        sizes = (*levels[0], *grid, *format.luma_shape, *format.chroma_shape[:2])
        self._numbers = placement.array((*numbers, *sizes), np.int32)
        self._size = (*(max(sides) for sides in zip(*plan.shapes, strict=True)), 3)
        self._scratch = marks, placement.scratch(levels[0][1] + 2 + _RUN, np.float32)
        bits = 8 * format.bytes_per_sample
        self._prepare = placement.operation("picture", "fill_prepare", sample_bits=bits)
        self._fill = placement.operation("picture", "fill_pyramid", block=_BLOCK)
        self._finish = placement.operation("picture", "fill_finish")
        self._derive = None
        if any(plane.source is not Source.CELLS for plane in plan.planes):
            self._derive = placement.operation("picture", "picture_planes", sample_bits=bits)

    def update(self, frame: Frame, matte: Array, reduced: AnalysisFrame) -> None:
        """Fill in the next frame, which is not composited yet, and write :attr:`buffer`.

        Args:
            frame: The frame.
            matte: (gh, gw) uint8, on the analysis frame: the area to fill in.
            reduced: The frame's analysis frame.
        """
        grid = reduced.luma, reduced.chroma
        self._prepare(self._filled, *grid, matte, *self._prepared)
        self._fill((1, _BLOCK[0]), *self._pyramid)
        self._finish(self._filled, *self._finished)
        if self._derive:
            pictures = (matte, *grid, frame.luma, frame.chroma)
            self._derive(self._size, self._numbers, self.buffer, *pictures, *self._scratch)
