"""The picture without its people, at the resolution that a filter asks for."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import AreaReducer, Samples, halve
from bgsoft.composite.fill import BackgroundFill
from bgsoft.composite.plan import (
    CLEAR_ALPHA,
    CellsPlan,
    FillPlan,
    PlanePlan,
    Source,
    full_scale_shift,
)
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.ops.sides import HOST

Plane16 = NDArray[np.uint16]


class FilledPicture:
    """A frame with its people filled in, at the resolution that a filter asks for."""

    def __init__(self, plan: CellsPlan) -> None:
        self._fill = BackgroundFill(HOST, plan.format)
        fine = [plane.source in (Source.GRID, Source.FRAME) for plane in plan.planes]
        self._edges = _Edges(plan.format) if any(fine) else None
        self._planes = [
            _FinePlane(plan, plane, self._fill.cells[index], self._edges, index)
            if self._edges and fine[index]
            else _CoarsePlane(plane, self._fill.cells[index])
            for index, plane in enumerate(plan.planes)
        ]
        self._chroma: list[Samples] = []
        if plan.planes[1].source is Source.FRAME:
            format = plan.format
            self._chroma = [np.empty(format.chroma_shape[:2], format.dtype) for _ in "br"]

    def update(
        self, frame: Frame, matte: Matte, reduced: AnalysisFrame
    ) -> tuple[Plane16, Plane16, Plane16]:
        """Luma, Cb and Cr of the next frame, not yet composited; 16-bit full scale."""
        self._fill.update(matte.reduced, reduced)
        if self._edges:
            self._edges.update(matte.reduced, reduced)
        if self._chroma:
            cv2.split(frame.chroma, self._chroma)
        samples = (frame.luma, *self._chroma) if self._chroma else (frame.luma,) * 3
        luma, cb, cr = (
            plane.update(source) for plane, source in zip(self._planes, samples, strict=True)
        )
        return luma, cb, cr


class _CoarsePlane:
    """Cells of the filled picture, or averaged further."""

    def __init__(self, plan: PlanePlan, cells: Plane16) -> None:
        self._steps = [cells]
        for _ in range(plan.factor.bit_length() - 1):
            rows, columns = self._steps[-1].shape
            self._steps.append(np.empty(((rows + 1) // 2, (columns + 1) // 2), np.uint16))

    def update(self, samples: Samples) -> Plane16:
        for fine, coarse in pairwise(self._steps):
            halve(fine, coarse)
        return self._steps[-1]


class _Edges:
    """What planes as fine as the analysis frame, or finer, need of it at 16-bit full scale."""

    def __init__(self, format: FrameFormat) -> None:
        grid = FillPlan.of(format).grid
        self._shift = full_scale_shift(format)
        self.luma = np.empty(grid, np.uint16)
        self.chroma = np.empty((2, *grid), np.uint16)
        self.near = np.empty(grid, np.uint8)
        """255 near people, from one cell before to two after them; 0 elsewhere."""
        self._pairs = np.empty((*grid, 2), np.uint16)
        self._reach = np.ones((4, 4), np.uint8)

    def update(self, matte: Array, reduced: AnalysisFrame) -> None:
        np.left_shift(reduced.luma, self._shift, out=self.luma, dtype=np.uint16)
        if reduced.chroma.shape == self._pairs.shape:
            np.left_shift(reduced.chroma, self._shift, out=self._pairs, dtype=np.uint16)
            cv2.split(self._pairs, [*self.chroma])
        border = cv2.BORDER_REPLICATE
        cv2.dilate(matte, self._reach, dst=self.near, anchor=(1, 1), borderType=border)
        cv2.threshold(self.near, CLEAR_ALPHA, 255, cv2.THRESH_BINARY, dst=self.near)


class _FinePlane:
    """The analysis frame, or the frame on cells as fine, with the fill laid over people."""

    def __init__(
        self, plan: CellsPlan, plane: PlanePlan, cells: Array, edges: _Edges, index: int
    ) -> None:
        self._shift = full_scale_shift(plan.format)
        self._reducer: AreaReducer | None = None
        if plane.source is Source.FRAME:
            format = plan.format
            shape = format.luma_shape if index == 0 else format.chroma_shape[:2]
            self._reducer = AreaReducer(*shape, plane.factor, format.dtype)
            self._samples: Samples = np.empty(plane.shape, format.dtype)
            self._plane = np.empty(plane.shape, np.uint16)
        else:
            self._plane = edges.luma if index == 0 else edges.chroma[index - 1]
        self._cells, self._near = cells, edges.near
        rows, columns = self._cells.shape
        scale = 2 * plane.fine
        self._enlarged = np.empty((rows * scale, columns * scale), np.uint16)
        rows, columns = self._near.shape
        self._mask = self._near
        if plane.fine > 1:
            self._mask = np.empty((rows * plane.fine, columns * plane.fine), np.uint8)

    def update(self, samples: Samples) -> Plane16:
        plane = self._plane
        if self._reducer is not None:
            self._reducer.reduce(samples, self._samples)
            np.left_shift(self._samples, self._shift, out=plane, dtype=np.uint16)
        size = self._enlarged.shape[::-1]
        cv2.resize(self._cells, size, dst=self._enlarged, interpolation=cv2.INTER_LINEAR)
        if self._mask is not self._near:
            size = self._mask.shape[::-1]
            cv2.resize(self._near, size, dst=self._mask, interpolation=cv2.INTER_NEAREST)
        rows, columns = plane.shape
        cv2.copyTo(self._enlarged[:rows, :columns], self._mask[:rows, :columns], plane)
        return plane
