"""Fits the edge of the matte to the picture.

The fit is a fast colour guided filter. In every window, alpha is modelled as a linear function of
luma, Cb and Cr. The least-squares function is found for each window, averaged over the windows that
contain a cell, and evaluated on the picture. Formulas: K. He, J. Sun, X. Tang, "Guided Image
Filtering", PAMI 35(6), 2013, equations (19) to (21); coefficients on a subsampled grid: K. He,
J. Sun, "Fast Guided Filter", arXiv:1505.00996.

Windows are small: wide ones blur the model's edge more than they correct it. Three channels improve
the edge twice as much as luma alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bgsoft.frame import Array
from bgsoft.matte.contour import Shape
from bgsoft.matte.islands import half_shape
from bgsoft.ops.placement import Placement

_MOMENTS = 13
"""Number of sums for the fit of a window, as in ``bgsoft/ops/window_fit.cuh``."""
_RADIUS = 2.0
"""Radius of the windows, in cells of half a grid of 270 rows."""
_EPSILON = 5e-5
"""Variance of the guide, with samples scaled to 0–1, below which it counts as flat. It is a
standard deviation of 1.8 8-bit code values, just above the noise left in a cell."""
_STEEPEN = (2.0, 1.5)
"""Slopes of the result around one half: the fit leaves a faint rim as wide as its windows. The
second applies on the frame, with finer windows. With 2, edges of moving people in 360 lines were
further from the truth (gradient error 7.8 instead of 7.1)."""


class EdgeFitter:
    """Guided filter of planes of one shape.

    Coefficients are at half the plane's resolution; luma is evaluated at the plane's. The host
    works only on the box around everything that is not flat in the alpha plane. On a device, cells,
    fits, averages and terms are planes, one launch each.

    Args:
        placement: Device of the planes, or the host.
        shape: (rows, columns) of the planes.
        chroma_shape: (rows, columns) of the chroma: the same, or half of it.
        spacing: Distance of the windows' centres, in cells of half the plane: 1, or 2 on the frame.
    """

    def __init__(
        self, placement: Placement, shape: Shape, chroma_shape: Shape, spacing: int = 1
    ) -> None:
        xp = placement.xp
        self._shape, self._chroma_shape, self._half = shape, chroma_shape, half_shape(shape)
        half, fits = self._half, half_shape(self._half) if spacing == 2 else self._half
        radius = max(1, round(_RADIUS * min(shape) / (270 * spacing)))
        # The filter changes nothing beyond this number of cells from the last uneven one.
        margin, steepen = (2 * radius + 2) * spacing - 1, _STEEPEN[spacing - 1]
        self._limits = limits = xp.zeros(4, np.int32)
        self._terms = terms = xp.empty((2, *half), np.float32)
        self._packed = packed = xp.empty(half, np.uint32)
        self._pack = placement.operation("matte", "pack_half")
        self._evaluate = placement.operation("matte_guided", "evaluate_guided")
        # Constants of the kernels; see there.
        side_px = 2 * radius + 1
        room = (48 + 4 * side_px) * (fits[1] + 4 * radius + 2)
        scratch = placement.scratch(max(room, 3 * (2 * half[1] + 4)), np.float32)
        offset = 127.5 * (1.0 - steepen)  # one half is unchanged
        self._numbers = margin, steepen, offset, *shape, scratch
        kernels: dict[str, tuple[Any, ...]]
        if placement.on_device:
            moments = xp.empty((_MOMENTS, *fits), np.int32)
            found, averaged = (xp.empty((*fits, 4), np.float32) for _ in range(2))
            sizes, samples = (spacing, *half, *fits), (spacing * side_px) ** 2
            kernels = {
                "guided_moments": (fits, packed, moments, limits, *sizes),
                "guided_fit": (fits, moments, found, samples, radius, _EPSILON, *fits),
                "guided_average": (fits, found, averaged, radius, *fits),
                "guided_terms": (half, averaged, packed, terms, *sizes),
            }
        else:
            numbers = spacing, radius, margin, _EPSILON, *half
            kernels = {"fit_guided": (half, packed, terms, limits, *numbers, scratch)}
        self._steps = [
            (placement.operation("matte_guided", name), *each) for name, each in kernels.items()
        ]

    def apply(self, alpha: Array, luma: Array, chroma: Array, out: Array) -> None:
        """Refine a plane.

        Args:
            alpha: (rows, columns) uint8.
            luma: (rows, columns) uint8, the picture.
            chroma: (ch, cw, 2) uint8, the picture.
            out: (rows, columns) uint8; may be alpha.
        """
        planes = (alpha, luma, chroma, *self._chroma_shape, self._packed, self._limits)
        self._pack(self._half, *planes, *self._shape)
        for operation, size, *arguments in self._steps:
            operation(size, *arguments)
        self._evaluate(self._shape, alpha, self._terms, luma, out, self._limits, *self._numbers)
