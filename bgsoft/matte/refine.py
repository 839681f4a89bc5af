"""Fits the edge of an alpha plane to the edges of the picture: fast colour guided filter.

In every window alpha is taken to be a linear function of luma, Cb and Cr; the function of least
squares is found per window, averaged over the windows that a cell lies in, and evaluated on the
picture. Formulas: K. He, J. Sun, X. Tang, "Guided Image Filtering", PAMI 35(6), 2013, equations
(19) to (21); coefficients on a subsampled grid: K. He, J. Sun, "Fast Guided Filter",
arXiv:1505.00996.

Small windows only: with wide ones the filter blurs the model's edge more than it corrects it.
Three channels place the edge about twice as much better as luma alone does.
"""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.analysis.cpu import halve
from bgsoft.frame import Array
from bgsoft.matte.geometry import grid_unit

__all__ = ["GuidedRefiner"]

_RADIUS = 2.0
"""Box radius in cells of the half grid, for a 270-row grid."""
_EPSILON = 5e-5
"""Variance of the guide, with samples scaled to 0–1, below which it counts as flat: a standard
deviation of 1.8 code values of 8 bits, just above the noise that is left in a cell."""
_STEEPEN = 2.0
"""Slope applied to the result around one half: the filter leaves a faint rim as wide as its
windows beside an edge that it has found."""
_BUFFERS = 24
"""Float planes of half the grid's size."""

# Pairs of guide channels whose products are averaged, row by row of the upper triangle.
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


