"""The picture loop: reduce, segment, find faces, refine the matte, composite, finish.

One loop for frames on the host and on a device. A batch goes through stage after stage; what each
stage does side by side, on one stream, or in order is its own business. A scene cut divides a
batch: everything that remembers earlier frames is reset between its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from bgsoft.analysis.base import Reducer
from bgsoft.clock import StageClock, observed
from bgsoft.composite.base import Compositor
from bgsoft.face.step import FaceStep
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.hide.regions import HiddenRegions
from bgsoft.matte.base import MatteStage
from bgsoft.pipeline.metrics import Metrics
from bgsoft.segment.base import Segmenter
from bgsoft.workers import Workers

R = TypeVar("R")

RENEWAL = 128
"""Every so many frames, counted through the video, what would else be kept for as long as it holds
is decided anew: which frames are segmented, where the segmenter looks closely, where faces are. So
no frame depends on what happened long ago, and a video can be rendered in parts
(:mod:`bgsoft.chunks`) that come out as they do in one go."""
BACKGROUND_RENEWAL = 32
"""So many frames after each renewal the background is, too. A part begins there: by then what fades
over time (the temporal filter, new faces) has settled."""


class Execution(Protocol):
    """How the picture loop's work is carried out, wherever the frames are."""

    batch: int
    """Frames at a time, 1 or more."""

    def working(self, frames: Sequence[Frame]) -> AbstractContextManager[None]:
        """Around all work on some frames: what is done inside comes after what made them."""
        ...

    def measure(self, clock: StageClock) -> AbstractContextManager[None]:
        """Around the work of one stage: its time is that stage's."""
        ...

    def beside(self, work: Callable[[], R]) -> Callable[[], R]:
        """Something that needs nothing of what follows; calling the answer waits for its result."""
        ...

    def hand_out(self, frames: Sequence[Frame]) -> None:
        """Frames are finished once all that was done so far is done."""
        ...

    def wait(self) -> None:
        """Wait for all that is under way."""
        ...

    def close(self) -> None:
        """Free what it works with; safe to call twice."""
        ...


