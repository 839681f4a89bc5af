"""Motion of followed regions, by optical flow on the analysis frames.

Points of a region are tracked from the last frame, and one rotation, scale and shift is fitted to
all of them. The frame in which the region was drawn is moved by it, and the points are tracked from
there, too. Errors therefore do not add up. The first fit may be that of a hand in front. If too few
points agree, they are tracked once more from where they were found last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.records import NamedTuple, dataclass
from bgsoft.regions.places import Corners, PlacedRegion, bounds, coverage
from bgsoft.report import Event
from bgsoft.settings.regions import Region

_MAX_POINTS = 200
_MIN_POINTS = 6
"""A rotation, scale and shift need two points; fewer than these often agree by chance."""
_ASTRAY_PX = 0.7
"""Maximum distance in analysis samples between a point and its position after tracking back."""
_POINT_DISTANCE_PX = 3
_WINDOW = (15, 15)
_LEVELS = 3
_ROUGH_PX, _FINE_PX = 3.0, 1.0
"""Maximum distance in analysis samples between a point and a fit that it agrees with."""
_MAX_UNSURE, _MAX_HELD = 3, 30
"""Longest run of frames in which a region is followed from frame to frame alone; it may go along
with a hand. Up to the second number it rests where it was found last, and then it is lost. In 36
places of clips of people, 3.6 % of a region is open on average; without limits it is 8.7 %."""

Picture = NDArray[np.uint8]
Transform = NDArray[np.float64]
"""(2, 3): rotation, scale and shift of points of the analysis frame."""


class Motion(NamedTuple):
    """Motion of a region from the frame in which it was drawn."""

    pts: array[int]
    """Frames in which it was followed, in order."""
    moved: list[Transform]
    """The transform in each of them; later frames keep the last one."""

    def at(self, pts: int) -> Transform:
        """Return the transform of a frame, which must not precede the first one."""
        return self.moved[bisect_right(self.pts, pts) - 1]

    def between(self, first: int | None, end: int | None) -> Motion:
        """Return the part for the frames of a range; None: without a limit."""
        begin = 0 if first is None else max(0, bisect_right(self.pts, first) - 1)
        part = slice(begin, None if end is None else bisect_left(self.pts, end))
        return Motion(self.pts[part], self.moved[part])


class FollowedRegions(NamedTuple):
    """Motion of all followed regions of a video."""

    motions: dict[Region, Motion]
    lost: list[Event]
    """An event for each region that was lost."""

    def between(self, first: int | None, end: int | None) -> FollowedRegions:
        """Return the part for the frames of a range; None: without a limit."""
        parts = {region: each.between(first, end) for region, each in self.motions.items()}
        return self._replace(motions=parts)


@dataclass(slots=True, eq=False)
class _Followed:
    """A region that is being followed; all in samples of the analysis frame."""

    start: Picture
    """The frame in which it was drawn."""
    points: NDArray[np.float32]
    """(N, 1, 2): the tracked points in ``start``."""
    moved: Transform
    """From ``start`` to the last frame."""
    sure: Transform
    """The last such transform that was found from ``start``."""
    unsure: int = 0
    """Frames since then."""
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
        self._is_cut = False
        """The next frame begins a new scene."""
        self._begun_again = set[str]()
        """Names of regions that were reported to begin again."""
        self._corners: dict[int, dict[PlacedRegion, Corners]] = {}
        """Corners by pts of the frames of the last call."""

    def corners(self, placed: PlacedRegion, frame: Frame) -> Corners:
        """Return a region's corners in a frame of the last :meth:`update`."""
        return self._corners[frame.pts][placed]

    def update(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """Follow the regions into the next frames of a scene."""
        self._corners = {}
        for frame, analysis in zip(frames, reduced, strict=True):
            for placed, state in [*self._states.items()]:
                if frame.pts >= placed.end:
                    del self._states[placed]
                elif self._is_cut and not state.is_lost:
                    self._lose(placed, state, "at a cut")
            self._is_cut = False
            if not any(placed.holds_in(frame) for placed in self._regions):
                self._last = None
                continue
            luma = analysis.luma if isinstance(analysis.luma, np.ndarray) else analysis.luma.get()
            picture = (luma >> self._shift).astype(np.uint8)
            self._corners[frame.pts] = {
                placed: self._corners_in(placed, frame, picture)
                for placed in self._regions
                if placed.holds_in(frame)
            }
            self._last = picture

    def reset(self) -> None:
        """Begin a new scene: regions that are followed are lost."""
        self._is_cut = True
        self._last = None

    def follow(self, earlier: Follower, *, is_alike: bool) -> None:
        """Follow regions on from where an earlier follower left them.

        Args:
            earlier: The follower, which is not used any more.
            is_alike: Its frames show the same view in the same size. Otherwise regions begin where
                they were drawn, and a warning says so, once for each.
        """
        states = {_unnamed(placed): state for placed, state in earlier._states.copy().items()}
        followed = [placed for placed in self._regions if _unnamed(placed) in states]
        self._begun_again = earlier._begun_again
        if is_alike:
            self._states = {placed: states[_unnamed(placed)] for placed in followed}
            self._last, self._is_cut = earlier._last, earlier._is_cut
            return
        for name in (placed.region.name for placed in followed):
            if name not in self._begun_again:
                self._begun_again.add(name)
                self._warn(f"{name} was lost; it begins again where it was drawn")

    def _corners_in(self, placed: PlacedRegion, frame: Frame, picture: Picture) -> Corners:
        drawn = placed.corners(frame.pts)
        state = self._states.get(placed)
        if state is None:
            points = _points(picture, drawn / self._factor)
            state = _Followed(picture, points, moved=np.eye(2, 3), sure=np.eye(2, 3))
            self._states[placed] = state
        elif not state.is_lost:
            moved = self._track(state, picture)
            if moved is None:
                self._lose(placed, state, f"at {frame.time_seconds:.2f} s")
            else:
                state.moved = moved
        return _turned(drawn, state.moved, self._factor)

    def moved(self, placed: PlacedRegion) -> Transform | None:
        """Return a region's transform in the last frame; None if it is still to be drawn."""
        state = self._states.get(placed)
        return None if state is None else state.moved

    def is_lost(self, placed: PlacedRegion) -> bool:
        """Return True if a region stays in place from now on."""
        state = self._states.get(placed)
        return state is not None and state.is_lost

    def _track(self, state: _Followed, picture: Picture) -> Transform | None:
        """Return the transform from the region's first frame to this one; None if it is lost."""
        if not len(state.points):
            return None
        rough, begins = None, [(state.sure, _LEVELS)]
        if self._last is not None:
            expected = cv2.transform(state.points, state.moved)
            found = _flow(self._last, picture, expected, _LEVELS)
            rough = _similarity(state.points, found, _ROUGH_PX)
        if rough is not None:
            # Coarse levels mix the region with its surroundings, which move in another way.
            begins.insert(0, (rough, 0))
        for near, levels in begins:
            start = np.asarray(cv2.warpAffine(state.start, near, picture.shape[::-1]), np.uint8)
            found = _flow(start, picture, cv2.transform(state.points, near), levels)
            fine = _similarity(state.points, found, _FINE_PX)
            if fine is not None:
                state.sure, state.unsure = fine, 0
                return fine
        state.unsure += 1
        if state.unsure <= _MAX_UNSURE:
            return rough
        return state.sure if state.unsure <= _MAX_HELD else None

    def _lose(self, placed: PlacedRegion, state: _Followed, when: str) -> None:
        state.is_lost, state.moved = True, state.sure
        self._warn(f"{placed.region.name} was lost {when}; from then on it stays in place")

    def _warn(self, text: str) -> None:
        self._on_event(Event(kind="warning", stage="composite", message=text))


class RecordedFollower:
    """A :class:`Follower` of regions that were followed before, in the frames of a chunk.

    Args:
        followed: Motions in these frames.
        format: Format of the frames.
        on_event: Called when a region is lost in any frame of the video.
    """

    def __init__(
        self, followed: FollowedRegions, format: FrameFormat, on_event: Callable[[Event], None]
    ) -> None:
        self._motions = followed.motions
        self._factor = analysis_factor(format.width, format.height)
        for event in followed.lost:
            on_event(event)

    def corners(self, placed: PlacedRegion, frame: Frame) -> Corners:
        """Return a region's corners in a frame."""
        motion = self._motions[placed.region]
        return _turned(placed.corners(frame.pts), motion.at(frame.pts), self._factor)

    def update(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """Do nothing: all motion is known."""

    def reset(self) -> None:
        """Do nothing: cuts are known."""


def _unnamed(placed: PlacedRegion) -> Region:
    """Return a region without its name, which may change with its place in the file."""
    return replace(placed.region, name="")


def _turned(drawn: Corners, moved: Transform, factor: int) -> Corners:
    """Return moved corners, frame pixels; ``factor``: frame pixels per analysis sample."""
    turned: Corners = drawn @ moved[:, :2].T + factor * moved[:, 2]
    return turned


def _points(picture: Picture, corners: Corners) -> NDArray[np.float32]:
    """Choose points inside a polygon that differ from their surroundings."""
    box = left, top, right, bottom = bounds(corners, *picture.shape[::-1])
    mask = np.zeros_like(picture)
    if left < right and top < bottom:
        mask[top:bottom, left:right] = coverage(corners, box)
    found = cv2.goodFeaturesToTrack(picture, _MAX_POINTS, 0.01, _POINT_DISTANCE_PX, mask=mask)
    return np.zeros((0, 1, 2), np.float32) if found is None else np.asarray(found, np.float32)


def _flow(
    before: Picture, after: Picture, points: NDArray[Any], levels: int
) -> NDArray[np.float32]:
    """Track points into another picture; points that fail the check backwards are NaN."""
    points = points.astype(np.float32)
    options: dict[str, Any] = {"winSize": _WINDOW, "maxLevel": levels}
    options["flags"] = cv2.OPTFLOW_USE_INITIAL_FLOW
    found, ok, _ = cv2.calcOpticalFlowPyrLK(before, after, points, points.copy(), **options)
    back, back_ok, _ = cv2.calcOpticalFlowPyrLK(after, before, found, points.copy(), **options)
    astray = np.linalg.norm(back - points, axis=2)
    good = (ok > 0) & (back_ok > 0) & (astray < _ASTRAY_PX)
    return np.where(good[:, :, None], found, np.float32(np.nan))


def _similarity(
    points: NDArray[np.float32], found: NDArray[np.float32], within_px: float
) -> Transform | None:
    """Fit a rotation, scale and shift to most of the points; None if too few agree."""
    good = np.isfinite(found).all(axis=(1, 2))
    if good.sum() < max(_MIN_POINTS, len(points) / 4):
        return None
    moved, inliers = cv2.estimateAffinePartial2D(
        points[good], found[good], ransacReprojThreshold=within_px
    )
    if moved is None or inliers.sum() < max(_MIN_POINTS, good.sum() / 2):
        return None
    return np.asarray(moved, np.float64)
