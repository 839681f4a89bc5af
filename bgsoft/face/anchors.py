"""The places of BlazeFace's predictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PER_CELL", "STRIDES", "anchor_centres"]

STRIDES = (8, 16)
"""Input pixels per cell of each grid that predicts (the catalogue's ``anchors`` table)."""
PER_CELL = (2, 6)
"""Predictions a cell of each grid."""


def anchor_centres(
    size: int, strides: tuple[int, ...] = STRIDES, per_cell: tuple[int, ...] = PER_CELL
) -> NDArray[np.float32]:
    """Centres of the cells that the model's rows belong to.

    Args:
        size: Side of the model's input, pixels.
        strides: Input pixels per cell, a grid each.
        per_cell: Rows per cell, a grid each.

    Returns:
        (N, 2) float32, x and y in input pixels: grid after grid, row by row; 896 for 128 pixels.
    """
    grids = []
    for stride, count in zip(strides, per_cell, strict=True):
        cells = -(-size // stride)
        along = (np.arange(cells, dtype=np.float32) + np.float32(0.5)) * np.float32(stride)
        y, x = np.meshgrid(along, along, indexing="ij")
        grids.append(np.repeat(np.stack([x, y], axis=-1).reshape(-1, 2), count, axis=0))
    return np.concatenate(grids)
