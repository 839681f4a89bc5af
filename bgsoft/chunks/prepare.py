"""Whether a video is rendered in chunks, and in which."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.tasks import RenderChunk
from bgsoft.errors import (
    BgsoftError,
    OutputError,
    RenderCancelledError,
    StallError,
    WorkerDiedError,
)
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig
from bgsoft.workers import usable_cores

if TYPE_CHECKING:
    from bgsoft.rendering.chunk import Chunk

_LEAST_CORES = 4
"""From which on videos are rendered in chunks without being asked for."""
_PASSING = (RenderCancelledError, WorkerDiedError, StallError, OutputError, MemoryError)
"""What another run of the same command may not meet again."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A video is rendered in one go."""

    notices: tuple[Event, ...] = ()
    """Why, where the user wanted it otherwise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a video is rendered in chunks; its working folder is there."""

    config: RenderConfig
    chunks: tuple[Chunk, ...]
    workers: int
    threads: int
    """Cores that each of them plans for."""
    gpus: Sequence[int]
    """GPUs to deal the chunks over; none: they use the one that the settings name."""
    started: float

    def tasks(self) -> list[RenderChunk]:
        """One for each chunk."""
        return [RenderChunk(self.config, *each) for each in enumerate(self.chunks)]


def plan_render(
    config: RenderConfig, workers: int | None = None, cancel: threading.Event | None = None
) -> Plan | Whole:
    """Decide whether a video is rendered in chunks, and in which.

    Args:
        config: The render.
        workers: How many chunks may be rendered side by side; None: as many as fit this machine.
        cancel: Set it, from any thread, to stop.

    Raises:
        BgsoftError: As :func:`bgsoft.rendering.session.render_config`, as far as that shows without
            rendering.
    """
    started = time.time()
    count = config.chunks
    if count == 1 or (config.skip_existing and config.output.exists()):
        return Whole()
    cores = config.backends.threads or usable_cores()
    begun = WorkFolder(config.output).path.exists()
    if count is None and not begun and (workers == 1 or cores < _LEAST_CORES):
        return Whole()
    from bgsoft.chunks import plan
    from bgsoft.media.probe import probe
    from bgsoft.rendering.target import check_outputs, open_faces

    check_outputs(config)
    info = probe(config.input)
    if workers is None:
        workers = plan.workers_for(config, info)
    if count is None and not begun and not plan.pays(config, info, workers):
        return Whole()
    against = plan.reason_against(config, info)
    chunks: list[Chunk] | str = []
    if against is None:
        frames = plan.read_frames(config, info, cancel or threading.Event())
        if isinstance(frames, str):
            chunks = frames
        else:
            wanted = max(plan.chunk_count(config, len(frames.pts), workers), 1 + begun)
            chunks = plan.divide(frames, wanted, plan.pre_roll_frames(config) or 0)
        against = chunks if isinstance(chunks, str) else None
    if against is not None:
        if count is None:
            return Whole()
        text = f"rendered whole, not in {count} chunks: {against}"
        return Whole((Event(kind="notice", message=text),))
    assert not isinstance(chunks, str)
    from bgsoft.outputs import AtomicOutput, made_folders

    folder = WorkFolder(config.output)
    with made_folders(config.videos, lambda _text: None):
        for path in config.videos:
            AtomicOutput(path, overwrite=config.overwrite, inputs=config.inputs).close()
        faces = open_faces(config)
        if faces is not None:
            faces.close()
        chunks = folder.prepare(config, chunks)
    workers = min(workers, len(chunks))
    threads = plan.threads_for(config, workers)
    return Plan(config, tuple(chunks), workers, threads, plan.gpus_for(config), started)


def after_failure(config: RenderConfig, exc: BaseException) -> str | None:
    """Keep finished chunks where another run of the same command may get further, else remove them.

    Returns:
        What to tell the user, where some are kept.
    """
    folder = WorkFolder(config.output)
    done = folder.count()
    if not done or (isinstance(exc, BgsoftError) and not isinstance(exc, _PASSING)):
        folder.remove()
        return None
    return f"finished chunks are kept in {folder.path}: the same command goes on from there"
