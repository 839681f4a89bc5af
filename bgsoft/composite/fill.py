"""The picture without its people: what is behind them is filled in from around them.

A background filter that looked at a person's samples would smear their colours around them, as a
halo. So people are cut out first, generously, and the hole is closed by push-pull interpolation:
S. Gortler et al., "The Lumigraph", SIGGRAPH 1996, section 3.4. The filter then works on a
complete picture and needs no mask. The fill is only ever seen blurred, close to a person's edge.
"""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.analysis.cpu import Samples, halve
from bgsoft.composite.upsample import full_scale_shift
from bgsoft.frame import FrameFormat, Matte, Reduced

__all__ = ["CLEAR_ALPHA", "BackgroundFill", "CellPlanes", "PushPull"]

CellPlanes = tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]
"""Luma, Cb and Cr, 16-bit full scale."""

CLEAR_ALPHA = 8
_PERSON_ALPHA = 40
"""Grid cells count as background in full up to the first, not at all from the second on."""
_LAST_RESORT = 1e-4
"""Weight of the whole picture's mean against that of the background; decides only where (almost)
no background is to be seen."""
_REST_OF_WEIGHT = np.array([[0, 0, 0, -1, 1]] * 4, np.float32)
"""For ``cv2.transform``: one less the fourth channel, in each channel."""


class PushPull:
    """Fills holes in three planes of the same size from around them.

    Args:
        shape: (h, w) of the planes.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.weighted = np.empty((4, *shape), np.float32)
        """Input: three planes, each times the weight, and the weight in [0, 1]."""
        self._result = np.empty((4, *shape), np.float32)
        # The four interleaved: most levels are so small that every call counts.
        self._levels = [np.empty((*shape, 4), np.float32)]
        while max(shape) > 2:
            shape = ((shape[0] + 1) // 2, (shape[1] + 1) // 2)
            self._levels.append(np.empty((*shape, 4), np.float32))
        self._filled = [np.empty_like(level) for level in self._levels]
        self._rest = [np.empty_like(level) for level in self._levels]

    def fill(self, last_resort: tuple[float, ...]) -> NDArray[np.float32]:
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
        # Pull: lay each level over the coarser one, which shows where the weight is below one.
        *means, weight = cv2.mean(self._levels[-1])
        total = weight + _LAST_RESORT
        mixed = zip(means, last_resort, strict=True)
        color = [(mean + _LAST_RESORT * last) / total for mean, last in mixed]
        self._filled[-1][:] = (*color, 1)
        self._lay_over(-1)
        for index in range(len(self._levels) - 2, -1, -1):
            filled = self._filled[index]
            size = filled.shape[1::-1]
            cv2.resize(self._filled[index + 1], size, dst=filled, interpolation=cv2.INTER_LINEAR)
            self._lay_over(index)
        cv2.split(self._filled[0], [*self._result])
        return self._result[:3]

    def _lay_over(self, index: int) -> None:
        """``filled ← weighted + (1 − weight) · filled``, whose weight is and stays one."""
        weighted, filled, rest = self._levels[index], self._filled[index], self._rest[index]
        cv2.transform(weighted, _REST_OF_WEIGHT, dst=rest)
        cv2.multiply(filled, rest, dst=filled)
        cv2.add(filled, weighted, dst=filled)


class BackgroundFill:
    """Fills people in on a grid with cells twice as large as those of the analysis grid.

    Args:
        format: Format of every frame.
        last_resort: Luma, Cb and Cr to fill in where there is nothing to fill in from, 16-bit full
            scale; None: the whole picture's mean.
    """

    def __init__(
        self, format: FrameFormat, last_resort: tuple[float, float, float] | None = None
    ) -> None:
        self._last_resort = last_resort
        self._up_shift = full_scale_shift(format)
        grid_rows, grid_columns = grid_shape(format.width, format.height)
        self.factor = 2 * grid_factor(format.width, format.height)
        """Luma pixels per cell, each way."""
        shape = ((grid_rows + 1) // 2, (grid_columns + 1) // 2)
        self._grid_has_chroma = self.factor > 2
        chroma_shape = (grid_rows, grid_columns) if self._grid_has_chroma else shape
        self._chroma_samples = [np.empty(chroma_shape, format.dtype) for _ in "br"]
        self.grid: CellPlanes = (
            np.empty((grid_rows, grid_columns), np.uint16),
            np.empty(chroma_shape, np.uint16),
            np.empty(chroma_shape, np.uint16),
        )
        """The analysis grid at 16-bit full scale, people included."""
        self.cells: CellPlanes = (
            np.empty(shape, np.uint16),
            np.empty(shape, np.uint16),
            np.empty(shape, np.uint16),
        )
        """The picture on twice as large cells, people filled in."""
        # Sees one grid cell beyond the larger cell, since cells next to a person are mixed.
        self._reach = np.ones((4, 4), np.uint8)
        self.near = np.empty((grid_rows, grid_columns), np.uint8)
        """Largest matte sample around each grid cell; above CLEAR_ALPHA it is filled in."""
        self._near_cells = np.empty(shape, np.uint8)
        alpha = np.arange(256, dtype=np.float32)
        ramp = (_PERSON_ALPHA - alpha) / (_PERSON_ALPHA - CLEAR_ALPHA)
        self._weight_of_alpha = np.clip(ramp, 0, 1).astype(np.float32)
        self._push_pull = PushPull(shape)

    def update(self, matte: Matte, reduced: Reduced) -> bool:
        """Take in the next frame: set :attr:`grid` and :attr:`cells`.

        Args:
            matte: Its matte.
            reduced: The frame on the analysis grid.

        Returns:
            Whether anything was filled in: False where nobody is in the picture.

        Raises:
            ValueError: ``reduced`` is not the grid of this format.
        """
        if matte.reduced.shape != self.grid[0].shape or reduced.luma.shape != self.grid[0].shape:
            raise ValueError(
                f"matte and picture are {matte.reduced.shape} and {reduced.luma.shape} "
                f"on a grid of {self.grid[0].shape}"
            )
        cv2.split(reduced.chroma, self._chroma_samples)
        sources: tuple[Samples, ...] = (reduced.luma, *self._chroma_samples)
        for source, plane in zip(sources, self.grid, strict=True):
            np.left_shift(source, self._up_shift, out=plane, dtype=np.uint16)
        halve(self.grid[0], self.cells[0])
        for plane, cells in zip(self.grid[1:], self.cells[1:], strict=True):
            if self._grid_has_chroma:
                halve(plane, cells)
            else:
                np.copyto(cells, plane)
        cv2.dilate(
            matte.reduced,
            self._reach,
            dst=self.near,
            anchor=(1, 1),
            borderType=cv2.BORDER_REPLICATE,
        )
        weighted = self._push_pull.weighted
        weight = weighted[3]
        np.copyto(self._near_cells, self.near[::2, ::2])
        cv2.LUT(self._near_cells, self._weight_of_alpha, dst=weight)
        if weight.min() == 1:
            return False
        for target, cells in zip(weighted, self.cells, strict=False):
            np.multiply(cells, weight, out=target)
        last = self._last_resort or tuple(cv2.mean(cells)[0] for cells in self.cells)
        filled = self._push_pull.fill(last)
        # Adding a half makes the cut-off a rounding.
        np.add(filled, 0.5, out=filled)
        for plane, cells in zip(filled, self.cells, strict=True):
            np.copyto(cells, plane, casting="unsafe")
        return True
