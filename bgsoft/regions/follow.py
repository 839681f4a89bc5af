"""Motion of followed regions, by optical flow on the analysis frames.

Points of a region are tracked directly from the frame in which the region was drawn, so errors do
not add up. The search starts at their position in the last frame. If too few points are found,
they are tracked from the last frame. One rotation, scale and shift is fitted to all points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.records import dataclass
from bgsoft.regions.places import Corners, PlacedRegion, bounds, coverage
from bgsoft.report import Event

_MAX_POINTS = 200
_MIN_POINTS = 6
"""A rotation, scale and shift need two points; fewer than these often agree by chance."""
_ASTRAY_PX = 0.7
"""Maximum distance in analysis samples between a point and its position after tracking back."""
_POINT_DISTANCE_PX = 3
_WINDOW = (15, 15)
_LEVELS = 3

Picture = NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class _Followed:
    """A region that is being followed; all in samples of the analysis frame."""

    start: Picture
    """The frame in which it was drawn."""
    points: NDArray[np.float32]
    """(N, 1, 2): the tracked points in ``start``."""
    moved: NDArray[np.float64]
    """(2, 3): transform from ``start`` to the last frame."""
    is_lost: bool = False
    """It stays at its last known position."""


class Follower:
    """Tracker of followed regions, frame by frame.

    Args:
        regions: The followed regions.
        format: Format of the frames.
        on_event: Called when a region is lost.
    """

    def __init__(
        self,
        regions: Sequence[PlacedRegion],
        format: FrameFormat,
        on_event: Callable[[Event], None],
    ) -> None:
        self._regions, self._on_event = regions, on_event
        self._factor = analysis_factor(format.width, format.height)
        self._shift = 8 * (format.bytes_per_sample - 1)
        self._states: dict[PlacedRegion, _Followed] = {}
        self._last: Picture | None = None
        self._corners: dict[int, dict[PlacedRegion, Corners]] = {}
        """By pts of the frames of the last call."""

    def corners(self, placed: PlacedRegion, frame: Frame) -> Corners:
        """Return a region's corners in a frame of the last :meth:`update`."""
        return self._corners[frame.pts][placed]

    def update(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """Follow the regions into the next frames of a scene."""
        self._corners = {}
        for frame, analysis in zip(frames, reduced, strict=True):
            if not any(placed.holds_at(frame.pts) for placed in self._regions):
                self._last = None
                continue
            luma = analysis.luma if isinstance(analysis.luma, np.ndarray) else analysis.luma.get()
            picture = (luma >> self._shift).astype(np.uint8)
            self._corners[frame.pts] = {
                placed: self._corners_in(placed, frame, picture)
                for placed in self._regions
                if placed.holds_at(frame.pts)
            }
            self._last = picture

    def reset(self) -> None:
        """Begin a new scene: regions that are followed are lost."""
        for placed, state in self._states.items():
            if not state.is_lost:
                self._lose(placed, state, "at a cut")
        self._last = None

    def _corners_in(self, placed: PlacedRegion, frame: Frame, picture: Picture) -> Corners:
        drawn = placed.corners(frame.pts)
        state = self._states.get(placed)
        if state is None:
            points = _points(picture, drawn / self._factor)
            state = _Followed(picture, points, np.eye(2, 3))
            self._states[placed] = state
        elif not state.is_lost:
            moved = self._track(state, picture)
            if moved is None:
                self._lose(placed, state, f"at {frame.time_seconds:.2f} s")
            else:
                state.moved = moved
        turned: Corners = drawn @ state.moved[:, :2].T + self._factor * state.moved[:, 2]
        return turned

    def _track(self, state: _Followed, picture: Picture) -> NDArray[np.float64] | None:
        """Return the transform from the region's first frame to this one; None if it is lost."""
        expected = cv2.transform(state.points, state.moved).astype(np.float32)
        found = _flow(state.start, picture, state.points, expected)
        moved = _similarity(state.points, found)
        if moved is None and self._last is not None:
            found = _flow(self._last, picture, expected, expected.copy())
            moved = _similarity(state.points, found)
        return moved

    def _lose(self, placed: PlacedRegion, state: _Followed, when: str) -> None:
        state.is_lost = True
        text = f"{placed.region.name} was lost {when}; from then on it stays in place"
        self._on_event(Event(kind="notice", stage="composite", message=text))


def _points(picture: Picture, corners: Corners) -> NDArray[np.float32]:
    """Choose points inside a polygon that differ from their surroundings."""
    box = left, top, right, bottom = bounds(corners, *picture.shape[::-1])
    mask = np.zeros_like(picture)
    if left < right and top < bottom:
        mask[top:bottom, left:right] = coverage(corners, box)
    found = cv2.goodFeaturesToTrack(picture, _MAX_POINTS, 0.01, _POINT_DISTANCE_PX, mask=mask)
    return np.zeros((0, 1, 2), np.float32) if found is None else np.asarray(found, np.float32)


def _flow(
    before: Picture, after: Picture, points: NDArray[np.float32], expected: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Track points into another picture; points that fail the check backwards are NaN."""
    if not len(points):
        return expected
    options: dict[str, Any] = {"winSize": _WINDOW, "maxLevel": _LEVELS}
    options["flags"] = cv2.OPTFLOW_USE_INITIAL_FLOW
    found, ok, _ = cv2.calcOpticalFlowPyrLK(before, after, points, expected.copy(), **options)
    back, back_ok, _ = cv2.calcOpticalFlowPyrLK(after, before, found, points.copy(), **options)
    astray = np.linalg.norm(back - points, axis=2)
    good = (ok > 0) & (back_ok > 0) & (astray < _ASTRAY_PX)
    return np.where(good[:, :, None], found, np.float32(np.nan))


def _similarity(
    points: NDArray[np.float32], found: NDArray[np.float32]
) -> NDArray[np.float64] | None:
    """Fit a rotation, scale and shift to most of the points; None if too few agree."""
    good = np.isfinite(found).all(axis=(1, 2))
    if good.sum() < max(_MIN_POINTS, len(points) / 4):
        return None
    moved, inliers = cv2.estimateAffinePartial2D(points[good], found[good])
    if moved is None or inliers.sum() < max(_MIN_POINTS, good.sum() / 2):
        return None
    return np.asarray(moved, np.float64)
