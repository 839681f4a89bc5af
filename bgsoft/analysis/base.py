"""What reducing a frame and comparing two mean, on any device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import AnalysisFrame, Frame

_MIN_GRID_SIDE = 160
"""The short side of the grid is at least this: on portraits in 360 and 720 lines, edges of a matte
of 180 rows lie as well as those of one of 360 (boundary F 0.757 and 0.748 against 0.761 and 0.752),
for a third of the time."""
_MIN_DETAIL_SIDE = 256
"""Networks see at least so much, so that no input is an enlargement: from 180 rows, masks of the
selfie model were worse (boundary F 0.747 against 0.766)."""


def analysis_factor(width: int, height: int) -> int:
    """The power of two by which frames of this size are reduced.

    Args:
        width: Frame width, pixels.
        height: Frame height, pixels.

    Returns:
        1 up to 319 pixels on the short side, 2 up to 639, 4 up to 1279, and so on.
    """
    return _largest_factor(width, height, _MIN_GRID_SIDE)


def detail_factor(width: int, height: int) -> int:
    """The same for what networks look at: that of the grid, or half of it."""
    return _largest_factor(width, height, _MIN_DETAIL_SIDE)


def _largest_factor(width: int, height: int, least: int) -> int:
    factor = 1
    while min(width, height) // (factor * 2) >= least:
        factor *= 2
    return factor


def analysis_shape(width: int, height: int, factor: int | None = None) -> tuple[int, int]:
    """(h, w) of a grid for frames of this size, rounded up.

    Args:
        width: Frame width, pixels.
        height: Frame height, pixels.
        factor: Frame pixels per cell, each way; None: those of the analysis frame.
    """
    factor = factor or analysis_factor(width, height)
    return -(-height // factor), -(-width // factor)


def is_similar(error: float, peak: float, min_db: float) -> bool:
    """Whether a mean squared error stands for more than this PSNR.

    Args:
        error: Mean squared error of stored samples.
        peak: The largest stored sample.
        min_db: PSNR, dB.
    """
    return error == 0 or 10 * math.log10(peak**2 / error) > min_db


class Reducer(Protocol):
    """Reduces frames of one format."""

    def reduce(self, frames: Sequence[Frame]) -> list[AnalysisFrame]:
        """Average each frame of a batch over the grid's cells.

        Returns:
            A grid a frame, in order; overwritten by the next call.

        Raises:
            ValueError: A frame's planes are not of the reducer's format.
        """
        ...
