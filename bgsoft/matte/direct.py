"""The matte of a model that makes one itself, at the frame's size; the reference for its twin.

Nothing is smoothed, fitted or filled: such a model has looked at the whole picture and at the
frames before it. Only what moves the edge on purpose is done: expansion, then feather.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.analysis.cpu import AreaReducer
from bgsoft.config import MatteConfig
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.matte.base import Matter
from bgsoft.matte.contour import EdgeShift, Feather
from bgsoft.workers import Workers

__all__ = ["DirectMatter"]


class DirectMatter(Matter):
    """Takes masks of the frame's size as they are, with NumPy and OpenCV.

    Args:
        config: Of which expansion and feather count.
        format: Geometry of all frames.
        workers: What does it; a lane a frame.
    """

    def __init__(
        self, config: MatteConfig, format: FrameFormat, workers: Workers | None = None
    ) -> None:
        self._workers = workers or Workers()
        self._lanes = [_Lane(config, format) for _ in range(self._workers.lanes)]
        shape = grid_shape(format.width, format.height)
        # Faces may change what is given out, so what a held mask goes on from is kept apart.
        self._last = (np.empty(format.luma_shape, np.uint8), np.empty(shape, np.uint8))
        self._has_mask = False

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """See :meth:`bgsoft.matte.base.Matter.refine`; masks are (H, W)."""
        if masks[0] is None and not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        self._has_mask = True
        self._workers.map(self._make, masks, frames)
        alpha, reduced = self._last
        mattes: list[Matte] = []
        for mask, lane, frame in zip(masks, self._lanes, frames, strict=False):
            matte = Matte(alpha=frame.planes.alpha, reduced=lane.reduced, held=mask is None)
            if matte.held:
                np.copyto(matte.alpha, alpha)
                np.copyto(matte.reduced, reduced)
            alpha, reduced = matte.alpha, matte.reduced
            mattes.append(matte)
        if alpha is not self._last[0]:
            np.copyto(self._last[0], alpha)
            np.copyto(self._last[1], reduced)
        return mattes

    def _make(self, lane: int, mask: Array | None, frame: Frame) -> None:
        if mask is not None:
            self._lanes[lane].make(mask, frame.planes.alpha)

    def reset(self) -> None:
        self._has_mask = False


class _Lane:
    """The buffers of one frame."""

    def __init__(self, config: MatteConfig, format: FrameFormat) -> None:
        shape = format.luma_shape
        shift = config.expand_pct * format.height / 100.0
        rim = config.feather_pct * format.height / 100.0
        self._shift = EdgeShift(shape, shift) if shift else None
        self._feather = Feather(shape, rim) if rim > 0 else None
        factor = grid_factor(format.width, format.height)
        self._reducer = AreaReducer(*shape, factor, "uint8")
        self.reduced = np.empty(self._reducer.shape, np.uint8)
        """(gh, gw): the matte on the grid."""

    def make(self, mask: Array, alpha: Array) -> None:
        """Write the matte of one frame.

        Args:
            mask: (H, W) float32 in [0, 1].
            alpha: (H, W) uint8; filled.
        """
        cv2.convertScaleAbs(mask, dst=alpha, alpha=255.0)
        if self._shift is not None:
            self._shift.apply(alpha)
        if self._feather is not None:
            self._feather.apply(alpha)
        self._reducer.reduce(alpha, self.reduced)
