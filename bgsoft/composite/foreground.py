"""Estimation of people's own colour in partly transparent samples, without the wall behind them.

A pixel of the edge shows ``I = α·F + (1 − α)·B``: some of the person, some of the old background.
Blended unchanged into a new background, the old one stays visible as a rim. So F is estimated from
coarse to fine. Each level starts from the colours of the level before, moves both towards the
picture, and averages each over its neighbours; those with the purest colour count most. This is the
scheme of T. Germer, T. Uelwer, S. Conrad, S. Harmeling, "Fast Multi-Level Foreground Estimation",
ICPR 2020, but it stops at cells twice as large as the analysis frame's. Only pixels of the edge
take the last step, on the frame's own samples.

Twelve portraits and drawn hair were put over two known backgrounds, in 720 lines. The error of the
edge's colour was 51 of 255 without this, 11.2 with it, and 10.5 with the published method.
"""

from __future__ import annotations

import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.composite.plan import level_table
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.ops.placement import Placement

_LEVELS = 5
"""Number of cell sizes, each twice the one before: 8 to 128 pixels at 1080p."""
_SINGLE_BLOCK_CELLS = 4096
"""Levels of at most this size are processed by one block of threads."""
_BLOCK = (1024, 1, 1)


class ForegroundColor:
    """Replaces the partly transparent samples of frames of one format, in place.

    Args:
        placement: Device of the frames, or the host.
        format: Format of every frame.
    """

    def __init__(self, placement: Placement, format: FrameFormat) -> None:
        size = format.width, format.height
        factor = analysis_factor(*size)
        self._shapes = [analysis_shape(*size, 2 * factor << level) for level in range(_LEVELS)]
        self._pairs = format.chroma_shape[:2]
        numbers, count = level_table(self._shapes)
        cells, *colors = (placement.xp.empty((count, 4), np.float32) for _ in range(3))
        rows, columns = self._shapes[0]
        moved = placement.xp.empty((rows, columns, 8), np.float32)
        self._pyramid = (placement.array(numbers, np.int32), cells, *colors, moved)
        is_small = [each[0] * each[1] <= _SINGLE_BLOCK_CELLS for each in self._shapes]
        self._coarse_from = is_small.index(True) if any(is_small) else _LEVELS - 1
        self._first_arguments = (*analysis_shape(*size), int(factor > 1), cells)
        self._restore_arguments = (*format.luma_shape, *(*colors, rows, columns, 1 / (2 * factor)))
        bits = 8 * format.bytes_per_sample
        self._first, self._halve, self._move, self._average, self._restore = (
            placement.operation("foreground", f"foreground_{name}", sample_bits=bits)
            for name in ("first", "halve", "move", "average", "restore")
        )
        self._coarse = placement.operation(
            "foreground", "foreground_coarse", sample_bits=bits, block=_BLOCK
        )

    def restore(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Set every sample with an alpha of 1 to 254 to its foreground's colour, in place."""
        planes = (reduced.luma, reduced.chroma, matte.reduced)
        self._first(self._shapes[0], *planes, *self._first_arguments)
        shapes, coarse_from = self._shapes, self._coarse_from
        for level in range(1, coarse_from + 1):
            self._halve(shapes[level], level, *self._pyramid)
        self._coarse((1, _BLOCK[0]), coarse_from, *self._pyramid)
        for level in reversed(range(coarse_from)):
            self._move(shapes[level], level, *self._pyramid)
            self._average(shapes[level], level, *self._pyramid)
        planes = (frame.luma, frame.chroma, matte.alpha)
        self._restore(self._pairs, *planes, *self._restore_arguments)
