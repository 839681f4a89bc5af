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

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Array
from bgsoft.matte.plan import STILL_VARIANCE, GuidedPlan, Shape, SmoothPlan, half_shape
from bgsoft.ops.sides import Side

_MOMENTS = 13
"""Sums that the fit of a window needs, as in ``bgsoft/ops/window_fit.cuh``."""


class EdgeFitter:
    """Guided filter and contour smoothing of planes of one shape.

    Coefficients are at half the plane's resolution, luma is evaluated at the plane's. On the host
    only the box around everything that is not flat in the alpha plane is worked on.

    Args:
        side: Where it is done.
        shape: (rows, columns) of the planes.
        chroma_shape: Of their chroma: the same, or half of it.
        guided: None: the edge is not fitted.
        smooth: None: the contour is not smoothed.
        flags: What kernels leave for each other.
        fitted_luma: On a device, where luma is kept when something is fitted.
    """

    def __init__(
        self,
        side: Side,
        shape: Shape,
        chroma_shape: Shape,
        guided: GuidedPlan | None,
        smooth: SmoothPlan | None,
        flags: Array,
        fitted_luma: Array | None = None,
    ) -> None:
        self._side, self._shape = side, shape
        self._half = half = half_shape(shape)
        weights, ramp = gaussian_weights(smooth), (1.0, 0.0)
        if smooth is not None:
            ramp = float(smooth.slope), float(smooth.offset)
        radius = len(weights) // 2
        self._evaluate = side.operation("matte_smooth", "evaluate_smooth")
        # Lines of the kernels; see there.
        size = (6 + radius) * (2 * half[1] + 2 * radius + 4)
        self._plan = guided
        self._terms: Array | None = None
        if guided is not None:
            fits = half if guided.spacing == 1 else half_shape(half)
            self._terms = side.xp.empty((2, *half), np.float32)
            self._packed = side.xp.empty(half, np.uint32)
            self._pack = side.operation("matte", "pack_half")
            self._chroma_shape = chroma_shape
            side_px = 2 * guided.radius + 1
            size = max(size, (48 + 4 * side_px) * (fits[1] + 4 * guided.radius + 2))
        self._scratch = side.scratch(size, np.float32)
        self._flags, self._fitted_luma = flags, fitted_luma
        self._steps: list[tuple[Any, ...]] = []
        if guided is not None:
            self._make_fit(guided, fits)
        plan = guided or GuidedPlan.of(shape)
        self._numbers: tuple[Any, ...] = (
            *(int(guided is not None), plan.margin, float(plan.steepen), float(plan.offset)),
            *(side.array(weights), radius, *ramp),
        )
        self._last = (int(STILL_VARIANCE * shape[0] * shape[1]), *shape, self._scratch)

    def _make_fit(self, plan: GuidedPlan, fits: Shape) -> None:
        """On a device cells, fits, their averages and terms are planes, a launch each."""
        side, half, radius = self._side, self._half, plan.radius
        epsilon, packed, terms = float(plan.epsilon), self._packed, self._terms
        if not side.on_device:
            fit = side.operation("matte_guided", "fit_guided")
            numbers = (plan.spacing, radius, plan.margin, epsilon, *half)
            self._steps = [(fit, half, packed, terms, self._flags, *numbers, self._scratch)]
            return
        moments = side.xp.empty((_MOMENTS, *fits), np.int32)
        found, averaged = (side.xp.empty((*fits, 4), np.float32) for _ in range(2))
        samples = (plan.spacing * (2 * radius + 1)) ** 2
        sizes = (plan.spacing, *half, *fits)
        arguments = {
            "moments": (fits, packed, moments, self._flags, *sizes),
            "fit": (fits, moments, found, samples, radius, epsilon, *fits),
            "average": (fits, found, averaged, radius, *fits),
            "terms": (half, averaged, packed, terms, *sizes),
        }
        self._steps = [
            (side.operation("matte_guided", f"guided_{name}"), *each)
            for name, each in arguments.items()
        ]

    def apply(
        self, alpha: Array, luma: Array, chroma: Array, out: Array, *, held: bool = False
    ) -> None:
        """Refine a plane.

        Args:
            alpha: (rows, columns) uint8.
            luma: (rows, columns) uint8, the picture.
            chroma: (ch, cw, 2) uint8, the picture.
            out: (rows, columns) uint8; may be alpha where nothing is smoothed.
            held: Leave ``out`` as it is where the picture has not moved (on a device).
        """
        if self._terms is not None:
            planes = (alpha, luma, chroma, *self._chroma_shape, self._packed, self._flags)
            self._pack(self._half, *planes, *self._shape)
            for operation, size, *arguments in self._steps:
                operation(size, *arguments)
        # A thread makes two rows.
        size = -(-self._shape[0] // 2), self._shape[1]
        evaluated = (alpha, self._terms, luma, self._fitted_luma, out, self._flags)
        self._evaluate(size, *evaluated, *self._numbers, int(held), *self._last)


def gaussian_weights(plan: SmoothPlan | None) -> NDArray[np.int32]:
    """(2 · radius + 1,): weights in 1/256, as OpenCV's 8-bit Gaussian has them."""
    if plan is None:
        return np.array([256], np.int32)
    size = 2 * plan.radius + 1
    exact = cv2.getGaussianKernel(size, plan.sigma, cv2.CV_64F).ravel() * 256.0
    weights = np.zeros(size, np.int32)
    # Each carries its rounding error on to the next, and the middle one makes up for what is left.
    error = 0.0
    for index in range(size // 2):
        wanted = exact[index] + error
        weights[index] = weights[size - 1 - index] = round(wanted)
        error = wanted - round(wanted)
    weights[size // 2] = 256 - weights.sum()
    return weights
