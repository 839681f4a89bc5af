"""Gaussian blur of the background."""

from __future__ import annotations

import math

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor
from bgsoft.composite.picture import FilledPicture
from bgsoft.composite.upsample import GridBackground
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["BlurBackground", "blur_factor"]

_MIN_SIGMA_CELLS = 1.25
_MIN_SIGMA_COARSE_CELLS = 2.25
"""Standard deviation of the blur in cells: enough of them that bilinear enlargement leaves no
traces (it is off by 1 / 8σ² of the local contrast), few enough that kernels stay small."""
_MIN_CHROMA_SIGMA_CELLS = 0.75
"""The same for chroma of twice as large cells: the eye does not see colour as sharp."""


def blur_factor(sigma_px: float, grid: int) -> int:
    """Size of the cells that a blur works on.

    Args:
        sigma_px: Standard deviation, frame pixels.
        grid: The analysis grid's factor. Finer cells cost more, coarser ones next to nothing.

    Returns:
        Luma pixels per cell, each way, a power of two.
    """
    factor = 1
    while True:
        wanted = _MIN_SIGMA_CELLS if factor < grid else _MIN_SIGMA_COARSE_CELLS
        if sigma_px < wanted * factor * 2:
            return factor
        factor *= 2


class BlurBackground(GridBackground):
    """The frame's own background, blurred.

    Args:
        format: Format of every frame.
        sigma_px: Standard deviation, frame pixels, above 0.
        shared: See :class:`bgsoft.composite.upsample.GridBackground`.
    """

    def __init__(
        self, format: FrameFormat, sigma_px: float, shared: BlurBackground | None = None
    ) -> None:
        grid = grid_factor(format.width, format.height)
        factor = blur_factor(sigma_px, grid)
        chroma_factor = max(2, factor)
        if factor <= grid and sigma_px >= _MIN_CHROMA_SIGMA_CELLS * 2 * factor:
            chroma_factor = 2 * factor
        self._picture = FilledPicture(format, factor, chroma_factor)
        super().__init__(format, factor, chroma_factor, shared)
        chroma_sigma = _sigma_cells(sigma_px, chroma_factor, native=2)
        self._sigmas = (_sigma_cells(sigma_px, factor, native=1), chroma_sigma, chroma_sigma)
        shapes = self._picture.shapes
        self._unblurred = [np.empty(shape, np.float32) for shape in shapes]
        self._blurred = [np.empty(shape, np.float32) for shape in shapes]
        self._chroma = [np.empty(shape, np.uint16) for shape in shapes[1:]]

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        planes = self._picture.update(frame, matte, reduced)
        luma, chroma = self.cells
        for index, (plane, target) in enumerate(zip(planes, (luma, *self._chroma), strict=True)):
            cells, blurred = self._unblurred[index], self._blurred[index]
            np.copyto(cells, plane)
            sigma = self._sigmas[index]
            size = 2 * math.ceil(3 * sigma) + 1
            cv2.GaussianBlur(cells, (size, size), sigma, dst=blurred, borderType=cv2.BORDER_REFLECT)
            np.add(blurred, 0.5, out=blurred)
            np.copyto(target, blurred, casting="unsafe")
        cv2.merge(self._chroma, chroma)


def _sigma_cells(sigma_px: float, cell: int, native: int) -> float:
    """Standard deviation left for the kernel, in cells.

    Averaging over a cell blurs too, by a variance of 1/12 cells², and bilinear enlargement by 1/6.
    """
    variance = (sigma_px / cell) ** 2
    if cell > native:
        variance -= 1 / 4
    return math.sqrt(max(variance, 0.01))
