"""Scene cuts and picture similarity on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import is_similar
from bgsoft.frame import FrameFormat, Reduced
from bgsoft.pipeline.scenes import THUMB_SHAPE, SceneCutDetector

__all__ = ["CpuSceneProbe"]


class CpuSceneProbe:
    """Implements :class:`bgsoft.pipeline.picture.SceneProbe` on the analysis grid's luma.

    Args:
        format: Format of the frames.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._detector = SceneCutDetector()
        self._peak = float((1 << format.bit_depth) - 1 << format.shift)
        self._thumb = np.empty(THUMB_SHAPE, format.dtype)
        self._scaled = np.empty(THUMB_SHAPE, np.float32)
        self._kept: NDArray[Any] | None = None

    def cuts(self, grids: Sequence[Reduced]) -> list[bool]:
        return [self._is_cut(grid) for grid in grids]

    def _is_cut(self, reduced: Reduced) -> bool:
        rows, columns = THUMB_SHAPE
        cv2.resize(reduced.luma, (columns, rows), dst=self._thumb, interpolation=cv2.INTER_AREA)
        np.multiply(self._thumb, np.float32(1 / self._peak), out=self._scaled, casting="unsafe")
        return self._detector.update(self._scaled)

    def is_similar(self, reduced: Reduced, min_db: float) -> bool:
        if self._kept is None:
            return False
        error = cv2.norm(reduced.luma, self._kept, cv2.NORM_L2SQR) / reduced.luma.size
        return is_similar(error, self._peak, min_db)

    def keep(self, reduced: Reduced) -> None:
        if self._kept is None:
            self._kept = reduced.luma.copy()
        else:
            np.copyto(self._kept, reduced.luma)
