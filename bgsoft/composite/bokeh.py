"""Lens-like defocus of the background: every point becomes a disc, highlights bloom."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor
from bgsoft.composite.picture import FilledPicture
from bgsoft.composite.upsample import GridBackground
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["BokehBackground", "bokeh_factor", "disc_kernel"]

_MIN_RADIUS_CELLS = 2.5
"""The grid is fine enough for discs of this radius; smaller ones take finer cells."""
_MAX_RADIUS_CELLS = 16.0
"""Larger discs take coarser cells: their rim stays sharper than a tenth of the radius."""
_HIGHLIGHT_GAIN = 14.0
_HIGHLIGHT_POWER = 6.0
"""A sample of luma y in [0, 1] counts 1 + highlights · gain · y^power times. At the power of
about two this is the average of light instead of code values; more lets discs stand out as they
do where a sensor had clipped what was much brighter than white."""
_SUPERSAMPLING = 16
_FULL_SCALE = 65536.0


def bokeh_factor(radius_px: float, grid: int) -> int:
    """Size of the cells that a disc of this radius is drawn with.

    Args:
        radius_px: Radius, frame pixels.
        grid: The analysis grid's factor.

    Returns:
        Luma pixels per cell, each way, a power of two.
    """
    factor = grid
    while factor > 1 and radius_px < _MIN_RADIUS_CELLS * factor:
        factor //= 2
    while radius_px > _MAX_RADIUS_CELLS * factor:
        factor *= 2
    return factor


def disc_kernel(radius: float) -> NDArray[np.float32]:
    """A disc whose rim is anti-aliased by the share of each cell that it covers.

    Args:
        radius: Radius in cells, above 0.

    Returns:
        (n, n) float32, n odd, sum 1.
    """
    if radius <= 0.5:
        return np.ones((1, 1), np.float32)
    reach = int(np.ceil(radius - 0.5))
    side = 2 * reach + 1
    fine = (np.arange(side * _SUPERSAMPLING) + 0.5) / _SUPERSAMPLING - side / 2
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2
    shares = inside.reshape(side, _SUPERSAMPLING, side, _SUPERSAMPLING).mean(axis=(1, 3))
    kernel: NDArray[np.float32] = (shares / shares.sum()).astype(np.float32)
    return kernel


class _DiscFilter:
    """Averages two planes at once over discs, in the frequency domain.

    That costs the same for any radius. The two planes travel as the real and the imaginary part;
    a disc is symmetric, so its spectrum is real and keeps them apart.
    """

    def __init__(self, shape: tuple[int, int], radius: float) -> None:
        kernel = disc_kernel(radius)
        self._reach = reach = kernel.shape[0] // 2
        rows, columns = (cv2.getOptimalDFTSize(side + 2 * reach) for side in shape)
        self._shape = shape
        spot = np.zeros((rows, columns), np.float32)
        spot[: kernel.shape[0], : kernel.shape[1]] = kernel
        spot = np.roll(spot, (-reach, -reach), axis=(0, 1))
        spectrum = cv2.dft(spot, flags=cv2.DFT_COMPLEX_OUTPUT)[..., :1]
        self._spectrum = np.repeat(spectrum, 2, axis=2)
        self._pair = np.empty((*shape, 2), np.float32)
        self._padded = np.empty((rows, columns, 2), np.float32)

    def average(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> None:
        """Average both planes, in place."""
        cv2.merge((first, second), self._pair)
        rows, columns = self._shape
        padded, reach = self._padded, self._reach
        below, right = padded.shape[0] - rows - reach, padded.shape[1] - columns - reach
        cv2.copyMakeBorder(self._pair, reach, below, reach, right, cv2.BORDER_REFLECT, dst=padded)
        cv2.dft(padded, dst=padded)
        np.multiply(padded, self._spectrum, out=padded)
        cv2.dft(padded, dst=padded, flags=cv2.DFT_INVERSE | cv2.DFT_SCALE)
        cv2.split(padded[reach : reach + rows, reach : reach + columns], (first, second))


class BokehBackground(GridBackground):
    """The frame's own background, out of focus.

    Args:
        format: Format of every frame.
        radius_px: Radius of the disc that a point becomes (circle of confusion), frame pixels,
            above 0.
        highlights: How much highlights bloom, 0–1.
        shared: See :class:`bgsoft.composite.upsample.GridBackground`.
    """

    def __init__(
        self,
        format: FrameFormat,
        radius_px: float,
        highlights: float,
        shared: BokehBackground | None = None,
    ) -> None:
        factor = bokeh_factor(radius_px, grid_factor(format.width, format.height))
        self._picture = FilledPicture(format, factor, max(factor, 2))
        super().__init__(format, factor, max(factor, 2), shared)
        self._gain = highlights * _HIGHLIGHT_GAIN
        scale = 1 << (8 if format.bytes_per_sample == 1 else 0)
        black, white = (sample * scale for sample in format.luma_range)
        self._black, self._luma_span = float(black), float(white - black)
        luma_shape, chroma_shape, _ = self._picture.shapes
        self._luma_disc = _DiscFilter(luma_shape, radius_px / factor)
        self._same_shape = factor > 1
        self._chroma_disc = (
            self._luma_disc if self._same_shape else _DiscFilter(chroma_shape, radius_px / 2)
        )
        self._weighted = [np.empty(shape, np.float32) for shape in self._picture.shapes]
        self._weight = np.empty(luma_shape, np.float32)
        self._chroma_weight = (
            self._weight if self._same_shape else np.empty(chroma_shape, np.float32)
        )
        self._idle = np.zeros(chroma_shape, np.float32)
        self._chroma = [np.empty(chroma_shape, np.uint16) for _ in "br"]

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        cells = self._picture.update(frame, matte, reduced)
        luma, cb, cr = self._weighted
        weight, chroma_weight = self._weight, self._chroma_weight
        # weight ← 1 + gain · y^power
        np.subtract(cells[0], self._black, out=weight)
        np.divide(weight, self._luma_span, out=weight)
        np.clip(weight, 0, 1, out=weight)
        cv2.pow(weight, _HIGHLIGHT_POWER, dst=weight)
        np.multiply(weight, self._gain, out=weight)
        np.add(weight, 1, out=weight)
        if not self._same_shape:
            size = chroma_weight.shape[::-1]
            cv2.resize(weight, size, dst=chroma_weight, interpolation=cv2.INTER_AREA)
        weights = (weight, chroma_weight, chroma_weight)
        for plane, cell, by in zip(self._weighted, cells, weights, strict=True):
            np.multiply(cell, by, out=plane)
        # Planes that are transformed together must be of like magnitude: rounding errors of the
        # larger one reach the smaller one. So the weight is brought to full scale too.
        np.multiply(weight, _FULL_SCALE, out=weight)
        self._chroma_disc.average(cb, cr)
        self._luma_disc.average(luma, weight)
        np.multiply(weight, 1 / _FULL_SCALE, out=weight)
        if not self._same_shape:
            self._chroma_disc.average(chroma_weight, self._idle)
        targets = (self.cells[0], *self._chroma)
        for plane, by, target in zip(self._weighted, weights, targets, strict=True):
            np.divide(plane, by, out=plane)
            np.add(plane, 0.5, out=plane)
            np.copyto(target, plane, casting="unsafe")
        cv2.merge(self._chroma, self.cells[1])
