"""Hides places of frames."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bgsoft.frame import Frame
from bgsoft.hide.plan import MAX_CELLS, MIN_ALPHA, HidePlan, Place, Rectangle
from bgsoft.ops.placement import HOST, Placement
from bgsoft.settings.hide import HideStyle

_LANES = 32
"""LANES of ``bgsoft/ops/hide.cu``."""


class Hider:
    """Hides places of frames of one format; may be called from several threads at once.

    A place takes two launches (one if it becomes one colour). Places are hidden one after another,
    because they may overlap.
    """

    def __init__(self, plan: HidePlan, placement: Placement = HOST) -> None:
        self._plan, self._xp = plan, placement.xp
        bits = 8 * plan.format.bytes_per_sample
        self._means = placement.operation("hide", "hide_means", sample_bits=bits)
        self._draw = placement.operation("hide", "hide_draw", sample_bits=bits)

    def apply(self, frame: Frame, places: Sequence[Place]) -> list[Rectangle]:
        """Hide places in a frame, one after another, in place.

        In a cutout, the frame's alpha plane must contain its matte; it is not changed.

        Returns:
            Boxes around the places that lie in the frame; nothing is changed outside.
        """
        hidden = []
        plan = self._plan
        planes, alpha = (frame.luma, frame.chroma), frame.planes.alpha if plan.by_alpha else None
        # Cells without weight are black; solid has no others.
        cells = self._xp.zeros(MAX_CELLS * MAX_CELLS * 5, np.float32)
        solid, smooth = plan.style is HideStyle.SOLID, int(plan.style is HideStyle.BLUR)
        min_share = MIN_ALPHA if solid or plan.by_alpha else 0.0
        for patch in plan.patches(frame, places):
            left, top, right, bottom = patch.hidden
            hidden.append(patch.hidden)
            place = (*plan.format.luma_shape, *patch.hidden, patch.edge)
            if not solid:
                size = patch.rows * patch.columns, _LANES, 2
                self._means(size, *planes, alpha, cells, *place)
            e = patch.ellipse
            ellipse = (e.x, e.y, math.cos(e.angle), math.sin(e.angle), e.across, e.along)
            size = bottom - top, right - left, 2
            drawing = smooth, *plan.clear, min_share, *ellipse, plan.feather
            self._draw(size, *planes, cells, patch.inside, *place, *drawing)
        return hidden
