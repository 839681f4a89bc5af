"""The matte of a model that makes one itself, at the frame's size."""

from __future__ import annotations

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import alpha_reducer
from bgsoft.frame import Array, Matte
from bgsoft.matte.base import MatteBatch, MatteSetup, MatteStage
from bgsoft.matte.contour import ContourSteps


class DirectMatte(MatteStage):
    """Uses masks of the frame's size unchanged, float32 in [0, 1] or uint8 of 255.

    Such a model has seen the whole picture and earlier frames, so nothing is smoothed, fitted or
    filled. Only expansion and feather are applied. A held frame gets the last matte unchanged.
    """

    def __init__(self, setup: MatteSetup) -> None:
        super().__init__(setup)
        config, format, placement = setup.config, setup.format, self._placement
        shape, grid = format.luma_shape, analysis_shape(format.width, format.height)
        # Faces may change the returned mattes, so the last ones are kept apart.
        self._last = placement.xp.empty(shape, np.uint8), placement.xp.empty(grid, np.uint8)
        self._opacity = placement.operation("matte", "opacity")
        lanes = range(setup.pool.lanes)
        self._steps = [
            ContourSteps(placement, config, shape, smooths=False, lines=format.height)
            for _ in lanes
        ]
        self._reducers = [alpha_reducer(format, placement) for _ in lanes]

    def _refine(self, batch: MatteBatch) -> None:
        self._pool.map(self._make, batch.masks, batch.mattes)
        before = self._last
        for matte in batch.mattes:
            if matte.held:
                self._copy(before, (matte.alpha, matte.reduced))
            before = (matte.alpha, matte.reduced)
        self._copy(before, self._last)

    def _make(self, lane: int, mask: Array | None, matte: Matte) -> None:
        if mask is None:
            return
        mask, steps = self._placement.xp.ascontiguousarray(mask), self._steps[lane]
        if mask.dtype == np.uint8:
            self._placement.copy(mask, steps.source(matte.alpha))
        else:
            self._opacity(mask.shape, mask, steps.source(matte.alpha), *mask.shape)
        steps.apply(matte.alpha)
        self._reducers[lane].reduce(matte.alpha, matte.reduced)

    def _copy(self, source: tuple[Array, Array], target: tuple[Array, Array]) -> None:
        for plane, copy in zip(source, target, strict=True):
            self._placement.copy(plane, copy)
