"""The tasks of a render in parts, for worker processes anywhere that see the same files."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.part import finds_first
from bgsoft.chunks.progress import SearchProgress
from bgsoft.config import RenderConfig
from bgsoft.errors import BgsoftError, OutputError
from bgsoft.jobs.task import Followup, Task, TaskContext
from bgsoft.report import Event, Progress

if TYPE_CHECKING:
    from pathlib import Path

    from bgsoft.chunks.join import UnfitError
    from bgsoft.chunks.part import Part


@dataclass(frozen=True, slots=True)
class PlanRender:
    """A render that may turn out to be one in parts: gives its report, or what leads to it."""

    config: RenderConfig
    workers: int | None = None
    """How many parts may be rendered side by side; None: as many as fit this machine."""

    def run(self, context: TaskContext) -> object:
        from bgsoft.chunks.run import Whole, plan_render

        plan = plan_render(self.config, self.workers)
        if isinstance(plan, Whole):
            return RenderWhole(self.config, plan.notices).run(context)
        return plan.followup()


@dataclass(frozen=True, slots=True)
class RenderWhole:
    """A render in one go."""

    config: RenderConfig
    notices: tuple[Event, ...] = ()
    """Reported before it begins."""
    threads: int | None = None
    """Cores to plan for; None: as many as the worker has."""

    def with_results(self, results: list[object]) -> Task:
        return self

    def run(self, context: TaskContext) -> object:
        from bgsoft.rendering import render_config

        threads = self.threads or self.config.backends.threads or context.threads
        config = replace(_placed(self.config, context, threads), chunks=1)
        return render_config(
            config,
            on_progress=context.tell,
            on_event=context.tell,
            cancel=context.cancel,
            events=self.notices,
        )


@dataclass(frozen=True, slots=True)
class RenderPart:
    """One part, into the working folder; nothing to do where it is there already.

    Its result says whether that was so.
    """

    config: RenderConfig
    parts: int
    number: int
    """From 0."""
    part: Part
    finds: bool = False
    """Only its faces are found."""

    def run(self, context: TaskContext) -> object:
        from bgsoft.chunks.faces import joined_faces
        from bgsoft.face.recorded import RecordedFaces
        from bgsoft.rendering import render_part

        config = self.config
        folder = WorkFolder(config.output)
        progress = SearchProgress if self.finds else Progress
        with folder.used():
            if folder.finished(self.number, searched=self.finds) is not None:
                length = self.part.length
                context.tell(
                    progress(
                        frames=length,
                        total=length,
                        elapsed_seconds=0.0,
                        fps=0.0,
                        eta_seconds=0.0,
                        load={},
                    )
                )
                return True
            files = [
                folder.video(self.number, target, index)
                for index, target in enumerate(config.videos)
            ]
            own = replace(
                _placed(config, context, context.threads),
                output=files[0],
                matte_out=files[1] if len(files) > 1 else None,
                overwrite=True,
                skip_existing=False,
                report=None,
                receipt=None,
                face_data=self._face_data(folder),
            )
            recorded = None
            if finds_first(config) and not self.finds:
                searched, faces = folder.searched(self.parts)
                recorded = RecordedFaces(joined_faces(searched, faces))

            def tell(news: Progress) -> None:
                context.tell(SearchProgress.of(news) if self.finds else news)

            try:
                result = render_part(
                    own,
                    self.part,
                    recorded,
                    finds=self.finds,
                    on_progress=tell,
                    on_event=context.tell,
                    cancel=context.cancel,
                )
            except BgsoftError as exc:
                for file, target in zip(files, config.videos, strict=True):
                    exc.message = exc.message.replace(file.name, target.name)
                exc.args = (exc.message,)
                if isinstance(exc, OutputError):
                    exc.path = config.output
                raise
            folder.finish(self.number, result, searched=self.finds)
        return False

    def _face_data(self, folder: WorkFolder) -> Path | None:
        """Where the part's faces are to be written."""
        if self.finds or (self.config.face_data is not None and not finds_first(self.config)):
            return folder.faces(self.number)
        return None


@dataclass(frozen=True, slots=True)
class RenderFound:
    """Leads to the parts of a render, once the faces of all are found."""

    config: RenderConfig
    parts: tuple[Part, ...]
    last: JoinParts

    def with_results(self, results: list[object]) -> Task:
        return self

    def run(self, context: TaskContext) -> object:
        from bgsoft.chunks.join import UnfitError, check_parts

        folder = WorkFolder(self.config.output)
        with folder.used():
            try:
                check_parts(folder.searched(len(self.parts))[0])
            except UnfitError as exc:
                return self.last.whole(context, exc)
        tasks = (
            RenderPart(self.config, len(self.parts), number, part)
            for number, part in enumerate(self.parts)
        )
        return Followup(tuple(tasks), self.last)


@dataclass(frozen=True, slots=True)
class JoinParts:
    """Makes the output of finished parts; gives the report."""

    config: RenderConfig
    parts: int
    started: float
    """When the render began, by :func:`time.time`."""
    threads: int | None = None
    """Cores to plan for should the video have to be rendered whole; None: the worker's."""
    reused: tuple[bool, ...] = ()
    """Which parts were there already."""

    def with_results(self, results: list[object]) -> Task:
        return replace(self, reused=tuple(map(bool, results)))

    def run(self, context: TaskContext) -> object:
        from bgsoft.chunks.join import UnfitError, join

        folder = WorkFolder(self.config.output)
        try:
            with folder.used():
                report = join(
                    self.config,
                    folder,
                    self.reused,
                    on_event=context.tell,
                    cancel=context.cancel,
                    elapsed=lambda: time.time() - self.started,
                )
        except UnfitError as exc:
            return self.whole(context, exc)
        folder.remove()
        return report

    def whole(self, context: TaskContext, reason: UnfitError) -> Followup:
        """What renders the video in one go after all."""
        WorkFolder(self.config.output).remove()
        notice = Event(kind="notice", message=f"rendered whole, in one part: {reason}")
        context.tell(notice)
        return Followup((), RenderWhole(self.config, (notice,), self.threads))


def _placed(config: RenderConfig, context: TaskContext, threads: int) -> RenderConfig:
    """The settings on a worker's share of a machine."""
    gpu = config.backends.gpu if context.gpu is None else context.gpu
    return replace(config, backends=replace(config.backends, threads=threads, gpu=gpu))
