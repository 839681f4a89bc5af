"""The picture without its people, at the resolution that a filter asks for."""

from __future__ import annotations

import numpy as np

from bgsoft.composite.fill import BackgroundFill
from bgsoft.composite.plan import CellsPlan, FillPlan, Source
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.ops.sides import Side

_RUN = 32
"""RUN of ``picture.cu``: samples of a row that are made together on the host."""


class FilledPicture:
    """A frame with its people filled in, at the resolution that a filter asks for."""

    def __init__(self, side: Side, plan: CellsPlan) -> None:
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
        self._fill = BackgroundFill(side, format, end - 3 * cells)
        self.buffer: Array = self._fill.buffer
        """All planes, 16-bit full scale; overwritten by the next update."""
        self._derived = any(plane.source is not Source.CELLS for plane in plan.planes)
        sizes = (*fill.shape, *fill.grid, *format.luma_shape, *format.chroma_shape[:2])
        self._numbers = side.array((*numbers, *sizes), np.int32)
        rows, columns = (max(sides) for sides in zip(*plan.shapes, strict=True))
        self._size = (rows, columns, 3)
        marks = side.scratch(fill.grid[1] + 3 + columns, np.uint8)
        self._scratch = marks, side.scratch(fill.shape[1] + 2 + _RUN, np.float32)
        bits = 8 * format.bytes_per_sample
        self._planes = side.operation("picture", "picture_planes", sample_bits=bits)

    def update(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Take in the next frame, not yet composited: set the planes in :attr:`buffer`."""
        self._fill.update(matte.reduced, reduced)
        if self._derived:
            pictures = (reduced.luma, reduced.chroma, frame.luma, frame.chroma)
            arguments = (matte.reduced, *pictures, *self._scratch)
            self._planes(self._size, self._numbers, self.buffer, *arguments)
