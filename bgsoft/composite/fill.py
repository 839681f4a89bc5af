"""The picture without its people: what is behind them is filled in from around them.

A background filter that looked at a person's samples would smear their colours around them, as a
halo. So people are cut out first, generously, and the hole is closed by push-pull interpolation:
S. Gortler et al., "The Lumigraph", SIGGRAPH 1996, section 3.4. The filter then works on a
complete picture and needs no mask. The fill is only ever seen blurred, close to a person's edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import AreaReducer, Samples, halve
from bgsoft.composite.plan import (
    CLEAR_ALPHA,
    LAST_RESORT,
    PERSON_ALPHA,
    CellsPlan,
    FillPlan,
    PlanePlan,
    Shape,
    Source,
    full_scale_shift,
    level_shapes,
)
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte

Plane16 = NDArray[np.uint16]

_REST_OF_WEIGHT = np.array([[0, 0, 0, -1, 1]] * 4, np.float32)
"""For ``cv2.transform``: one less the fourth channel, in each channel."""


class PushPull:
    """Fills holes in three planes of the same size from around them.

    Args:
        shape: (h, w) of the planes.
    """

    def __init__(self, shape: Shape) -> None:
        self.weighted = np.empty((4, *shape), np.float32)
        """Input: three planes, each times the weight, and the weight in [0, 1]."""
        self._result = np.empty((4, *shape), np.float32)
        # The four interleaved, all levels in one array: most levels are so small that every call
        # counts.
        shapes = level_shapes(shape)
        self._pyramid = np.empty((sum(map(math.prod, shapes)), 1, 4), np.float32)
        self._rests = np.empty_like(self._pyramid)
        self._levels = _levels(self._pyramid, shapes)
        self._rest = _levels(self._rests, shapes)
        self._filled = _levels(np.empty_like(self._pyramid), shapes)

    def fill(self, last_resort: Sequence[float]) -> NDArray[np.float32]:
        """Fill :attr:`weighted` where its weight is below one.

        Args:
            last_resort: Values of the three planes to use where there is no weight at all.

        Returns:
            (3, h, w) float32; overwritten by the next call.
        """
        cv2.merge([*self.weighted], self._levels[0])
        # Push: weighted values and weight over ever larger cells.
        for fine, coarse in pairwise(self._levels):
            # Of 2×2 samples this is the mean; odd sizes stretch a little.
            size = coarse.shape[1::-1]
            cv2.resize(fine, size, dst=coarse, interpolation=cv2.INTER_LINEAR)
        cv2.transform(self._pyramid, _REST_OF_WEIGHT, dst=self._rests)
        # Pull: lay each level over the coarser one, which shows where the weight is below one.
        *means, weight = cv2.mean(self._levels[-1])
        total = weight + LAST_RESORT
        mixed = zip(means, last_resort, strict=True)
        below = self._filled[-1]
        below[:] = (*((mean + LAST_RESORT * last) / total for mean, last in mixed), 1)
        self._lay_over(-1)
        for index in range(len(self._levels) - 2, -1, -1):
            filled = self._filled[index]
            size = filled.shape[1::-1]
            cv2.resize(below, size, dst=filled, interpolation=cv2.INTER_LINEAR)
            self._lay_over(index)
            below = filled
        cv2.split(below, [*self._result])
        return self._result[:3]

    def _lay_over(self, index: int) -> None:
        """``filled ← weighted + (1 − weight) · filled``, whose weight is and stays one.

        NumPy's, not OpenCV's, keep the interpreter's lock on the smallest levels.
        """
        filled = self._filled[index]
        np.multiply(filled, self._rest[index], out=filled)
        np.add(filled, self._levels[index], out=filled)


def _levels(pyramid: NDArray[np.float32], shapes: list[Shape]) -> list[NDArray[np.float32]]:
    """Views of each level, (rows, columns, 4)."""
    parts = np.split(pyramid, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    return [part.reshape(*shape, 4) for part, shape in zip(parts, shapes, strict=True)]


class BackgroundFill:
    """Fills people in on cells twice as large as those of the analysis frame.

    Args:
        format: Format of every frame.
        last_resort: Luma, Cb and Cr to fill in where there is nothing to fill in from, 16-bit full
            scale; None: the whole picture's mean.
    """

    def __init__(
        self, format: FrameFormat, last_resort: tuple[float, float, float] | None = None
    ) -> None:
        self.plan = plan = FillPlan.of(format)
        self._last_resort = last_resort
        self._up_shift = full_scale_shift(format)
        self.grid = np.empty((3 if plan.has_chroma else 1, *plan.grid), np.uint16)
        """The analysis frame at 16-bit full scale, people included; of chroma what is on it."""
        self.cells = np.empty((3, *plan.shape), np.uint16)
        """Luma, Cb and Cr cells, 16-bit full scale, people filled in."""
        chroma_planes = self.grid[1:] if plan.has_chroma else self.cells[1:]
        self._chroma_planes = [*chroma_planes]
        self._chroma = np.empty((*chroma_planes.shape[1:], 2), np.uint16)
        self._halved = list(zip(self.grid, self.cells, strict=False))
        if plan.grid[0] % 2 == 0:
            # Planes lie on top of each other and can be halved as one.
            cells = self.cells[: len(self.grid)]
            self._halved = [(self.grid.reshape(-1, plan.grid[1]), cells.reshape(-1, plan.shape[1]))]
        # Sees one grid cell beyond the larger cell, since cells next to a person are mixed.
        self._reach = np.ones((4, 4), np.uint8)
        self.near = np.empty(plan.grid, np.uint8)
        """Largest matte sample around each grid cell; above CLEAR_ALPHA it is filled in."""
        self._near_cells = np.empty(plan.shape, np.uint8)
        alpha = np.arange(256, dtype=np.float32)
        ramp = (PERSON_ALPHA - alpha) / (PERSON_ALPHA - CLEAR_ALPHA)
        self._weight_of_alpha = np.clip(ramp, 0, 1).astype(np.float32)
        self._push_pull = PushPull(plan.shape)

    def update(self, matte: NDArray[np.uint8], reduced: AnalysisFrame) -> bool:
        """Take in the next frame: set :attr:`grid` and :attr:`cells`.

        Args:
            matte: (gh, gw) uint8, on the grid: what is filled in.
            reduced: The frame on the analysis frame.

        Returns:
            Whether anything was filled in: False where nobody is in the picture.
        """
        shift = self._up_shift
        np.left_shift(reduced.luma, shift, out=self.grid[0], dtype=np.uint16)
        np.left_shift(reduced.chroma, shift, out=self._chroma, dtype=np.uint16)
        cv2.split(self._chroma, self._chroma_planes)
        for fine, coarse in self._halved:
            halve(fine, coarse)
        border = cv2.BORDER_REPLICATE
        cv2.dilate(matte, self._reach, dst=self.near, anchor=(1, 1), borderType=border)
        weighted = self._push_pull.weighted
        weight = weighted[3]
        np.copyto(self._near_cells, self.near[::2, ::2])
        cv2.LUT(self._near_cells, self._weight_of_alpha, dst=weight)
        if weight.min() == 1:
            return False
        np.multiply(self.cells, weight, out=weighted[:3])
        last = self._last_resort or [cv2.mean(plane)[0] for plane in self.cells]
        filled = self._push_pull.fill(last)
        # Adding a half makes the cut-off a rounding.
        np.add(filled, 0.5, out=self.cells, casting="unsafe")
        return True


class FilledPicture:
    """A frame with its people filled in, at the resolution that a filter asks for."""

    def __init__(self, plan: CellsPlan) -> None:
        self._fill = BackgroundFill(plan.format)
        self._planes = [
            _FinePlane(plan, plane, self._fill, index)
            if plane.source in (Source.GRID, Source.FRAME)
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
        people = self._fill.update(matte.reduced, reduced)
        if self._chroma:
            cv2.split(frame.chroma, self._chroma)
        samples = (frame.luma, *self._chroma) if self._chroma else (frame.luma,) * 3
        luma, cb, cr = (
            plane.update(source, people)
            for plane, source in zip(self._planes, samples, strict=True)
        )
        return luma, cb, cr


class _CoarsePlane:
    """Cells of the filled picture, or averaged further."""

    def __init__(self, plan: PlanePlan, cells: Plane16) -> None:
        self._steps = [cells]
        for _ in range(plan.factor.bit_length() - 1):
            rows, columns = self._steps[-1].shape
            self._steps.append(np.empty(((rows + 1) // 2, (columns + 1) // 2), np.uint16))

    def update(self, samples: Samples, people: bool) -> Plane16:
        for fine, coarse in pairwise(self._steps):
            halve(fine, coarse)
        return self._steps[-1]


class _FinePlane:
    """The analysis frame, or the frame on cells as fine, with the fill laid over people."""

    def __init__(self, plan: CellsPlan, plane: PlanePlan, fill: BackgroundFill, index: int) -> None:
        self._shift = full_scale_shift(plan.format)
        self._reducer: AreaReducer | None = None
        if plane.source is Source.FRAME:
            format = plan.format
            shape = format.luma_shape if index == 0 else format.chroma_shape[:2]
            self._reducer = AreaReducer(*shape, plane.factor, format.dtype)
            self._samples: Samples = np.empty(plane.shape, format.dtype)
            self._plane = np.empty(plane.shape, np.uint16)
        else:
            self._plane = fill.grid[index]
        self._cells, self._near = fill.cells[index], fill.near
        rows, columns = self._cells.shape
        scale = 2 * plane.fine
        self._enlarged = np.empty((rows * scale, columns * scale), np.uint16)
        rows, columns = self._near.shape
        self._mask = np.empty((rows, columns), np.uint8)
        self._large_mask = self._mask
        if plane.fine > 1:
            self._large_mask = np.empty((rows * plane.fine, columns * plane.fine), np.uint8)

    def update(self, samples: Samples, people: bool) -> Plane16:
        plane = self._plane
        if self._reducer is not None:
            self._reducer.reduce(samples, self._samples)
            np.left_shift(self._samples, self._shift, out=plane, dtype=np.uint16)
        if people:
            size = self._enlarged.shape[::-1]
            cv2.resize(self._cells, size, dst=self._enlarged, interpolation=cv2.INTER_LINEAR)
            cv2.threshold(self._near, CLEAR_ALPHA, 255, cv2.THRESH_BINARY, dst=self._mask)
            mask = self._large_mask
            if mask is not self._mask:
                size = mask.shape[::-1]
                cv2.resize(self._mask, size, dst=mask, interpolation=cv2.INTER_NEAREST)
            rows, columns = plane.shape
            cv2.copyTo(self._enlarged[:rows, :columns], mask[:rows, :columns], plane)
        return plane
