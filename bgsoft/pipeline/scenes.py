"""Scene cuts: the places where everything that runs across frames starts anew."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["THUMB_SHAPE", "SceneCutDetector"]

THUMB_SHAPE = (18, 32)
"""(rows, columns) of the luma thumbnail: fine enough to tell pictures apart, coarse enough that
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
