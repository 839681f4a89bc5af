"""Mattes of a model that makes its own, averaged with what the embedded models see.

A matting model follows hair, but may leave out an arm or include a chair. The embedded models are
coarse, but have other errors. Their plain mean would blur every edge, so only whole parts follow
the mean. The changes that the mean would make are found on the analysis frame. Thin ones are left
out: they are two edges next to each other. The others are added to the matte.

Over 81 photographs the IoU of Robust Video Matting rises from 0.913 to 0.923, its 10th percentile
from 0.833 to 0.868. Over six moving people of known alpha, whom it finds anyway, the sum of
differences is 1.17 instead of 1.12 thousand, and would be 1.88 with the plain mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.ops.placement import HOST, Placement
from bgsoft.ops.resize import Resized
from bgsoft.segment.base import Segmenter
from bgsoft.threads import LanePool

LOW, HIGH = 0.275, 0.675
"""From where to where a person begins, in the mean and in the matte on the grid. Lower than a half:
where one sees what the other does not, it is there rather than not."""
_THIN = 0.02
"""Part of the frame's height: what is no wider is left out."""


def thin_width(grid: tuple[int, int]) -> int:
    """Side of the square, in samples of the grid, that what is changed has room for; odd."""
    return 2 * round(_THIN * grid[0] / 2) + 1


class AveragedSegmenter(Segmenter):
    """Mattes of one segmenter with the parts that the masks of another show otherwise.

    Args:
        mattes, masks: Of the same frames.
        format: Format of the frames.
        pool: Threads that change the mattes; one lane per frame.
        placement: Host or device of the mattes.
    """

    def __init__(
        self,
        mattes: Segmenter,
        masks: Segmenter,
        format: FrameFormat,
        pool: LanePool,
        placement: Placement = HOST,
    ) -> None:
        self.name = mattes.name
        self._mattes, self._masks, self._pool = mattes, masks, pool
        self._averages = [MaskAverage(format, placement) for _ in range(pool.lanes)]

    def start(self) -> None:
        self._mattes.start()
        self._masks.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        self._masks.begin(frames, reduced)

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        mattes = self._mattes.masks(frames, reduced)
        masks = self._masks.masks(frames, reduced)
        self._pool.map(
            lambda lane, matte, mask: self._averages[lane].apply(matte, mask), mattes, masks
        )
        return mattes

    def reset(self) -> None:
        self._mattes.reset()
        self._masks.reset()

    def refresh(self) -> None:
        self._mattes.refresh()
        self._masks.refresh()

    def close(self) -> None:
        self._mattes.close()
        self._masks.close()


class MaskAverage:
    """Changes mattes of the frame's size by masks on the analysis frame, in place.

    Args:
        format: Format of the frames.
        placement: Host or device of the mattes.
    """

    def __init__(self, format: FrameFormat, placement: Placement = HOST) -> None:
        self._placement, self._frame = placement, format.luma_shape
        self._grid = grid = analysis_shape(format.width, format.height)
        self._small, self._large = (
            Resized(placement, shape, np.float32) for shape in (grid, self._frame)
        )
        self._resize = placement.operation("zoom", "resize_mask")
        self._width = thin_width(grid)
        self._seen = placement.xp.empty(grid, np.float32)
        self._added = placement.xp.empty(self._frame, np.float32)
        if placement.on_device:
            self._extreme = placement.operation("morphology", "extreme_float")

    def apply(self, matte: Array, mask: Array) -> None:
        """Change an (H, W) float32 matte, by a (gh, gw) float32 mask."""
        xp, grid, frame, seen = self._placement.xp, self._grid, self._frame, self._seen
        averaged = self._small.arguments(matte, grid, area=True)
        self._resize(grid, *averaged, seen, *grid)
        change = _person((seen + mask) * 0.5) - _person(seen)
        gains, losses = (self._opened(xp.maximum(each, 0.0)) for each in (change, -change))
        enlarged = self._large.arguments(gains - losses, frame)
        self._resize(frame, *enlarged, self._added, *frame)
        matte += self._added
        xp.clip(matte, 0.0, 1.0, out=matte)

    def _opened(self, part: Array) -> Array:
        """Without what is thin."""
        width, grid = self._width, self._grid
        if not self._placement.on_device:
            return cv2.morphologyEx(part, cv2.MORPH_OPEN, np.ones((width, width), np.uint8))
        other = self._placement.xp.empty_like(part)
        for largest in (0, 1):
            for along_rows in (1, 0):
                self._extreme(grid, part, other, width // 2, largest, along_rows, *grid)
                part, other = other, part
        return part


def _person(opacity: Array) -> Array:
    return ((opacity - LOW) * (1.0 / (HIGH - LOW))).clip(0.0, 1.0)