class HostExecution:
    """Works at once, the frames of a batch side by side.

    Args:
        workers: Closed with it.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.batch = workers.lanes

    def working(self, frames: Sequence[Frame]) -> AbstractContextManager[None]:
        return nullcontext()

    def measure(self, clock: StageClock) -> AbstractContextManager[None]:
        return clock.measure()

    def beside(self, work: Callable[[], R]) -> Callable[[], R]:
        return self._workers.beside(work).result

    def hand_out(self, frames: Sequence[Frame]) -> None:
        """On the host what is done is done."""

    def wait(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        self._workers.close()


class SceneProbe(Protocol):
    """Compares frames with earlier ones, on the device they live on."""

    def cuts(self, reduced: Sequence[AnalysisFrame]) -> list[bool]:
        """Which frames begin a new scene. Called once for every frame, in order."""
        ...

    def is_similar(self, reduced: AnalysisFrame, min_db: float) -> bool:
        """Whether the frame is within ``min_db`` PSNR of the one last kept by :meth:`keep`.

        On a device it must be the only one that :meth:`cuts` was called with last.
        """
        ...

    def keep(self, reduced: AnalysisFrame) -> None:
        """Remember this frame for :meth:`is_similar`."""
        ...


class MaskSchedule:
    """Decides which frames are segmented and which keep the last mask.

    Args:
        every: Segment every Nth frame of a scene.
        similarity_db: Also keep the mask while the picture stays this similar; None: don't look.
    """

    def __init__(self, every: int, similarity_db: float | None) -> None:
        self._every = every
        self._similarity_db = similarity_db
        self._since: int | None = None

    @property
    def takes_all(self) -> bool:
        """Whether every frame is segmented."""
        return self._every == 1 and self._similarity_db is None

    def is_due(self, reduced: AnalysisFrame, scenes: SceneProbe) -> bool:
        """Whether this frame is to be segmented. Called once for every frame, in order."""
        if self._since is not None:
            self._since += 1
            if self._since < self._every:
                return False
            db = self._similarity_db
            if db is not None and scenes.is_similar(reduced, db):
                return False
        self._since = 0
        if self._similarity_db is not None:
            scenes.keep(reduced)
        return True

    def reset(self) -> None:
        """Make the next frame due (scene cut, renewal)."""
        self._since = None


@dataclass(kw_only=True, eq=False)
class PictureStages:
    """Runs the picture stages of one render on batches of frames, in presentation order.

    All state between frames is in the stages that are passed in; a scene cut resets it.
    """

    execution: Execution
    """Carries the work out; closed with the stages."""
    reducer: Reducer
    """Makes the analysis frames."""
    scenes: SceneProbe
    """Sees scene cuts."""
    schedule: MaskSchedule
    """Says which frames are segmented."""
    segmenter: Segmenter
    """Makes the masks."""
    matte: MatteStage
    """Makes the mattes."""
    compositor: Compositor
    """Replaces the background."""
    metrics: Metrics
    """Has the clocks."""
    on_cut: Callable[[Frame], None]
    """Called for each frame that begins a new scene."""
    faces: FaceStep | None = None
    """What is done for faces; None: nothing."""
    regions: HiddenRegions | None = None
    """What else is hidden; None: nothing."""
    kept_from: int | None = None
    """Frames with an earlier pts only lead up to those that are kept, and are not composited; None:
    all are kept."""

    def __post_init__(self) -> None:
        for stage in ("segment", "matte", "composite", "face"):
            self.metrics.stage(stage)  # others read the clocks while frames run

    @property
    def batch(self) -> int:
        """Frames at a time, for :class:`bgsoft.pipeline.runner.Pipeline`."""
        return self.execution.batch

    @property
    def held(self) -> int:
        """Frames kept back at most, for the same."""
        return 0 if self.faces is None else self.faces.held

    def _measure(self, stage: str) -> AbstractContextManager[None]:
        return self.execution.measure(self.metrics.stage(stage))

    def start(self) -> None:
        """Run the models once; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        with self.execution.working(()):
            with observed(self.metrics.observer, "first run of the model"):
                self.segmenter.start()
            if self.faces is not None:
                with observed(self.metrics.observer, "first run of the face models"):
                    self.execution.beside(self.faces.start)()
            self.execution.wait()

    def process(self, frame: Frame) -> Matte:
        """Finish one frame in place, without the next ones; its alpha plane gets its matte.

        For single frames: faces are hidden by what is known of this frame and those before it.

        Raises:
            InferenceError: The model failed on this frame.
        """
        with self.execution.working([frame]):
            _, (matte,) = self._composite_batch([frame])
            if self.faces is not None:
                self.faces.flush()
        return matte

    def process_batch(self, frames: Sequence[Frame]) -> list[Frame]:
        """Composite up to :attr:`batch` frames; see :class:`bgsoft.pipeline.runner.FrameStage`.

        Raises:
            InferenceError: The model failed on a frame.
        """
        with self.execution.working(frames):
            finished, _ = self._composite_batch(frames)
            self.execution.hand_out(finished)
        return finished

    def flush(self) -> list[Frame]:
        """Finish what is kept back; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        if self.faces is None:
            return []
        with self.execution.working(()):
            with self._measure("face"):
                finished = self.faces.flush()
            self.execution.hand_out(finished)
        return finished

    def _composite_batch(self, frames: Sequence[Frame]) -> tuple[list[Frame], list[Matte]]:
        """Frames that are finished now, and the mattes of those that were given."""
        with self._measure("segment"):
            reduced = self.reducer.reduce(frames)
            if self.schedule.takes_all:
                # On a device, the next line waits.
                self.segmenter.begin(frames, reduced)
            cuts = self.scenes.cuts(reduced)
        finished: list[Frame] = []
        mattes: list[Matte] = []
        for start, stop in _stretches(frames, cuts):
            if cuts[start]:
                self._reset(frames[start])
            self._renew(frames[start])
            done, made = self._composite_scene(frames[start:stop], reduced[start:stop])
            finished += done
            mattes += made
        return finished, mattes

    def _composite_scene(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> tuple[list[Frame], list[Matte]]:
        """The same for frames of one scene."""
        measure, faces = self._measure, self.faces
        if faces is not None:
            found = self.execution.beside(partial(self._beside, faces.find, frames, reduced))
        with measure("segment"):
            masks = self._masks(frames, reduced)
        with measure("matte"):
            mattes = self.matte.refine(masks, frames, reduced)
        if faces is not None:
            faces_of = found()
            look_at = partial(self._beside, faces.look_at, frames, reduced, mattes, faces_of)
            self.execution.beside(look_at)()
            with measure("face"):
                faces.edit_mattes(frames, mattes, faces_of)
        with measure("composite"):
            lead = self._lead(frames)
            if lead < len(frames):
                self.compositor.apply(frames[lead:], mattes[lead:], reduced[lead:])
                if self.regions is not None:
                    self.regions.apply(frames[lead:])
        if faces is None:
            return list(frames), mattes
        with measure("face"):
            return faces.finish(frames, faces_of), mattes

    def _masks(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> list[Array | None]:
        """The masks of the frames that are due, made at once; None for the others."""
        due = [i for i, grid in enumerate(reduced) if self.schedule.is_due(grid, self.scenes)]
        masks: list[Array | None] = [None] * len(frames)
        if due:
            made = self.segmenter.masks([frames[i] for i in due], [reduced[i] for i in due])
            for index, mask in zip(due, made, strict=True):
                masks[index] = mask
        return masks

    def _beside(self, work: Callable[..., R], *args: Any) -> R:
        """Do something for faces in the thread that the execution has for it."""
        with self.metrics.stage("face").measure():
            return work(*args)

    def _reset(self, frame: Frame) -> None:
        """Forget what was before this frame, which begins a new scene."""
        self.schedule.reset()
        self.segmenter.reset()
        self.matte.reset()
        if self.faces is not None:
            self.faces.reset()
        self.on_cut(frame)

    def _renew(self, frame: Frame) -> None:
        """Decide anew what is due for it at this frame."""
        since = frame.index % RENEWAL
        if since == 0:
            self.schedule.reset()
            self.segmenter.renew()
            if self.faces is not None:
                self.faces.renew()
        elif since == BACKGROUND_RENEWAL:
            self.compositor.renew()

    def _lead(self, frames: Sequence[Frame]) -> int:
        """How many of some frames come before those that are kept."""
        if self.kept_from is None:
            return 0
        return sum(frame.pts < self.kept_from for frame in frames)

    def close(self) -> None:
        """Free the stages; safe to call twice."""
        with self.execution.working(()):
            self.execution.wait()
            if self.faces is not None:
                # Behind what is still looked for where something has failed.
                self.execution.beside(self.faces.close)()
        self.segmenter.close()
        self.compositor.close()
        self.execution.close()


def _stretches(frames: Sequence[Frame], cuts: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Where the parts of a batch start and stop that cuts and renewals divide."""
    starts = [
        at
        for at, (frame, cut) in enumerate(zip(frames, cuts, strict=True))
        if cut or at == 0 or frame.index % RENEWAL in (0, BACKGROUND_RENEWAL)
    ]
    yield from zip(starts, [*starts[1:], len(cuts)], strict=True)
