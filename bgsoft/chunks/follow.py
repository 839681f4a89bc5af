"""Following of regions through a whole video, before its chunks are rendered.

A region is followed from the frame in which it was drawn, so a chunk cannot follow it alone. On
the host at 1080p, following takes a fifth of the processor time of a render.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from functools import partial

from bgsoft.analysis.base import REACH
from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.chunks.plan import FrameIndex
from bgsoft.decode.base import DecodeSettings, PtsRange
from bgsoft.decode.cpu import CpuDecoder, decoder_threads
from bgsoft.errors import RenderCancelledError
from bgsoft.media.info import VideoInfo
from bgsoft.regions.follow import FollowedRegions, Follower, Motion
from bgsoft.regions.places import place_regions
from bgsoft.rendering.chunk import NotDivisibleError
from bgsoft.rendering.host import host_planes
from bgsoft.report import Event
from bgsoft.resources import Resources
from bgsoft.ring import FrameRing
from bgsoft.settings.config import RenderConfig


def follow_regions(
    config: RenderConfig, info: VideoInfo, frames: FrameIndex, cancel: threading.Event
) -> FollowedRegions:
    """Follow the regions of a render that are to be followed.

    Args:
        config: Settings of the render.
        info: The video.
        frames: All frames that are rendered.
        cancel: Set it to stop.

    Raises:
        ConfigError: A region cannot be used on this video.
        OpenError, DecodeError: The video cannot be read.
        NotDivisibleError: Frames cannot be decoded, so regions may begin in others.
        RenderCancelledError: ``cancel`` was set.
    """
    regions = [each for each in config.all_regions if each.follow]
    placed, pts = place_regions(regions, config, info), frames.pts
    lost: list[Event] = []
    follower = Follower(placed, info.format, lost.append)
    motions = {one.region: Motion(array("q"), []) for one in placed}
    reducer, scenes = Reducer(info.format), LumaProbe(info.format)
    ring = FrameRing(1, partial(host_planes, info.format))
    # REACH more frames, so that the same scene cuts are detected as in a render.
    first = max(0, bisect_right(pts, min(one.begin for one in placed)) - 1 - REACH)
    settings = DecodeSettings(
        range=PtsRange(pts[first], frames.end, first),
        threads=decoder_threads(Resources(threads=config.backends.threads)),
    )
    with CpuDecoder(info.path, settings, info=info) as decoder:
        for frame in decoder.frames(ring):
            if cancel.is_set():
                raise RenderCancelledError("interrupted")
            if frame.pts not in pts[frame.index : frame.index + 1]:
                raise NotDivisibleError("frames are missing where a region is followed")
            reduced = reducer.reduce([frame])
            if scenes.cuts(reduced)[0]:
                follower.reset()
            follower.update([frame], reduced)
            ring.release(frame)
            for one in placed:
                moved = follower.moved(one)
                if moved is not None and one.holds_in(frame):
                    motions[one.region].pts.append(frame.pts)
                    motions[one.region].moved.append(moved)
            if all(follower.is_lost(one) or frame.pts >= one.end for one in placed):
                break
    return FollowedRegions(motions, lost)