class GuidedRefiner:
    """Guided filter; coefficients at half the grid's resolution, luma evaluated at the grid's.

    Only the box around everything that is not flat in the alpha plane is worked on.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        """Make the buffers.

        Args:
            shape: (gh, gw) of the grid.
        """
        rows, columns = shape
        half = (-(-rows // 2), -(-columns // 2))
        self._half = half
        self._radius = max(1, round(_RADIUS * grid_unit(shape)))
        self._window = (2 * self._radius + 1, 2 * self._radius + 1)
        self._kernel = np.ones((3, 3), np.uint8)
        self._half_alpha = np.empty(half, np.uint8)
        self._half_luma = np.empty(half, np.uint8)
        self._half_chroma = np.empty((2, *half), np.uint8)
        self._channel = np.empty(shape, np.uint8)
        self._edges = np.empty(half, np.uint8)
        self._planes = np.empty((_BUFFERS, half[0] * half[1]), np.float32)
        self._grid_planes = np.empty((2, 4 * half[0] * half[1]), np.float32)

    def apply(self, alpha: Array, luma: Array, chroma: Array) -> None:
        """Refine a plane in place.

        Args:
            alpha: (gh, gw) uint8; replaced.
            luma: (gh, gw) uint8, the picture.
            chroma: (ch, cw, 2) uint8, the picture; grid-sized, or half that size.
        """
        halve(alpha, self._half_alpha)
        cv2.morphologyEx(self._half_alpha, cv2.MORPH_GRADIENT, self._kernel, dst=self._edges)
        left, top, width, height = cv2.boundingRect(self._edges)
        if width == 0:
            return
        halve(luma, self._half_luma)
        for channel, half_channel in enumerate(self._half_chroma):
            if chroma.shape[:2] == self._half:
                cv2.extractChannel(chroma, channel, dst=half_channel)
            else:
                # Averaging single planes is several times faster than an interleaved pair.
                cv2.extractChannel(chroma, channel, dst=self._channel)
                halve(self._channel, half_channel)
        # Beyond two radii from the last uneven cell the filter changes nothing.
        margin = 2 * self._radius + 1
        box = (
            slice(max(0, top - margin), min(self._half[0], top + height + margin)),
            slice(max(0, left - margin), min(self._half[1], left + width + margin)),
        )
        slope, rest = self._coefficients(
            self._half_alpha[box], self._half_luma[box], self._half_chroma[:, *box]
        )
        self._evaluate(slope, rest, alpha, luma, box)

    def _coefficients(self, alpha: Array, luma: Array, chroma: Array) -> tuple[Array, Array]:
        """Fit alpha in every window.

        Args:
            alpha: (h, w) uint8.
            luma: (h, w) uint8.
            chroma: (2, h, w) uint8.

        Returns:
            Two (h, w) float32 planes: the averaged factor of luma, and the rest of the averaged
            function (Cb, Cr and constant part) evaluated on this picture; alpha scaled to 0–1.
        """
        shape = alpha.shape
        planes = self._planes[:, : alpha.size].reshape(_BUFFERS, *shape)
        guide, mean_guide = planes[0:3], planes[3:6]
        plane, mean_plane, product = planes[6], planes[7], planes[8]
        cov, sigma = planes[9:12], planes[12:18]
        scale = np.float32(1.0 / 255.0)
        np.multiply(luma, scale, out=guide[0])
        np.multiply(chroma[0], scale, out=guide[1])
        np.multiply(chroma[1], scale, out=guide[2])
        np.multiply(alpha, scale, out=plane)
        self._mean(plane, mean_plane)
        for channel in range(3):
            self._mean(guide[channel], mean_guide[channel])
            np.multiply(guide[channel], plane, out=product)
            self._mean(product, cov[channel])
            np.multiply(mean_guide[channel], mean_plane, out=product)
            cov[channel] -= product
        for target, (i, j) in zip(sigma, _PAIRS, strict=True):
            np.multiply(guide[i], guide[j], out=product)
            self._mean(product, target)
            np.multiply(mean_guide[i], mean_guide[j], out=product)
            target -= product
            if i == j:
                target += np.float32(_EPSILON)
        factors = _solve(sigma, cov, planes[18:24])
        # The constant part: mean(alpha) − factors · mean(guide).
        for channel in range(3):
            np.multiply(factors[channel], mean_guide[channel], out=product)
            mean_plane -= product
        rest, averaged = plane, product
        self._mean(mean_plane, rest)
        for channel in (1, 2):
            self._mean(factors[channel], averaged)
            averaged *= guide[channel]
            rest += averaged
        self._mean(factors[0], averaged)
        return averaged, rest

    def _evaluate(
        self, slope: Array, rest: Array, alpha: Array, luma: Array, box: tuple[slice, slice]
    ) -> None:
        """Write ``slope · luma + rest``, enlarged to the grid, into alpha inside the box."""
        height, width = slope.shape
        big = self._grid_planes[:, : 4 * slope.size].reshape(2, 2 * height, 2 * width)
        cv2.resize(slope, (2 * width, 2 * height), dst=big[0], interpolation=cv2.INTER_LINEAR)
        cv2.resize(rest, (2 * width, 2 * height), dst=big[1], interpolation=cv2.INTER_LINEAR)
        # Where a side of the grid is odd, the last half cell reaches over its edge.
        top, left = 2 * box[0].start, 2 * box[1].start
        target = alpha[top : top + 2 * height, left : left + 2 * width]
        height, width = target.shape
        big = big[:, :height, :width]
        big[0] *= luma[top : top + height, left : left + width]
        # Luma counts 0–255 here, so its term has alpha's scale already.
        offset = 127.5 * (1.0 - _STEEPEN)
        cv2.addWeighted(
            big[0], _STEEPEN, big[1], 255.0 * _STEEPEN, offset, dst=target, dtype=cv2.CV_8U
        )

    def _mean(self, plane: Array, out: Array) -> None:
        cv2.blur(plane, self._window, dst=out, borderType=cv2.BORDER_REPLICATE)


def _solve(sigma: Array, cov: Array, scratch: Array) -> Array:
    """Solve the symmetric 3×3 system of every cell: L·D·Lᵀ factorisation, forward, back.

    Args:
        sigma: (6, h, w) float32, upper triangle row by row, positive definite; overwritten.
        cov: (3, h, w) float32, right-hand sides; replaced by the solution.
        scratch: (6, h, w) float32.

    Returns:
        ``cov``.
    """
    d0, s01, s02, d1, s12, d2 = sigma
    y0, y1, y2 = cov
    l10, l20, l21, product = scratch[:4]
    np.divide(s01, d0, out=l10)
    np.divide(s02, d0, out=l20)
    np.multiply(l10, s01, out=product)
    d1 -= product
    np.multiply(l10, s02, out=product)
    s12 -= product
    np.divide(s12, d1, out=l21)
    np.multiply(l20, s02, out=product)
    d2 -= product
    np.multiply(l21, s12, out=product)
    d2 -= product
    np.multiply(l10, y0, out=product)
    y1 -= product
    np.multiply(l20, y0, out=product)
    y2 -= product
    np.multiply(l21, y1, out=product)
    y2 -= product
    y2 /= d2
    y1 /= d1
    np.multiply(l21, y2, out=product)
    y1 -= product
    y0 /= d0
    np.multiply(l10, y1, out=product)
    y0 -= product
    np.multiply(l20, y2, out=product)
    y0 -= product
    return cov
