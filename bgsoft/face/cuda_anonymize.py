"""Hides faces in frames on a CUDA device; reference: :mod:`bgsoft.face.anonymize`.

Four launches a face, one face after another, as their ellipses may overlap; none without a face.
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from bgsoft.face.anonymize import FEATHER, MAX_CELLS, Patch, make_patch
from bgsoft.face.base import Ellipse
from bgsoft.frame import Array, Frame, FrameFormat
from bgsoft.kernels.loader import BLOCK, blocks, kernel

__all__ = ["CudaAnonymizer"]

_CELLS_PER_BLOCK = BLOCK[1]
"""One warp a cell."""


class CudaAnonymizer:
    """Hides faces on the current device, on its current stream.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._format = format
        bits = 8 * format.bytes_per_sample
        self._means = kernel("face", "hide_means", sample_bits=bits)
        self._blend = kernel("face", "hide_blend", sample_bits=bits)
        self._cells = cupy.empty(MAX_CELLS * MAX_CELLS * 2, np.float32)

    def apply(self, frame: Frame, ellipses: Sequence[Ellipse]) -> None:
        """Hide some faces; see :meth:`bgsoft.face.anonymize.Anonymizer.apply`."""
        for ellipse in ellipses:
            patch = make_patch(ellipse, self._format)
            if patch is None:
                continue
            self._hide(frame.luma, patch, 1, 1)
            self._hide(frame.chroma, patch, 2, 2)

    def _hide(self, plane: Array, patch: Patch, step: int, channels: int) -> None:
        place = patch.part_of(plane, step)
        if place is None:
            return
        height, width = plane.shape[:2]
        left, top, *_ = place.cells
        first_x, first_y, last_x, last_y = place.inside
        layout = tuple(map(np.int32, (left, top, place.edge, patch.rows, patch.columns)))
        cells = patch.rows * patch.columns
        self._means(
            (-(-cells // _CELLS_PER_BLOCK), channels, 1),
            BLOCK,
            (plane, self._cells, np.int32(height), np.int32(width), np.int32(channels), *layout),
        )
        ellipse = patch.ellipse
        part = tuple(map(np.int32, (*place.inside, step)))
        shape = (ellipse.x, ellipse.y, ellipse.cos, ellipse.sin, ellipse.across, ellipse.along)
        self._blend(
            blocks(last_x - first_x, last_y - first_y),
            BLOCK,
            (
                *(plane, self._cells, np.int32(width), np.int32(channels), *layout, *part),
                *map(np.float32, (*shape, FEATHER)),
            ),
        )
