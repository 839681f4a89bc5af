"""The edge: its fit to the picture, smoothing of the contour, dilation and feather.

The fit is a fast colour guided filter. In every window alpha is taken to be a linear function of
luma, Cb and Cr; the function of least squares is found per window, averaged over the windows that a
cell lies in, and evaluated on the picture. Formulas: K. He, J. Sun, X. Tang, "Guided Image
Filtering", PAMI 35(6), 2013, equations (19) to (21); coefficients on a subsampled grid: K. He,
J. Sun, "Fast Guided Filter", arXiv:1505.00996.

Small windows only: with wide ones the filter blurs the model's edge more than it corrects it.
Three channels place the edge about twice as much better as luma alone does.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from bgsoft.analysis.cpu import halve
from bgsoft.frame import Array
from bgsoft.matte.plan import (
    ContourPlan,
    DilationPlan,
    FeatherPlan,
    GuidedPlan,
    SmoothPlan,
    half_shape,
)

_STRIP_ROWS = 64
"""Rows of half the plane that are evaluated together: they stay in the cache."""

# Pairs of guide channels whose products are averaged, row by row of the upper triangle.
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


class GuidedFilter:
    """Guided filter; coefficients at half the plane's resolution, luma evaluated at the plane's.

    Only the box around everything that is not flat in the alpha plane is worked on.
    """

    def __init__(self, plan: GuidedPlan) -> None:
        half = half_shape(plan.shape)
        fits = half if plan.spacing == 1 else half_shape(half)
        self._half = half
        self._plan = plan
        self._window = (2 * plan.radius + 1, 2 * plan.radius + 1)
        self._kernel = np.ones((3, 3), np.uint8)
        self._half_alpha = np.empty(half, np.uint8)
        self._half_luma = np.empty(half, np.uint8)
        self._half_chroma = np.empty((2, *half), np.uint8)
        self._channel = np.empty(plan.shape, np.uint8)
        self._edges = np.empty(half, np.uint8)
        self._half_planes = np.empty((6, half[0] * half[1]), np.float32)
        self._fit_planes = np.empty((19, fits[0] * fits[1]), np.float32)
        self._enlarged = np.empty(4 * fits[0] * fits[1], np.float32)
        rows = min(half[0], _STRIP_ROWS + 2)
        self._strip = np.empty((2, 4 * rows * half[1]), np.float32)

    def apply(self, alpha: Array, luma: Array, chroma: Array) -> None:
        """Refine a plane in place.

        Args:
            alpha: (rows, columns) uint8; replaced.
            luma: (rows, columns) uint8, the picture.
            chroma: (ch, cw, 2) uint8, the picture; of the same size, or half of it.
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
        box = (
            self._stretch(top, height, self._half[0]),
            self._stretch(left, width, self._half[1]),
        )
        slope, rest = self._coefficients(
            self._half_alpha[box], self._half_luma[box], self._half_chroma[:, *box]
        )
        self._evaluate(slope, rest, alpha, luma, box)

    def _stretch(self, first: int, count: int, size: int) -> slice:
        """What the filter may change along one side, in whole windows."""
        margin, spacing = self._plan.margin, self._plan.spacing
        start = max(0, first - margin) // spacing * spacing
        return slice(start, min(-(-(first + count + margin) // spacing) * spacing, size))

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
        fits = shape if self._plan.spacing == 1 else half_shape(shape)
        half_planes = _planes(self._half_planes, shape)
        guide, plane, product = half_planes[0:3], half_planes[3], half_planes[4]
        planes = _planes(self._fit_planes, fits)
        mean_guide, mean_plane, scratch = planes[0:3], planes[3], planes[4]
        cov, sigma = planes[5:8], planes[8:14]
        for source, target in zip((luma, *chroma, alpha), (*guide, plane), strict=True):
            np.multiply(source, np.float32(1.0 / 255.0), out=target)
        self._mean(plane, mean_plane)
        for channel in range(3):
            self._mean(guide[channel], mean_guide[channel])
            np.multiply(guide[channel], plane, out=product)
            self._mean(product, cov[channel])
            _subtract_product(cov[channel], mean_guide[channel], mean_plane, scratch)
        for target, (i, j) in zip(sigma, _PAIRS, strict=True):
            np.multiply(guide[i], guide[j], out=product)
            self._mean(product, target)
            _subtract_product(target, mean_guide[i], mean_guide[j], scratch)
            if i == j:
                target += np.float32(self._plan.epsilon)
        factors = _solve(sigma, cov, planes[14:18])
        # The constant part: mean(alpha) − factors · mean(guide).
        for channel in range(3):
            _subtract_product(mean_plane, factors[channel], mean_guide[channel], scratch)
        slope, rest, averaged = plane, half_planes[5], product
        self._mean_of_fits(mean_plane, rest)
        for channel in (1, 2):
            self._mean_of_fits(factors[channel], averaged)
            averaged *= guide[channel]
            rest += averaged
        self._mean_of_fits(factors[0], slope)
        return slope, rest

    def _evaluate(
        self, slope: Array, rest: Array, alpha: Array, luma: Array, box: tuple[slice, slice]
    ) -> None:
        """Write ``slope · luma + rest``, enlarged to the plane, into alpha inside the box."""
        rows, width = slope.shape
        left = 2 * box[1].start
        factor, offset = self._plan.steepen, self._plan.offset
        for first in range(0, rows, _STRIP_ROWS):
            last = min(first + _STRIP_ROWS, rows)
            # A row more on each side: what is enlarged looks at its neighbours.
            above = max(first - 1, 0)
            part = slice(above, min(last + 1, rows))
            shape = (2 * (part.stop - part.start), 2 * width)
            big = _planes(self._strip, shape)
            for source, target in zip((slope, rest), big, strict=True):
                size = shape[::-1]
                cv2.resize(source[part], size, dst=target, interpolation=cv2.INTER_LINEAR)
            # Where a side of the plane is odd, the last half cell reaches over its edge.
            top = 2 * (box[0].start + first)
            strip = np.s_[top : top + 2 * (last - first), left : left + 2 * width]
            target = alpha[strip]
            height, columns = target.shape
            skip = 2 * (first - above)
            big = big[:, skip : skip + height, :columns]
            big[0] *= luma[strip]
            # Luma counts 0–255 here, so its term has alpha's scale already.
            cv2.addWeighted(
                big[0], factor, big[1], 255.0 * factor, offset, dst=target, dtype=cv2.CV_8U
            )

    def _mean(self, plane: Array, out: Array) -> None:
        """Average (h, w) over the windows."""
        if plane.shape != out.shape:
            halve(plane, out)
            plane = out
        cv2.blur(plane, self._window, dst=out, borderType=cv2.BORDER_REPLICATE)

    def _mean_of_fits(self, plane: Array, out: Array) -> None:
        """Average what was found for each window over those that a cell of (h, w) lies in."""
        if plane.shape == out.shape:
            self._mean(plane, out)
            return
        self._mean(plane, plane)
        rows, columns = plane.shape
        big = _planes(self._enlarged[None], (2 * rows, 2 * columns))[0]
        cv2.resize(plane, big.shape[::-1], dst=big, interpolation=cv2.INTER_LINEAR)
        np.copyto(out, big[: out.shape[0], : out.shape[1]])


def _planes(buffers: Array, shape: tuple[int, ...]) -> Array:
    """(n, h, w), contiguous, in (n, size) buffers of at least that size."""
    rows, columns = shape
    return buffers[:, : rows * columns].reshape(-1, rows, columns)


def _subtract_product(target: Array, a: Array, b: Array, scratch: Array) -> None:
    """``target −= a · b``."""
    np.multiply(a, b, out=scratch)
    target -= scratch


def _solve(sigma: Array, cov: Array, scratch: Array) -> Array:
    """Solve the symmetric 3×3 system of every cell: L·D·Lᵀ factorisation, forward, back.

    Args:
        sigma: (6, h, w) float32, upper triangle row by row, positive definite; overwritten.
        cov: (3, h, w) float32, right-hand sides; replaced by the solution.
        scratch: (4, h, w) float32.

    Returns:
        ``cov``.
    """
    d0, s01, s02, d1, s12, d2 = sigma
    y0, y1, y2 = cov
    l10, l20, l21, product = scratch
    np.divide(s01, d0, out=l10)
    np.divide(s02, d0, out=l20)
    _subtract_product(d1, l10, s01, product)
    _subtract_product(s12, l10, s02, product)
    np.divide(s12, d1, out=l21)
    _subtract_product(d2, l20, s02, product)
    _subtract_product(d2, l21, s12, product)
    _subtract_product(y1, l10, y0, product)
    _subtract_product(y2, l20, y0, product)
    _subtract_product(y2, l21, y1, product)
    y2 /= d2
    y1 /= d1
    _subtract_product(y1, l21, y2, product)
    y0 /= d0
    _subtract_product(y0, l10, y1, product)
    _subtract_product(y0, l20, y2, product)
    return cov


class ContourSmoother:
    """Rounds off ragged contours: a Gaussian, then a steeper ramp that restores the edge width."""

    def __init__(self, plan: SmoothPlan) -> None:
        self._sigma, self._slope, self._offset = plan.sigma, plan.slope, plan.offset
        self._window = (2 * plan.radius + 1, 2 * plan.radius + 1)
        self._scratch = np.empty(plan.shape, np.uint8)

    def apply(self, alpha: Array) -> None:
        """Smooth a plane in place: (gh, gw) uint8."""
        blurred = self._scratch
        border = cv2.BORDER_REPLICATE
        cv2.GaussianBlur(alpha, self._window, self._sigma, dst=blurred, borderType=border)
        cv2.addWeighted(blurred, self._slope, blurred, 0.0, self._offset, dst=alpha)


class Dilation:
    """Grey dilation, or erosion, by a fractional number of cells."""

    def __init__(self, plan: DilationPlan) -> None:
        self._plan = plan
        self._morph = cv2.dilate if plan.outwards else cv2.erode
        self._buffers = np.empty((2, *plan.shape), np.uint8)

    def apply(self, alpha: Array) -> None:
        """Move the edge of a plane in place: (rows, columns) uint8."""
        *whole, last = self._plan.kernels
        fraction = self._plan.fraction
        source = alpha
        for step, kernel in enumerate(whole):
            target = self._buffers[step % 2]
            self._morph(source, kernel, dst=target)
            source = target
        if fraction > 0.0:
            target = self._buffers[len(whole) % 2]
            self._morph(source, last, dst=target)
            cv2.addWeighted(source, 1.0 - fraction, target, fraction, 0.0, dst=alpha)
        elif source is not alpha:
            np.copyto(alpha, source)


class Feather:
    """A soft rim outside the person; nothing inside is lowered."""

    def __init__(self, plan: FeatherPlan) -> None:
        self._dilation = Dilation(plan.dilation)
        self._window = (2 * plan.radius + 1, 2 * plan.radius + 1)
        self._small, self._scratch = np.empty((2, *plan.dilation.shape), np.uint8)
        self._rim = np.empty(plan.shape, np.uint8)

    def apply(self, alpha: Array) -> None:
        """Add the rim to a plane in place: (rows, columns) uint8."""
        small, size = self._small, self._rim.shape[::-1]
        cv2.resize(alpha, small.shape[::-1], dst=small, interpolation=cv2.INTER_AREA)
        self._dilation.apply(small)
        # Two boxes make a quadratic spline: no kink at either end of the rim.
        cv2.blur(small, self._window, dst=self._scratch)
        cv2.blur(self._scratch, self._window, dst=small)
        cv2.resize(small, size, dst=self._rim, interpolation=cv2.INTER_LINEAR)
        cv2.max(alpha, self._rim, dst=alpha)


def contour_steps(plans: Sequence[ContourPlan]) -> list[Dilation | Feather]:
    """What moves the edge on purpose."""
    return [Dilation(p) if isinstance(p, DilationPlan) else Feather(p) for p in plans]
