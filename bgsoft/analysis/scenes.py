"""Scene cuts: the places where everything that runs across frames starts anew; and similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import is_similar
from bgsoft.frame import FrameFormat, Proxy

THUMB_SHAPE = (18, 32)
"""(rows, columns) of the luma thumbnail: fine enough to distinguish pictures, coarse enough that
motion within a shot changes little of it."""

_MIN_CHANGE = 0.10
"""Mean absolute change of the thumbnail, in units of full luma range, below which nothing is a
cut. Cuts between unlike pictures give 0.15 to 0.4; a person walking through gives under 0.06."""
_MIN_RATIO = 4.0
"""A cut stands out this much from the change between the frames just before it, so that
flashing lights and fast pans don't count."""
_MEMORY = 0.8
"""Weight of the past in the running mean of the change."""


class SceneCutDetector:
    """Compares each frame's luma thumbnail with the one before."""

    def __init__(self) -> None:
        self._last: NDArray[np.float32] | None = None
        self._usual = 0.0

    def update(self, thumb: NDArray[np.float32]) -> bool:
        """Look at the next frame.

        Args:
            thumb: THUMB_SHAPE float32, luma in [0, 1].

        Returns:
            True where this frame begins a new scene; never for the first frame.
        """
        if self._last is None:
            self._last = thumb.copy()
            return False
        change = float(np.mean(np.abs(thumb - self._last)))
        np.copyto(self._last, thumb)
        cut = change >= _MIN_CHANGE and change >= _MIN_RATIO * self._usual
        self._usual = _MEMORY * self._usual + (1 - _MEMORY) * change
        return cut


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

    def cuts(self, grids: Sequence[Proxy]) -> list[bool]:
        return [self._is_cut(grid) for grid in grids]

    def _is_cut(self, reduced: Proxy) -> bool:
        rows, columns = THUMB_SHAPE
        cv2.resize(reduced.luma, (columns, rows), dst=self._thumb, interpolation=cv2.INTER_AREA)
        np.multiply(self._thumb, np.float32(1 / self._peak), out=self._scaled, casting="unsafe")
        return self._detector.update(self._scaled)

    def is_similar(self, reduced: Proxy, min_db: float) -> bool:
        if self._kept is None:
            return False
        error = cv2.norm(reduced.luma, self._kept, cv2.NORM_L2SQR) / reduced.luma.size
        return is_similar(error, self._peak, min_db)

    def keep(self, reduced: Proxy) -> None:
        if self._kept is None:
            self._kept = reduced.luma.copy()
        else:
            np.copyto(self._kept, reduced.luma)
