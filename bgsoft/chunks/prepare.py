"""Whether a video is rendered in chunks, and in which."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bgsoft.chunks.folder import WorkFolder
from bgsoft.pipes import is_input_pipe, is_output_pipe
from bgsoft.records import NamedTuple
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig

if TYPE_CHECKING:
    from bgsoft.chunks.tasks import RenderChunk
    from bgsoft.media.info import VideoInfo
    from bgsoft.rendering.chunk import Chunk

_LEAST_CORES = 4
"""From which on videos are rendered in chunks without being asked for."""


class Whole(NamedTuple):
    """A video is rendered in one go."""

    info: VideoInfo | None = None
    """The input, where it was probed for the decision."""
    notices: tuple[Event, ...] = ()
    """Why, where the user wanted it otherwise."""


class Plan(NamedTuple):
    """How a video is rendered in chunks."""

    config: RenderConfig
    folder: WorkFolder
    """It is there."""
    info: VideoInfo
    chunks: tuple[Chunk, ...]
    threads: int
    """Cores that each of the workers plans for."""
    started: float
    """On the clock of :func:`time.monotonic`."""

    def tasks(self) -> list[RenderChunk]:
        """One for each chunk."""
        from bgsoft.chunks.tasks import RenderChunk

        return [RenderChunk(self.config, self.info, *each) for each in enumerate(self.chunks)]


def plan_render(
    config: RenderConfig,
    folder: WorkFolder,
    workers: int | None = None,
    cancel: threading.Event | None = None,
    ahead: Callable[[int], None] = lambda _workers: None,
) -> Plan | Whole:
    """Decide whether a video is rendered in chunks, and in which.

    Args:
        config: What to do.
        folder: Where chunks of the output are kept.
        workers: How many may be rendered side by side; None: as many as fit this machine.
        cancel: Set where the render is to stop.
        ahead: Called as soon as a number of workers is likely to be wanted, and no more will be.

    Raises:
        BgsoftError: As :func:`bgsoft.rendering.session.render_config`, as far as that shows without
            rendering.
    """
    started = time.monotonic()
    if is_input_pipe(config.input) or is_output_pipe(config.output):
        return Whole(None, _told(config, "a pipe is read and written once"))
    # Of several processes there is no one trace.
    is_whole = config.chunks == 1 or config.trace is not None
    if is_whole or (config.skip_existing and config.output.exists()):
        return Whole()
    begun = folder.path.exists()
    is_open = config.chunks is None and not begun
    if is_open and (workers == 1 or config.backends.cores < _LEAST_CORES):
        return Whole()
    from bgsoft.chunks import plan
    from bgsoft.rendering.target import check_outputs, probe_input

    check_outputs(config)
    info = probe_input(config)
    if workers is None:
        workers = plan.workers_for(config, info)
    if is_open and not plan.pays(config, info, workers):
        return Whole(info)
    against = plan.reason_against(config, info)
    if against is not None:
        return Whole(info, _told(config, against))
    ahead(min(workers, config.chunks or workers))
    chunks = plan.divide_video(config, info, workers, begun, cancel or threading.Event())
    if isinstance(chunks, str):
        return Whole(info, _told(config, chunks))
    chunks = _prepare_folder(folder, config, chunks)
    threads = plan.threads_for(config, min(workers, len(chunks)))
    return Plan(config, folder, info, tuple(chunks), threads, started)


def _told(config: RenderConfig, reason: str) -> tuple[Event, ...]:
    """Why a video is rendered whole, where the user wanted it otherwise."""
    text = f"rendered whole, not in {config.chunks} chunks: {reason}"
    return (Event(kind="notice", message=text),) if (config.chunks or 1) > 1 else ()


def _prepare_folder(folder: WorkFolder, config: RenderConfig, chunks: list[Chunk]) -> list[Chunk]:
    """Check what will be written, and make the working folder; the chunks as they are there."""
    from bgsoft.outputs import AtomicOutput, made_folders
    from bgsoft.rendering.target import open_faces

    with made_folders(config.videos, lambda _text: None):
        for path in config.videos:
            AtomicOutput(path, overwrite=config.overwrite, inputs=config.inputs).close()
        faces = open_faces(config)
        if faces is not None:
            faces.close()
        return folder.prepare(config, chunks)
