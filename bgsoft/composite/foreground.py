"""People's own colour where they are partly transparent, without the wall behind them.

A pixel of the edge shows ``I = α·F + (1 − α)·B``: some of the person, some of the old background.
Blended into a new background as it is, the old one stays visible as a rim. So F is estimated:
coarse to fine, each level starts from the colours of the level before, moves both towards what the
picture asks for, and averages each over its neighbours, those counting most where the colour is
seen pure. It is the scheme of T. Germer, T. Uelwer, S. Conrad, S. Harmeling, "Fast Multi-Level
Foreground Estimation", ICPR 2020, but stops at cells twice as large as the analysis frame's: only
pixels of the edge take the last step, on the frame's own samples. For twelve portraits and drawn
hair over two known backgrounds, in 720 lines, the colour of the edge was off by 51 of 255 without
it, by 11.2 with it, and by 10.5 with the published method.
"""

from __future__ import annotations

import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.composite.plan import level_table
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.ops.sides import Side
from bgsoft.settings.config import EffectKind

REPLACING = (EffectKind.COLOR, EffectKind.IMAGE, EffectKind.VIDEO, EffectKind.ALPHA)
"""Effects after which nothing may remain of the old background. Others make theirs of it."""

_LEVELS = 5
"""Sizes of cells, each twice the one before: 8 to 128 pixels at 1080p."""


class ForegroundColor:
    """Replaces the partly transparent samples of frames of one format, in place.

    Args:
        side: Where the frames are.
        format: Format of every frame.
    """

    def __init__(self, side: Side, format: FrameFormat) -> None:
        size = format.width, format.height
        factor = analysis_factor(*size)
        self._shapes = [analysis_shape(*size, 2 * factor << level) for level in range(_LEVELS)]
        self._pairs = format.chroma_shape[:2]
        numbers, count = level_table(self._shapes)
        self._table = side.array(numbers, np.int32)
        cells, *colors = (side.xp.empty((count, 4), np.float32) for _ in range(3))
        self._cells, self._colors = cells, colors
        rows, columns = self._shapes[0]
        self._moved = side.xp.empty((rows, columns, 8), np.float32)
        self._first_arguments = (*analysis_shape(*size), int(factor > 1), cells)
        self._restore_arguments = (
            *format.luma_shape,
            *(*colors, rows, columns, 1 / (2 * factor)),
        )
        bits = 8 * format.bytes_per_sample
        self._first, self._halve, self._move, self._average, self._restore = (
            side.operation("foreground", f"foreground_{name}", sample_bits=bits)
            for name in ("first", "halve", "move", "average", "restore")
        )

    def restore(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Give every sample with an alpha of 1 to 254 its foreground's colour, in place."""
        planes = (reduced.luma, reduced.chroma, matte.reduced)
        self._first(self._shapes[0], *planes, *self._first_arguments)
        levels = list(enumerate(self._shapes))
        for level, shape in levels[1:]:
            self._halve(shape, self._table, level, self._cells)
        for level, shape in reversed(levels):
            self._move(shape, self._table, level, self._cells, *self._colors, self._moved)
            self._average(shape, self._table, level, self._moved, *self._colors)
        planes = (frame.luma, frame.chroma, matte.alpha)
        self._restore(self._pairs, *planes, *self._restore_arguments)
