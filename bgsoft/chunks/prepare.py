"""Decision to render a video whole or in chunks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bgsoft.chunks.folder import WorkFolder
from bgsoft.outputs import made_folders
from bgsoft.records import NamedTuple
from bgsoft.rendering.chunk import Chunk, NotDivisibleError
from bgsoft.rendering.request import Request
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig

if TYPE_CHECKING:
    from bgsoft.chunks.tasks import RenderChunk
    from bgsoft.media.info import VideoInfo
    from bgsoft.regions.follow import FollowedRegions

_MIN_CORES = 4
"""Minimum number of cores for rendering in chunks without ``--chunks``."""


class WholeRender(NamedTuple):
    """A video that is rendered whole."""

    info: VideoInfo | None = None
    """The input, if it was probed for the decision."""
    notices: tuple[Event, ...] = ()
    """Reasons, if the user asked for chunks."""


class ChunkedRender(NamedTuple):
    """A video that is rendered in chunks."""

    request: Request
    folder: WorkFolder
    """The working folder, which exists."""
    info: VideoInfo
    chunks: tuple[Chunk, ...]
    threads: int
    """Cores that each of the workers plans for."""
    started: float
    """Start of planning by :func:`time.monotonic`."""
    followed: FollowedRegions | None = None
    """Motion of followed regions, if there are any."""

    def tasks(self) -> list[RenderChunk]:
        """Return one task for each chunk."""
        from bgsoft.chunks.tasks import RenderChunk

        chunks: Sequence[Chunk] = self.chunks
        if (known := self.followed) is not None:
            chunks = [
                replace(each, followed=known.between(each.frames.first, each.frames.end))
                for each in chunks
            ]
        config, render = self.request.config, self.folder.render
        return [RenderChunk(config, render, self.info, *each) for each in enumerate(chunks)]


def prepare(
    request: Request,
    folder: WorkFolder,
    workers: int | None = None,
    cancel: threading.Event | None = None,
    ahead: Callable[[int], None] = lambda _workers: None,
) -> ChunkedRender | WholeRender:
    """Decide whether to render a video in chunks, and plan them.

    Args:
        request: The render, checked.
        folder: Working folder of the output.
        workers: Maximum number of chunks in parallel; None: as many as fit this machine.
        cancel: Set it to stop.
        ahead: Called with the maximum number of workers as soon as chunks are likely.

    Raises:
        BgsoftError: The errors of :func:`bgsoft.rendering.session.render_whole` that show before
            rendering.
    """
    started, config, cancel = time.monotonic(), request.config, cancel or threading.Event()
    # A trace covers one process.
    if config.chunks == 1 or config.trace is not None or request.is_skipped:
        return WholeRender()
    if request.passes_through_pipe:
        return WholeRender(None, _notices(config, "pipes cannot be divided"))
    begun = folder.path.exists()
    is_open = config.chunks is None and not begun
    if is_open and (workers == 1 or config.backends.cores < _MIN_CORES):
        return WholeRender()
    from bgsoft.chunks import plan

    info = request.source.probe(rate=config.fps)
    if workers is None:
        workers = plan.workers_for(request, info)
    if is_open and not plan.pays(config, info, workers):
        return WholeRender(info)
    try:
        plan.check_divisible(request, info)
        ahead(min(workers, config.chunks or workers))
        frames = plan.index_frames(config, info, cancel)
        chunks = plan.divide_video(request, info, frames, workers, begun=begun)
        followed = None
        if any(region.follow for region in config.all_regions):
            from bgsoft.chunks.follow import follow_regions

            followed = follow_regions(config, info, frames, cancel)
    except NotDivisibleError as exc:
        return WholeRender(info, _notices(config, str(exc)))
    with made_folders(config.videos, lambda _text: None):
        request.check_writable(info)
        chunks = folder.prepare(config, chunks)
    threads = plan.threads_for(config, min(workers, len(chunks)))
    return ChunkedRender(request, folder, info, tuple(chunks), threads, started, followed)


def _notices(config: RenderConfig, reason: str) -> tuple[Event, ...]:
    """Return a notice why a video is rendered whole although the user asked for chunks."""
    text = f"rendered whole, not in {config.chunks} chunks: {reason}"
    return (Event(kind="notice", message=text),) if (config.chunks or 1) > 1 else ()
