"""Chunks of a render in parallel worker processes, whose frames are discarded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bgsoft.bench.floor import render_picture
from bgsoft.chunks.plan import divide, gpus_for, index_frames, pre_roll_frames
from bgsoft.errors import BackendUnavailableError
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.pool import Pool, worker_environment
from bgsoft.jobs.task import Finished, TaskContext
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.records import dataclass
from bgsoft.rendering.ahead import make_ready
from bgsoft.rendering.chunk import Chunk, NotDivisibleError
from bgsoft.settings.config import RenderConfig


@dataclass(frozen=True)
class ThrownAway:
    """A task that renders a chunk, or the whole, and discards the frames."""

    config: RenderConfig
    info: VideoInfo
    chunk: Chunk | None

    def run(self, context: TaskContext) -> object:
        backends = replace(self.config.backends, threads=context.threads, gpu=context.gpu)
        return render_picture(replace(self.config, backends=backends), self.chunk, self.info)


def render_chunks(config: RenderConfig, count: int) -> dict[str, Any]:
    """Render ``count`` chunks at a time, on all GPUs unless one is named.

    Returns:
        ``frames`` of all chunks.

    Raises:
        BackendUnavailableError: The video cannot be divided.
        BgsoftError: A chunk failed.
    """
    info = probe(config.input)
    parts: Sequence[Chunk | None] = [None]
    if count > 1:
        try:
            frames = index_frames(config, info, threading.Event())
            parts = divide(frames, count, pre_roll_frames(config))
        except NotDivisibleError as exc:
            raise BackendUnavailableError(f"cannot divide {config.input}: {exc}") from exc
    gpus = gpus_for(config)
    environment = worker_environment(config.backends, count, len(gpus), lambda _text: None)
    pool = Pool(
        count, gpus=gpus, environment=environment, ahead=partial(make_ready, config.backends)
    )
    with Driver(pool) as driver:
        pool.start()
        driver.submit([ThrownAway(config, info, part) for part in parts])
        while True:
            for update in driver.poll(1.0):
                if isinstance(update, Finished):
                    if update.error is not None:
                        raise update.error
                    made = update.result
                    assert isinstance(made, list)
                    return {"frames": sum(part["frames"] for part in made)}
