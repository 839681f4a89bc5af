"""Tasks of renders, for worker processes on any machine that has the same files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bgsoft.chunks.folder import WorkFolder
from bgsoft.errors import BgsoftError, OutputError
from bgsoft.jobs.task import TaskContext
from bgsoft.outputs import read_receipt
from bgsoft.records import dataclass
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.request import Request
from bgsoft.report import Event, Progress
from bgsoft.settings.config import RenderConfig

if TYPE_CHECKING:
    from bgsoft.media.info import VideoInfo
    from bgsoft.rendering.chunk import Chunk


@dataclass(frozen=True, slots=True)
class RenderWhole:
    """A whole render, which returns its report."""

    config: RenderConfig
    threads: int | None = None
    """Cores to plan for; None: all cores of the worker."""
    info: VideoInfo | None = None
    """The input, if it has been probed."""
    notices: tuple[Event, ...] = ()
    """Events to report before the render begins."""

    def run(self, context: TaskContext) -> object:
        from bgsoft.rendering.session import render_whole

        threads = self.config.backends.threads or self.threads or context.threads
        config = replace(_placed(self.config, context, threads), chunks=1)
        if config.receipt is not None and any(read_receipt(config.receipt).values()):
            # A worker finished the output, and died before it could report that.
            config = replace(config, overwrite=True, skip_existing=False)
        request = Request(config)
        request.check()
        return render_whole(request, _listener(context), info=self.info, events=self.notices)


@dataclass(frozen=True, slots=True)
class RenderChunk:
    """One chunk, written to the working folder unless it is already there.

    The result is True if the chunk was already there.
    """

    config: RenderConfig
    render: str
    """See :class:`WorkFolder`."""
    info: VideoInfo
    number: int
    """Number of the chunk, from 0."""
    chunk: Chunk

    def run(self, context: TaskContext) -> object:
        folder = WorkFolder(self.config.output, render=self.render)
        with folder.used():
            if folder.finished(self.number) is None:
                self._render(folder, context)
                return False
        length = self.chunk.length
        context.send(
            Progress(frames=length, total=length, elapsed_seconds=0, fps=0, eta_seconds=0, load={})
        )
        return True

    def _render(self, folder: WorkFolder, context: TaskContext) -> None:
        from bgsoft.rendering.session import render_chunk

        config = self.config
        files = [
            folder.video(self.number, target, index) for index, target in enumerate(config.videos)
        ]
        own = replace(
            _placed(config, context, context.threads),
            output=files[0],
            matte_out=files[1] if len(files) > 1 else None,
            overwrite=True,
            skip_existing=False,
            report=None,
            face_data=None if config.face_data is None else folder.faces(self.number),
            receipt=None,
        )
        try:
            result = render_chunk(Request(own), self.info, self.chunk, _listener(context))
        except BgsoftError as exc:
            for file, target in zip(files, config.videos, strict=True):
                exc.message = exc.message.replace(file.name, target.name)
            exc.args = (exc.message,)
            if isinstance(exc, OutputError):
                exc.path = config.output
            raise
        folder.finish(self.number, result)


def _listener(context: TaskContext) -> Listener:
    return Listener(context.send, context.send, context.cancel)


def _placed(config: RenderConfig, context: TaskContext, threads: int) -> RenderConfig:
    """Return the settings with a worker's threads and GPU."""
    gpu = config.backends.gpu if context.gpu is None else context.gpu
    return replace(config, backends=replace(config.backends, threads=threads, gpu=gpu))
