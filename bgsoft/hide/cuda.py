"""Hides places of frames on a CUDA device; reference: :class:`bgsoft.hide.cpu.CpuHider`.

It takes four launches a place (two where it becomes one colour), one place after another, as they
may overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from bgsoft.frame import Array, Frame
from bgsoft.hide.plan import LEAST_ALPHA, MAX_CELLS, Ellipse, HidePlan, Patch, Place
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.settings.hide import HideStyle

_STYLES = {HideStyle.BLUR: 0, HideStyle.PIXELATE: 1, HideStyle.SOLID: 2}
"""SMOOTH, MOSAIC and SOLID of ``bgsoft/ops/hide.cu``."""
_CELLS_PER_BLOCK = BLOCK[1]
"""Cells whose means a block takes: one warp a cell."""
_ALL = Ellipse(x=0.0, y=0.0, cos=1.0, sin=0.0, across=1.0, along=1.0)
"""Stands for the ellipse of a patch that is hidden whole; it is not looked at."""


class CudaHider:
    """Hides places on the current device, on its current stream."""

    def __init__(self, plan: HidePlan) -> None:
        self._plan = plan
        bits = 8 * plan.format.bytes_per_sample
        self._means = kernel("hide", "hide_means", sample_bits=bits)
        self._blend = kernel("hide", "hide_blend", sample_bits=bits)
        self._cells = cupy.empty(MAX_CELLS * MAX_CELLS * 3, np.float32)

    def apply(self, frame: Frame, places: Sequence[Place]) -> None:
        """Hide some places; see :meth:`bgsoft.hide.plan.Hider.apply`."""
        for patch in self._plan.patches(frame, places):
            self._hide(frame.luma, frame.planes.alpha, patch, 1, 1)
            self._hide(frame.chroma, frame.planes.alpha, patch, 2, 2)

    def _hide(self, plane: Array, alpha: Array, patch: Patch, step: int, channels: int) -> None:
        part = patch.part_of(plane.shape, step)
        if part is None:
            return
        plan = self._plan
        height, width = plane.shape[:2]
        by_alpha = np.int32(plan.by_alpha)
        cells = (part.cells.left, part.cells.top, part.edge, patch.rows, patch.columns)
        layout = tuple(map(np.int32, cells))
        if plan.style is not HideStyle.SOLID:
            sizes = map(np.int32, (height, width, channels, step, alpha.shape[1]))
            self._means(
                (-(-patch.rows * patch.columns // _CELLS_PER_BLOCK), channels + plan.by_alpha, 1),
                BLOCK,
                (plane, alpha, self._cells, *sizes, by_alpha, *layout),
            )
        hidden, ellipse = part.hidden, patch.ellipse or _ALL
        shape = (ellipse.x, ellipse.y, ellipse.cos, ellipse.sin, ellipse.across, ellipse.along)
        self._blend(
            blocks(hidden.right - hidden.left, hidden.bottom - hidden.top),
            BLOCK,
            (
                *(plane, self._cells),
                *map(np.int32, (width, channels, step, _STYLES[plan.style])),
                *(by_alpha, np.float32(plan.clear[step - 1]), np.float32(LEAST_ALPHA)),
                *layout,
                *map(np.int32, (*hidden, patch.ellipse is not None)),
                *map(np.float32, (*shape, plan.feather)),
            ),
        )
