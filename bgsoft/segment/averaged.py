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

from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import AnalysisFrame, Array, Frame
from bgsoft.segment.base import Segmenter

LOW, HIGH = 0.275, 0.675
"""From where to where a person begins, in the mean and in the matte on the grid. Lower than a half:
where one sees what the other does not, it is there rather than not."""
Average = Callable[[Sequence[Array], Sequence[Array]], None]
"""Changes mattes of the frame's size by masks on the analysis frame, in place."""
_THIN = 0.02
"""Part of the frame's height: what is no wider is left out."""


def thin_width(grid: tuple[int, int]) -> int:
    """Side of the square, in samples of the grid, that what is changed has room for; odd."""
    return 2 * round(_THIN * grid[0] / 2) + 1


class AveragedSegmenter(Segmenter):
    """Mattes of one segmenter with the parts that the masks of another show otherwise."""

    def __init__(self, mattes: Segmenter, masks: Segmenter, average: Average) -> None:
        self.name = mattes.name
        self._mattes = mattes
        self._masks = masks
        self._average = average

    def start(self) -> None:
        self._mattes.start()
        self._masks.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """See :meth:`bgsoft.segment.base.Segmenter.begin`."""
        self._masks.begin(frames, reduced)

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        mattes = self._mattes.masks(frames, reduced)
        self._average(mattes, self._masks.masks(frames, reduced))
        return mattes

    def reset(self) -> None:
        self._mattes.reset()
        self._masks.reset()

    def close(self) -> None:
        self._mattes.close()
        self._masks.close()


def average_on_host(matte: NDArray[np.float32], mask: NDArray[np.float32]) -> None:
    """Change a matte of the frame's size by a mask on the analysis frame, in place."""
    size = mask.shape[::-1]
    reduced = np.empty_like(mask)
    cv2.resize(matte, size, dst=reduced, interpolation=cv2.INTER_AREA)
    change = _person((reduced + mask) * np.float32(0.5)) - _person(reduced)
    width = thin_width((mask.shape[0], mask.shape[1]))
    room = np.ones((width, width), np.uint8)
    gained, lost = np.maximum(change, 0.0), np.maximum(-change, 0.0)
    for part in (gained, lost):
        cv2.morphologyEx(part, cv2.MORPH_OPEN, room, dst=part)
    if gained.any() or lost.any():
        cv2.subtract(gained, lost, dst=gained)
        matte += cv2.resize(gained, matte.shape[::-1], interpolation=cv2.INTER_LINEAR)
        np.clip(matte, 0.0, 1.0, out=matte)


def _person(plane: NDArray[np.float32]) -> NDArray[np.float32]:
    gain = np.float32(1.0 / (HIGH - LOW))
    person: NDArray[np.float32] = np.clip((plane - np.float32(LOW)) * gain, 0.0, 1.0)
    return person
