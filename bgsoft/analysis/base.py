"""What reducing a frame means, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import Frame, Reduced

__all__ = ["Reducer", "grid_factor", "grid_shape"]

MIN_GRID_SIDE = 256
"""The short side of the grid is at least this, so that no model input is an enlargement of it
and mask edges stay within a few frame pixels."""


def grid_factor(width: int, height: int) -> int:
    """The power of two by which frames of this size are reduced.

    Args:
        width: Frame width, pixels.
        height: Frame height, pixels.

    Returns:
        1 up to 511 pixels on the short side, 2 up to 1023, 4 up to 2047, and so on.
    """
    factor = 1
    while min(width, height) // (factor * 2) >= MIN_GRID_SIDE:
        factor *= 2
    return factor


def grid_shape(width: int, height: int) -> tuple[int, int]:
    """(h, w) of the analysis grid for frames of this size, rounded up."""
    factor = grid_factor(width, height)
    return -(-height // factor), -(-width // factor)


class Reducer(Protocol):
    """Reduces frames of one format."""

    def reduce(self, frames: Sequence[Frame]) -> list[Reduced]:
        """Average each frame of a batch over the grid's cells.

        Returns:
            A grid a frame, in order; overwritten by the next call.

        Raises:
            ValueError: A frame's planes are not of the reducer's format.
        """
        ...
