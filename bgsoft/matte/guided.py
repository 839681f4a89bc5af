"""The fit of the edge to the picture, and smoothing of the contour.

The fit is a fast colour guided filter. In every window alpha is taken to be a linear function of
luma, Cb and Cr; the function of least squares is found per window, averaged over the windows that a
cell lies in, and evaluated on the picture. Formulas: K. He, J. Sun, X. Tang, "Guided Image
Filtering", PAMI 35(6), 2013, equations (19) to (21); coefficients on a subsampled grid: K. He,
J. Sun, "Fast Guided Filter", arXiv:1505.00996.

Small windows only: with wide ones the filter blurs the model's edge more than it corrects it.
Three channels place the edge about twice as much better as luma alone does.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Array
from bgsoft.matte.contour import Shape
from bgsoft.matte.islands import half_shape
from bgsoft.ops.sides import Side

_MOMENTS = 13
"""Sums that the fit of a window needs, as in ``bgsoft/ops/window_fit.cuh``."""
_RADIUS = 2.0
"""Of the windows, in cells of half a grid of 270 rows."""
_EPSILON = 5e-5
"""Variance of the guide, with samples scaled to 0–1, below which it counts as flat: a standard
deviation of 1.8 code values of 8 bits, just above the noise that is left in a cell."""
_STEEPEN = (2.0, 1.5)
"""Slope applied to the result around one half: it leaves a faint rim as wide as its windows beside
an edge that it has found. The second on the frame, where windows are less coarse: with 2, edges of
people who move before a room, in 360 lines, were further from the truth (gradient error 7.8 against
7.1)."""
_SMOOTH_SIGMA = 2.4
"""Gaussian at smooth = 1, in cells of a grid of 270 rows; it grows with the square of smooth."""
_EDGE_WIDTH = 4.0
"""Width of an edge's ramp that smoothing keeps, in the same."""


class EdgeFitter:
    """Guided filter and contour smoothing of planes of one shape.

    Coefficients are at half the plane's resolution, luma is evaluated at the plane's. On the host
    only the box around everything that is not flat in the alpha plane is worked on.

    Args:
        side: Where it is done.
        shape: (rows, columns) of the planes.
        chroma_shape: Of their chroma: the same, or half of it.
        spacing: Of the windows' centres, in cells of half the plane: 1, or 2 on the frame; 0: the
            edge is not fitted.
        smooth: How much the contour is smoothed, 0 (off) to 1.
    """

    def __init__(
        self, side: Side, shape: Shape, chroma_shape: Shape, *, spacing: int, smooth: float = 0.0
    ) -> None:
        self._side, self._shape = side, shape
        self._half = half = half_shape(shape)
        weights, *ramp = contour_smoothing(shape, smooth)
        reach = len(weights) // 2
        self._evaluate = side.operation("matte_smooth", "evaluate_smooth")
        # Lines of the kernels; see there.
        size = (6 + reach) * (2 * half[1] + 2 * reach + 4)
        self._limits = side.xp.zeros(4, np.int32)
        self._terms: Array | None = None
        margin, steepen = 0, 1.0
        if spacing:
            radius = max(1, round(_RADIUS * min(shape) / (270 * spacing)))
            # The filter changes nothing beyond so many cells from the last uneven one.
            margin, steepen = (2 * radius + 2) * spacing - 1, _STEEPEN[spacing - 1]
            fits = half if spacing == 1 else half_shape(half)
            self._terms = side.xp.empty((2, *half), np.float32)
            self._packed = side.xp.empty(half, np.uint32)
            self._pack = side.operation("matte", "pack_half")
            self._chroma_shape = chroma_shape
            width = 2 * radius + 1
            size = max(size, (48 + 4 * width) * (fits[1] + 4 * radius + 2))
        scratch = side.scratch(size, np.float32)
        self._steps = self._fit_steps(spacing, radius, margin, fits, scratch) if spacing else []
        offset = 127.5 * (1.0 - steepen)  # one half stays
        numbers = margin, steepen, offset, side.array(weights), reach, *ramp
        self._numbers = *numbers, *shape, scratch

    def _fit_steps(
        self, spacing: int, radius: int, margin: int, fits: Shape, scratch: Array | None
    ) -> list[tuple[Any, ...]]:
        """On a device cells, fits, their averages and terms are planes, a launch each."""
        side, half, packed, terms = self._side, self._half, self._packed, self._terms
        if not side.on_device:
            fit = side.operation("matte_guided", "fit_guided")
            numbers = spacing, radius, margin, _EPSILON, *half
            return [(fit, half, packed, terms, self._limits, *numbers, scratch)]
        moments = side.xp.empty((_MOMENTS, *fits), np.int32)
        found, averaged = (side.xp.empty((*fits, 4), np.float32) for _ in range(2))
        samples = (spacing * (2 * radius + 1)) ** 2
        sizes = (spacing, *half, *fits)
        arguments = {
            "moments": (fits, packed, moments, self._limits, *sizes),
            "fit": (fits, moments, found, samples, radius, _EPSILON, *fits),
            "average": (fits, found, averaged, radius, *fits),
            "terms": (half, averaged, packed, terms, *sizes),
        }
        return [
            (side.operation("matte_guided", f"guided_{name}"), *each)
            for name, each in arguments.items()
        ]

    def apply(self, alpha: Array, luma: Array, chroma: Array, out: Array) -> None:
        """Refine a plane.

        Args:
            alpha: (rows, columns) uint8.
            luma: (rows, columns) uint8, the picture.
            chroma: (ch, cw, 2) uint8, the picture.
            out: (rows, columns) uint8; may be alpha where nothing is smoothed.
        """
        if self._terms is not None:
            planes = (alpha, luma, chroma, *self._chroma_shape, self._packed, self._limits)
            self._pack(self._half, *planes, *self._shape)
            for operation, size, *arguments in self._steps:
                operation(size, *arguments)
        # A thread makes two rows.
        size = -(-self._shape[0] // 2), self._shape[1]
        self._evaluate(size, alpha, self._terms, luma, out, self._limits, *self._numbers)


def contour_smoothing(shape: Shape, amount: float) -> tuple[NDArray[np.int32], float, float]:
    """What rounds ragged contours: a Gaussian, then a ramp that restores the edge's width.

    Returns:
        (2 · radius + 1,) weights in 1/256, as OpenCV's 8-bit Gaussian has them; the ramp's slope,
        and what is added after it.
    """
    if amount <= 0.0:
        return np.array([256], np.int32), 1.0, 0.0
    unit = min(shape) / 270.0
    sigma = amount * amount * _SMOOTH_SIGMA * unit
    # A ramp of width w has the variance w²/12; the Gaussian adds its own.
    width = _EDGE_WIDTH * unit
    slope = math.sqrt(width * width + 12.0 * sigma**2) / width
    size = 2 * max(1, math.ceil(2.5 * sigma)) + 1
    exact = cv2.getGaussianKernel(size, sigma, cv2.CV_64F).ravel() * 256.0
    weights = np.zeros(size, np.int32)
    # Each carries its rounding error on to the next, and the middle one makes up for what is left.
    error = 0.0
    for index in range(size // 2):
        wanted = exact[index] + error
        weights[index] = weights[size - 1 - index] = round(wanted)
        error = wanted - round(wanted)
    weights[size // 2] = 256 - weights.sum()
    return weights, slope, 127.5 * (1.0 - slope)
