"""Mattes of a model that makes its own, averaged with what the embedded models see.

A matting model follows hair, but may leave out an arm or take in a chair; the embedded models are
coarse, but miss other things. Their plain mean would blur every edge. So only whole parts follow
the mean: what it would change is found on the analysis frame, what is thin of that (it is only the
one edge beside the other) is left out, and the rest is added to the matte, which else stays as it
is.

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
from bgsoft.ops.resize import Resized
from bgsoft.ops.sides import HOST, Side
from bgsoft.segment.base import Segmenter
from bgsoft.workers import Workers

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
        averages: Change the mattes; one for each lane.
        workers: What does it; a lane a frame.
    """

    def __init__(
        self,
        mattes: Segmenter,
        masks: Segmenter,
        averages: Sequence[MaskAverage],
        workers: Workers,
    ) -> None:
        self.name = mattes.name
        self._mattes = mattes
        self._masks = masks
        self._averages, self._workers = averages, workers

    def start(self) -> None:
        self._mattes.start()
        self._masks.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        self._masks.begin(frames, reduced)

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        mattes = self._mattes.masks(frames, reduced)
        self._workers.map(self._apply, mattes, self._masks.masks(frames, reduced))
        return mattes

    def _apply(self, lane: int, matte: Array, mask: Array) -> None:
        self._averages[lane].apply(matte, mask)

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

    Four launches on the current stream; on the host OpenCV leaves out what is thin.

    Args:
        format: Of the frames.
        side: Where mattes are.
    """

    def __init__(self, format: FrameFormat, side: Side = HOST) -> None:
        self._side, self._frame = side, format.luma_shape
        self._grid = grid = analysis_shape(format.width, format.height)
        self._small, self._large = (
            Resized(side, shape, np.float32) for shape in (grid, self._frame)
        )
        self._width = thin_width(grid)
        self._change = side.xp.empty(grid, np.float32)
        # Gains and losses apart.
        self._parts = side.xp.empty((2, *grid), np.float32)
        self._find, self._apply = (
            side.operation("average", f"{name}_change") for name in ("find", "apply")
        )
        if side.on_device:
            self._erode, self._dilate = (
                side.operation("average", f"{name}_change") for name in ("erode", "dilate")
            )

    def apply(self, matte: Array, mask: Array) -> None:
        """Change an (H, W) float32 matte, by a (gh, gw) float32 mask."""
        grid, change = self._grid, self._change
        seen = self._small.arguments(matte, grid, area=True)
        self._find(grid, *seen, mask, LOW, 1.0 / (HIGH - LOW), change, *grid)
        self._open()
        added = self._large.arguments(change, self._frame)
        self._apply(self._frame, *added, matte, *self._frame)

    def _open(self) -> None:
        """Leave out what is thin of the change."""
        change, parts, width = self._change, self._parts, self._width
        if self._side.on_device:
            window = (width // 2, *self._grid)
            self._erode(self._grid, change, parts, *window)
            self._dilate(self._grid, parts, change, *window)
            return
        np.maximum(change, 0.0, out=parts[0])
        np.maximum(-change, 0.0, out=parts[1])
        for part in parts:
            cv2.morphologyEx(part, cv2.MORPH_OPEN, np.ones((width, width), np.uint8), dst=part)
        cv2.subtract(parts[0], parts[1], dst=change)
