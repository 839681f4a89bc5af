"""Positions of the regions of one video: corners in frame pixels at each time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import ConfigError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.info import VideoInfo
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.regions import Length, Region, RegionShape

Corners: TypeAlias = NDArray[np.float64]
"""(N, 2): x and y in frame pixels, in order around the region."""

_ELLIPSE_CORNERS = 96
"""A polygon of this many corners differs from the ellipse by less than 0.05 % of its axes."""
_ROUNDED_SECONDS = Fraction(1, 1000)
"""Times of frames are often given in whole milliseconds, rounded down."""
_RIM_PX = 512
"""Maximum width of a drawing beyond the frame, each side; farther corners are moved nearer."""
_MARGIN_PX = 5
"""Samples around a drawing, which no smooth or enlarged edge reaches."""
_SHIFT = 4


class PlacedRegion:
    """A region in the frames of one video.

    Args:
        region: The region.
        info: The video.

    Raises:
        ConfigError: It lies outside the frame at all times.
    """

    def __init__(self, region: Region, info: VideoInfo) -> None:
        self.region = region
        self.begin: float = -math.inf
        self._shown_after: float = -math.inf
        """A frame that is shown until this pts is still shown when the region begins."""
        if region.begin:
            self.begin = info.pts_at(region.begin)
            self._shown_after = info.pts_at(region.begin + _ROUNDED_SECONDS)
        self.end = math.inf if region.end is None else info.pts_at(region.end)
        """First pts after :attr:`begin` at which it no longer applies."""
        # Rounded up, it would reach the frame before.
        self._frame_ticks = math.floor(1 / (info.nominal_rate * info.time_base))
        self._times = [float(info.pts_at(key.seconds)) for key in region.keys]
        self._keys = [_corners(region.shape, key.lengths, info.format) for key in region.keys]
        width, height = info.format.width, info.format.height
        if (np.concatenate(self._keys).min(axis=0) >= (width, height)).any():
            raise ConfigError(
                f"cannot use {region.name}: it lies outside the frame of {width}x{height}"
            )

    @property
    def is_upright(self) -> bool:
        """True if the region is an upright box at all times."""
        return self.region.shape is RegionShape.BOX and not self.region.follow

    def holds_in(self, frame: Frame) -> bool:
        """Return True if the region applies while a frame is shown."""
        until = frame.shown_until
        if until is None:
            until = frame.pts + self._frame_ticks
        return frame.pts < self.end and (frame.pts >= self.begin or until >= self._shown_after)

    def corners(self, pts: int) -> Corners:
        """Return the corners, interpolated between key frames and constant outside them."""
        after = int(np.searchsorted(self._times, pts, side="right"))
        if after == 0 or after == len(self._times):
            return self._keys[min(after, len(self._times) - 1)]
        begin, end = self._times[after - 1], self._times[after]
        share = (pts - begin) / (end - begin)
        last, following = self._keys[after - 1 : after + 1]
        return last + share * (following - last)


def place_regions(
    regions: Sequence[Region], config: RenderConfig, info: VideoInfo
) -> list[PlacedRegion]:
    """Place the regions of a render.

    Raises:
        ConfigError: A region lies outside the frame, or cannot be followed.
    """
    placed = []
    for region in regions:
        if region.follow and region.begin < Fraction(str(config.start_seconds)):
            raise ConfigError(
                f"cannot follow {region.name}: it begins at {float(region.begin):g} s, before the"
                f" rendered part; let it begin at {config.start_seconds:g} s or later"
            )
        placed.append(PlacedRegion(region, info))
    return placed


def unused_text(region: Region, config: RenderConfig, info: VideoInfo, *, is_held: bool) -> str:
    """Return a warning about a region that applied in no frame, with the reason.

    Args:
        region: The region.
        config: Settings of the render.
        info: The video.
        is_held: A frame is shown in its time.
    """
    if is_held:
        return f"{region.name} {region.action}s nothing: it has no area in the frame then"
    start, length, end = config.start_seconds, info.duration_seconds, math.inf
    outside = ""
    if config.duration_seconds is not None:
        end = start + config.duration_seconds
        outside = f"the rendered part ends at {end:g} s of the video"
    if length is not None and length < end:
        end, outside = length, f"the video ends at {length:.2f} s"
    if region.end is not None and region.end <= start:
        end, outside = 0.0, f"the rendered part begins at {start:g} s of the video"
    reason = outside if region.begin >= end else "no frame is shown then"
    return f"{region.name} {region.action}s nothing: {reason}"


def _corners(shape: RegionShape, lengths: tuple[Length, ...], format: FrameFormat) -> Corners:
    wholes = (format.width, format.height) * (len(lengths) // 2)
    pixels = [length.pixels(whole) for length, whole in zip(lengths, wholes, strict=True)]
    if shape is RegionShape.POLYGON:
        return np.reshape(np.array(pixels, np.float64), (-1, 2))
    left, top, width, height = pixels
    if shape is RegionShape.BOX:
        right, bottom = left + width, top + height
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        return np.array(corners, np.float64)
    angles = np.linspace(0, 2 * math.pi, _ELLIPSE_CORNERS, endpoint=False)
    # The polygon encloses the ellipse, so that all of it is covered.
    grown = 0.5 / math.cos(math.pi / _ELLIPSE_CORNERS)
    x = float(left) + float(width) * (0.5 + grown * np.cos(angles))
    y = float(top) + float(height) * (0.5 + grown * np.sin(angles))
    return np.stack([x, y], axis=1)


def bounds(corners: Corners, width: int, height: int) -> tuple[int, int, int, int]:
    """Return the half-open box of the corners in a plane: left, top, right, bottom."""
    low = np.floor(corners.min(axis=0)).clip(0, (width, height)).astype(int)
    high = np.ceil(corners.max(axis=0)).clip(0, (width, height)).astype(int)
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])


def coverage(corners: Corners, box: tuple[int, int, int, int]) -> NDArray[np.uint8]:
    """Draw a polygon with smooth edges, 255 inside: (h, w) of the box.

    A polygon whose sides cross has no holes.
    """
    drawn, part = _drawn(corners, box)
    if _cross(corners):
        # Its edge of two samples stays smooth.
        inner = cv2.erode(_enclosed(drawn), np.ones((5, 5), np.uint8))
        drawn = np.asarray(cv2.max(drawn, 255 * inner), np.uint8)
    return drawn[part]


def touched(corners: Corners, box: tuple[int, int, int, int]) -> NDArray[np.uint8]:
    """Draw each sample that a polygon touches as 1, else 0: (h, w) of the box.

    A polygon whose sides cross has no holes.
    """
    drawn, part = _drawn(corners, box)
    cv2.dilate(drawn, np.ones((3, 3), np.uint8), dst=drawn)
    return _enclosed(drawn)[part]


def _drawn(
    corners: Corners, box: tuple[int, int, int, int]
) -> tuple[NDArray[np.uint8], tuple[slice, slice]]:
    """Draw all of a polygon by the even-odd rule, and return where its box is in the drawing."""
    left, top, right, bottom = box
    points = _near(corners - (left, top), (right - left, bottom - top))
    low = np.floor(points.min(axis=0)).astype(int).clip(None, 0) - _MARGIN_PX
    high = np.ceil(points.max(axis=0)).astype(int).clip((right - left, bottom - top)) + _MARGIN_PX
    drawn = np.zeros((high - low)[::-1], np.uint8)
    # Our pixel centres are at half pixels, OpenCV's at whole ones.
    fixed = np.rint((points - low - 0.5) * (1 << _SHIFT)).astype(np.int32)
    cv2.fillPoly(drawn, [fixed], 255, cv2.LINE_AA, _SHIFT)
    x, y = -low
    return drawn, (slice(y, y + bottom - top), slice(x, x + right - left))


def _near(corners: Corners, size: tuple[int, int]) -> Corners:
    """Move corners outside a picture near it; in the picture, the polygon stays the same."""
    for axis, limit in ((0, 0), (0, size[0]), (1, 0), (1, size[1])):
        # Sides are divided here, so that their parts in the picture keep their direction.
        following = np.roll(corners, -1, axis=0)
        crossed = np.flatnonzero((corners < limit)[:, axis] != (following < limit)[:, axis])
        start, way = corners[crossed], (following - corners)[crossed]
        points = start + way * ((limit - start[:, axis]) / way[:, axis])[:, None]
        points[:, axis] = limit
        corners = np.insert(corners, crossed + 1, points, axis=0)
    inside = corners.clip(0, size)
    beyond = corners - inside
    kept = beyond.clip(-_MARGIN_PX, _MARGIN_PX)  # else it might reach the picture
    share = min(1.0, _RIM_PX / max(np.abs(beyond).max(), 1.0))
    near: Corners = inside + kept + share * (beyond - kept)
    return near


def _cross(corners: Corners) -> bool:
    """Return whether two sides of a polygon cross."""
    begin, way = corners, np.roll(corners, -1, axis=0) - corners
    apart = begin[None] - begin[:, None]
    # On which side of each line the beginnings of all sides are.
    where = way[:, None, 0] * apart[..., 1] - way[:, None, 1] * apart[..., 0]
    divides = where * np.roll(where, -1, axis=1) < 0
    return bool((divides & divides.T).any())


def _enclosed(drawn: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return 1 in all that nonzero samples enclose, else 0; the first sample is outside."""
    height, width = drawn.shape
    outside = np.zeros((height + 2, width + 2), np.uint8)
    cv2.floodFill(drawn, outside, (0, 0), 0, flags=4 | cv2.FLOODFILL_MASK_ONLY)
    return np.asarray(1 - outside[1:-1, 1:-1], np.uint8)
