"""Hides the places that the user names, whatever they show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from bgsoft.errors import ConfigError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan, Rectangle, whole_samples
from bgsoft.media.info import VideoInfo
from bgsoft.ops.sides import Side
from bgsoft.records import NamedTuple
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.hide import Region, parse_region
from bgsoft.workers import Workers


class _Placed(NamedTuple):
    """A region of one video."""

    box: Rectangle
    first: float
    """pts from which on it is hidden,"""
    end: float
    """and from which on it is not."""


class HiddenRegions:
    """Hides the regions of a render in the frames of one video; no frame depends on another.

    Args:
        config: Of the render.
        info: The video.
        side: Where frames are.
        workers: Does frames side by side, one a lane.
        on_event: Told of a region that is over before what is rendered, or begins after it.

    Raises:
        ConfigError: A region lies outside the frame.
    """

    def __init__(
        self,
        config: RenderConfig,
        info: VideoInfo,
        side: Side,
        workers: Workers,
        on_event: Callable[[Event], None],
    ) -> None:
        self._hider = Hider(HidePlan.of(config, info.format), side)
        self._workers = workers
        regions = map(parse_region, config.hide.regions)
        self._placed = [_place(region, config, info, on_event) for region in regions]

    def apply(self, frames: Sequence[Frame]) -> None:
        """Hide them in composited frames, in place."""
        self._workers.map(self._hide, frames)

    def _hide(self, _lane: int, frame: Frame) -> None:
        boxes = [placed.box for placed in self._placed if placed.first <= frame.pts < placed.end]
        if boxes:
            self._hider.apply(frame, boxes)


def _place(
    region: Region, config: RenderConfig, info: VideoInfo, on_event: Callable[[Event], None]
) -> _Placed:
    start, length, end = config.start_seconds, info.duration_seconds, math.inf
    over = ""
    if config.duration_seconds is not None:
        end = start + config.duration_seconds
        over = f"what is rendered ends at {end:g} s of the video"
    if length is not None and length < end:
        end, over = length, f"the video ends at {length:.2f} s"
    if region.end is not None and region.end <= start:
        end, over = 0.0, f"what is rendered begins at {start:g} s of the video"
    if region.begin >= end:
        text = f"--hide {region.text} hides nothing: {over}"
        on_event(Event(kind="notice", stage="composite", message=text))
    return _Placed(
        box=_box(region, info.format),
        first=info.pts_at(region.begin) if region.begin else -math.inf,
        end=math.inf if region.end is None else info.pts_at(region.end),
    )


def _box(region: Region, format: FrameFormat) -> Rectangle:
    """The pixels of a region: all that it touches, and the other pixels of their chroma samples.

    Raises:
        ConfigError: None of it lies in the frame.
    """
    left, width = (side.pixels(format.width) for side in (region.x, region.width))
    top, height = (side.pixels(format.height) for side in (region.y, region.height))
    if left >= format.width or top >= format.height:
        raise ConfigError(
            f"--hide {region.text} lies outside the frame of {format.width}x{format.height}"
        )
    right = min(left + width, Fraction(format.width))
    bottom = min(top + height, Fraction(format.height))
    return whole_samples(left, top, right, bottom)
