"""Regions in the pipeline: they correct mattes before compositing, and hide places after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor
from bgsoft.errors import ConfigError
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan, Place, Raster, Rectangle, whole_samples
from bgsoft.hide.record import HiddenPlace, HiddenRecord
from bgsoft.media.info import VideoInfo
from bgsoft.ops.placement import Placement
from bgsoft.regions.follow import FollowedRegions, Follower, RecordedFollower
from bgsoft.regions.places import (
    Corners,
    PlacedRegion,
    bounds,
    coverage,
    place_regions,
    touched,
    unused_text,
)
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.regions import Region, RegionAction
from bgsoft.threads import LanePool


class RegionStep:
    """The regions of a render applied to its frames, with inversion of mattes.

    Call :meth:`edit_mattes` for consecutive frames of one scene, and after compositing
    :meth:`hide`. Frames depend on one another only if a region is followed.

    Args:
        regions: The regions; where they overlap, the last one counts.
        config: Other settings of the render.
        info: The video.
        placement: Host or device that holds the frames.
        pool: Threads that hide regions of several frames in parallel.
        on_event: Called for a lost region.
        followed: Motion of the followed regions, if it is known.

    Raises:
        ConfigError: A region cannot be used on this video.
    """

    def __init__(
        self,
        regions: Sequence[Region],
        config: RenderConfig,
        info: VideoInfo,
        placement: Placement,
        pool: LanePool,
        on_event: Callable[[Event], None],
        followed: FollowedRegions | None = None,
    ) -> None:
        self._placement, self._pool = placement, pool
        self._factor = analysis_factor(info.format.width, info.format.height)
        self._inverts = config.effect.invert
        placed = place_regions(regions, config, info)
        self._edited = [one for one in placed if one.region.action is not RegionAction.HIDE]
        self._hidden = [one for one in placed if one.region.action is RegionAction.HIDE]
        if config.effect.kind is EffectKind.MATTE:
            if config.regions.file is not None and len(self._hidden) == len(placed):
                raise ConfigError(
                    f"cannot use {config.regions.file} with --effect matte: all its regions are"
                    " hidden, and a matte shows no picture; keep or drop regions instead"
                )
            self._hidden = []
        # The part of the time that is rendered is not known exactly before the last frame.
        self._held: set[PlacedRegion] = set()
        """Regions in whose time a frame is shown."""
        self._used: set[PlacedRegion] = set()
        """Those of them that have a part in such a frame."""
        self._reason = partial(unused_text, config=config, info=info)
        self._hider = Hider(HidePlan.of(config, info.format), placement)
        moving = [one for one in self._edited + self._hidden if one.region.follow]
        self._follower: Follower | RecordedFollower | None = None
        if moving and followed is not None:
            self._follower = RecordedFollower(followed, info.format, on_event)
        elif moving:
            self._follower = Follower(moving, info.format, on_event)
        self.record = HiddenRecord("region")
        self._drawn: dict[object, tuple[Corners, Array | None]] = {}
        """The last drawing of each region, used again while its corners are the same."""

    def edit_mattes(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], reduced: Sequence[AnalysisFrame]
    ) -> None:
        """Set regions of mattes to person or background, then invert the mattes, in place."""
        if self._follower is not None:
            self._follower.update(frames, reduced)
        for frame, matte in zip(frames, mattes, strict=True):
            for placed in self._edited:
                if self._holds(placed, frame):
                    self._edit(placed, self._corners(placed, frame), matte)
            if self._inverts:
                for plane in (matte.alpha, matte.reduced):
                    self._placement.xp.subtract(255, plane, out=plane)

    def hide(self, frames: Sequence[Frame]) -> None:
        """Hide regions of composited frames, in place."""
        if self._hidden:
            hidden = self._pool.map(self._hide, frames)
            for frame, places in zip(frames, hidden, strict=True):
                self.record.add(frame, places)

    def follow(self, earlier: RegionStep, *, is_alike: bool) -> None:
        """Follow regions on from where an earlier step left them; see :meth:`Follower.follow`."""
        now, before = self._follower, earlier._follower
        if isinstance(now, Follower) and isinstance(before, Follower):
            now.follow(before, is_alike=is_alike)

    def reset(self) -> None:
        """Begin a new scene."""
        if self._follower is not None:
            self._follower.reset()

    def _holds(self, placed: PlacedRegion, frame: Frame) -> bool:
        holds = placed.holds_in(frame)
        if holds:
            self._held.add(placed)
        return holds

    def unused(self) -> dict[str, tuple[bool, str]]:
        """Return warnings about regions that applied in no frame so far, by name.

        True: a frame is shown in its time.
        """
        unused = [one for one in self._edited + self._hidden if one not in self._used]
        held = [one in self._held for one in unused]
        return {
            one.region.name: (is_held, self._reason(one.region, is_held=is_held))
            for one, is_held in zip(unused, held, strict=True)
        }

    def _corners(self, placed: PlacedRegion, frame: Frame) -> Corners:
        if self._follower is not None and placed.region.follow:
            return self._follower.corners(placed, frame)
        return placed.corners(frame.pts)

    def _edit(self, placed: PlacedRegion, corners: Corners, matte: Matte) -> None:
        keeps = placed.region.action is RegionAction.KEEP
        for plane, factor in ((matte.alpha, 1), (matte.reduced, self._factor)):
            scaled = corners / factor
            box = left, top, right, bottom = bounds(scaled, *plane.shape[::-1])
            if left < right and top < bottom:
                draw = partial(coverage, scaled, box)
                limit = self._cached((placed, factor), corners, draw, inverts=not keeps)
                if limit is None:
                    continue
                self._used.add(placed)
                part = plane[top:bottom, left:right]
                (self._placement.xp.maximum if keeps else self._placement.xp.minimum)(
                    part, limit, out=part
                )

    def _cached(
        self,
        key: object,
        corners: Corners,
        draw: Callable[[], NDArray[np.uint8]],
        *,
        inverts: bool = False,
    ) -> Array | None:
        """Return a drawing, as 255 minus it if ``inverts``; None if it is empty."""
        last = self._drawn.get(key)
        if last is None or not np.array_equal(last[0], corners):
            drawn = draw()
            shown = self._placement.array(255 - drawn if inverts else drawn)
            last = self._drawn[key] = corners, shown if drawn.any() else None
        return last[1]

    def _hide(self, _lane: int, frame: Frame) -> list[HiddenPlace]:
        hidden: list[HiddenPlace] = []
        places: list[Place] = []
        for placed in self._hidden:
            place = None
            if self._holds(placed, frame):
                place = self._place(placed, self._corners(placed, frame), frame)
            if place is not None:
                self._used.add(placed)
                places.append(place)
                box = place.box if isinstance(place, Raster) else place
                hidden.append(HiddenPlace(box, placed.region.name))
        if places:
            self._hider.apply(frame, places)
        return hidden

    def _place(
        self, placed: PlacedRegion, corners: Corners, frame: Frame
    ) -> Rectangle | Raster | None:
        """Return the part of a frame that a region touches, in whole chroma samples, or None."""
        height, width = frame.format.luma_shape
        low, high = corners.min(axis=0), corners.max(axis=0)
        low, high = low.clip(0, (width, height)), high.clip(0, (width, height))
        if (low >= high).any():
            return None
        box = whole_samples(*low.tolist(), *high.tolist())
        if placed.is_upright:
            return box
        halved = box.left // 2, box.top // 2, box.right // 2, box.bottom // 2
        draw = partial(touched, corners / 2, halved)
        inside = self._cached(placed, corners, draw)
        return None if inside is None else Raster(box, inside)
