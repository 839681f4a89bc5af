"""The picture loop: reduce, segment, find faces, refine the matte, composite, finish.

One loop serves frames on the host and on a device. A batch passes stage after stage; each stage
decides what it runs in parallel. A scene cut divides a batch: all state of earlier frames is reset
between its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.clock import StageClock
from bgsoft.composite.compositor import PictureCompositor
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.matte.area import AreaMeter
from bgsoft.matte.base import MatteStage
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.refresh import BACKGROUND_REFRESH_OFFSET, REFRESH_INTERVAL
from bgsoft.records import dataclass
from bgsoft.report import PICTURE_STAGES
from bgsoft.segment.base import Segmenter
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.detect.boxes import FoundBox
    from bgsoft.detect.step import DetectorStep
    from bgsoft.face.step import FaceStep, FoundFaces
    from bgsoft.matte.given import MatteMerger, MatteReader
    from bgsoft.regions.step import RegionStep

R = TypeVar("R")


class Execution:
    """Runs the picture loop's work on the host, where each call has finished when it returns.

    Args:
        batch: Frames at a time, 1 or more.
        pool: Closed with this; the first thread runs submitted work.
        others: Also closed with this.
    """

    ahead = 1
    """Batches that may be segmented before the other stages take them, in a thread of their own.
    0: one thread does everything."""

    def __init__(self, batch: int, pool: LanePool, *others: LanePool) -> None:
        self.batch = batch
        self._pool, self._others = pool, others

    def working(self, frames: Sequence[Frame]) -> AbstractContextManager[None]:
        """Return a context for all work on some frames, which is ordered after their making."""
        return nullcontext()

    def measure(self, clock: StageClock) -> AbstractContextManager[None]:
        """Return a context for the work of one stage; its clock measures the time."""
        return clock

    def submit(self, work: Callable[[], R]) -> Callable[[], R]:
        """Start work in another thread; call the result to wait for it."""
        return self._pool.submit(work).result

    def hand_out(self, frames: Sequence[Frame]) -> None:
        """Mark frames as finished once all work so far has finished."""

    def wait(self) -> None:
        """Wait for all work in progress."""

    def close(self) -> None:
        """Free resources; safe to call twice."""
        for pool in (self._pool, *self._others):
            pool.close()


class MaskSchedule:
    """Decides which frames are segmented and which keep the last mask.

    Args:
        every: Segment every Nth frame of a scene.
        similarity_db: Also keep the mask while the picture stays this similar; None: ignore it.
    """

    def __init__(self, every: int = 1, similarity_db: float | None = None) -> None:
        self.every = every
        """May be changed between frames."""
        self._similarity_db = similarity_db
        self._since: int | None = None

    @property
    def takes_all(self) -> bool:
        """True if every frame is segmented."""
        return self.every == 1 and self._similarity_db is None

    def due(self, reduced: Sequence[AnalysisFrame], scenes: LumaProbe) -> Sequence[int]:
        """Return which of the next frames to segment. Call once for every frame, in order."""
        if self.takes_all:
            self._since = 0
            return range(len(reduced))
        return [index for index, each in enumerate(reduced) if self._is_due(each, scenes)]

    def _is_due(self, reduced: AnalysisFrame, scenes: LumaProbe) -> bool:
        if self._since is not None:
            self._since += 1
            if self._since < self.every:
                return False
            db = self._similarity_db
            if db is not None and scenes.is_similar(reduced, db):
                return False
        self._since = 0
        if self._similarity_db is not None:
            scenes.keep(reduced)
        return True

    def reset(self) -> None:
        """Make the next frame due (scene cut, refresh)."""
        self._since = None


@dataclass(kw_only=True, eq=False)
class PictureStages:
    """Runs the picture stages of one render on batches of frames, in presentation order.

    All state between frames is in the given stages; a scene cut resets it.
    """

    execution: Execution
    """Closed with the stages."""
    reducer: Reducer
    scenes: LumaProbe
    schedule: MaskSchedule
    segmenter: Segmenter
    matte: MatteStage
    compositor: PictureCompositor
    metrics: Metrics
    on_cut: Callable[[Frame], None]
    """Called for each frame that begins a new scene."""
    faces: FaceStep | None = None
    regions: RegionStep | None = None
    detector: DetectorStep | None = None
    merger: MatteMerger | None = None
    reader: MatteReader | None = None
    """Reads given mattes, for the segmenter or the merger."""
    areas: AreaMeter | None = None
    """Measures the mattes of frames that are kept; None: nobody asks."""
    trim_start: int | None = None
    """Frames with an earlier pts are a pre-roll: they are not composited and not kept. None: keep
    all frames."""

    def __post_init__(self) -> None:
        # See bgsoft.pipeline.runner.FrameStage: one batch more is held while others are processed.
        self.batch, self.ahead = self.execution.batch, self.execution.ahead
        self.held = 2 * self.ahead * self.batch
        if self.faces is not None:
            self.held += self.faces.held + self.batch
        self._open: Scene | None = None
        """A scene that is composited once the faces that its mattes may have missed are known.
        Meanwhile the next frames get their mattes."""
        self._segmenting, self._facing, self._matting, self._compositing = (
            self.execution.measure(self.metrics.stages[name]) for name in PICTURE_STAGES
        )

    def start(self) -> None:
        """Run each model once; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        with self.execution.working(()):
            with StageClock("first run of the model", self.metrics.observer):
                self.segmenter.start()
                if self.detector is not None:
                    self.detector.start()
            if self.faces is not None:
                with StageClock("first run of the face models", self.metrics.observer):
                    self.execution.submit(self.faces.start)()
            self.execution.wait()

    def prepare(self, frames: Sequence[Frame]) -> list[Scene]:
        """Segment up to :attr:`batch` frames; see :class:`bgsoft.pipeline.runner.FrameStage`.

        Raises:
            InferenceError: A model failed on a frame.
        """
        scenes = self._scenes(frames)
        for scene in scenes:
            scene.masks = [None if mask is None else mask.copy() for mask in self._segment(scene)]
        return scenes

    def process(self, prepared: Sequence[Scene]) -> list[Frame]:
        """Composite prepared frames; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        return [frame for scene in prepared for frame in self._process(scene)]

    def process_batch(self, frames: Sequence[Frame]) -> list[Frame]:
        """Segment and composite up to :attr:`batch` frames in this thread.

        Raises:
            InferenceError: A model failed on a frame.
        """
        with self.execution.working(frames):
            finished = self.process(self._scenes(frames))
            self.execution.hand_out(finished)
        return finished

    def flush(self) -> list[Frame]:
        """Finish the frames that are held; see :class:`bgsoft.pipeline.runner.FrameStage`.

        Between batches, faces are hidden without knowledge of later frames.
        """
        if self.faces is None:
            return []
        with self.execution.working(()):
            finished = self._composite()
            with self._facing:
                finished += self.faces.flush()
            self.execution.hand_out(finished)
        return finished

    def _scenes(self, frames: Sequence[Frame]) -> list[Scene]:
        """Reduce the frames of a batch, and divide them at scene cuts."""
        with self._segmenting:
            reduced = self.reducer.reduce(frames)
            if self.schedule.takes_all:
                # On a device, the next call waits.
                self.segmenter.begin(frames, reduced)
            cuts = self.scenes.cuts(reduced)
        scenes: list[Scene] = []
        stop = len(frames)
        for start in range(stop - 1, -1, -1):
            place = frames[start].index % REFRESH_INTERVAL
            if start == 0 or cuts[start] or _is_renewed(place):
                part = slice(start, stop)
                scenes.insert(0, Scene(frames[part], reduced[part], cuts[start], place))
                stop = start
        return scenes

    def _segment(self, scene: Scene) -> Sequence[Array | None]:
        """Return masks of the frames that are due, computed at once; None for the others."""
        frames, reduced, refreshed = scene.frames, scene.reduced, scene.since_refresh == 0
        if scene.begins or refreshed:
            self.schedule.reset()
        with self._segmenting:
            if scene.begins:
                self.segmenter.reset()
            if refreshed:
                self.segmenter.refresh()
            if self.detector is not None:
                scene.boxes = self.detector.find(frames, reduced)
            due = self.schedule.due(reduced, self.scenes)
            if len(due) == len(frames):
                return self.segmenter.masks(frames, reduced)
            masks: list[Array | None] = [None] * len(frames)
            if due:
                made = self.segmenter.masks([frames[i] for i in due], [reduced[i] for i in due])
                for index, mask in zip(due, made, strict=True):
                    masks[index] = mask
        return masks

    def _process(self, scene: Scene) -> list[Frame]:
        """Run the other stages on frames of one scene; with face detection it stays open.

        Returns the frames that are finished now.
        """
        finished = self._renew(scene)
        frames, reduced, faces = scene.frames, scene.reduced, self.faces
        if faces is not None:
            found = self.execution.submit(partial(self._for_faces, faces.find, frames, reduced))
        masks = scene.masks or self._segment(scene)
        with self._matting:
            scene.mattes = mattes = self.matte.refine(masks, frames, reduced)
            if self.merger is not None:
                self.merger.apply(frames, mattes)
        if faces is None:
            self._open = scene
            return finished + self._composite()

        def inspect() -> list[FoundFaces]:
            faces_of = found()  # before the next lines, in this thread
            faces.inspect(frames, reduced, mattes, faces_of)
            return faces_of

        scene.faces = self.execution.submit(partial(self._for_faces, inspect))
        finished += self._composite()
        self._open = scene
        return finished

    def _renew(self, scene: Scene) -> list[Frame]:
        """Forget state that is renewed before these frames.

        Returns the frames before them, which must be finished by then.
        """
        finished: list[Frame] = []
        if scene.begins or _is_renewed(scene.since_refresh):
            finished = self._composite()
        if scene.begins:
            self._forget()
            if self.faces is not None:
                self.faces.cut()
            self.on_cut(scene.frames[0])
        if scene.since_refresh == 0:
            for step in (self.faces, self.detector):
                if step is not None:
                    step.refresh()
        elif scene.since_refresh == BACKGROUND_REFRESH_OFFSET:
            self.compositor.refresh()
        return finished

    def _composite(self) -> list[Frame]:
        """Composite the open frames, and return those that are finished now."""
        scene, self._open = self._open, None
        if scene is None:
            return []
        frames, mattes, faces = scene.frames, scene.mattes, self.faces
        if faces is not None:
            faces_of = scene.faces()
            with self._facing:
                faces.edit_mattes(frames, mattes, faces_of)
        with self._compositing:
            if self.regions is not None:
                self.regions.edit_mattes(frames, mattes, scene.reduced)
            pre_roll = 0
            if self.trim_start is not None:
                pre_roll = sum(frame.pts < self.trim_start for frame in frames)
            if self.areas is not None:
                for matte in mattes[pre_roll:]:
                    self.areas.add(matte)
            if pre_roll < len(frames):
                self.compositor.apply(
                    frames[pre_roll:], mattes[pre_roll:], scene.reduced[pre_roll:]
                )
                if self.regions is not None:
                    self.regions.hide(frames[pre_roll:])
            if self.detector is not None:
                self.detector.hide(frames, scene.boxes)
        if faces is None:
            return list(frames)
        with self._facing:
            return faces.finish(frames, faces_of)

    def _for_faces(self, work: Callable[..., R], *args: Any) -> R:
        """Run work on faces in the execution's thread for it."""
        with self.metrics.submitted["face"]:
            return work(*args)

    def _forget(self, *, goes_on: bool = False) -> None:
        """Forget earlier frames after segmentation, except in faces and backgrounds."""
        self.matte.reset()
        if self.regions is not None and not goes_on:
            self.regions.reset()
        if self.detector is not None:
            self.detector.reset()

    def restart(self, *, goes_on: bool = False) -> None:
        """Forget all frames, including failed ones. Others follow, with timestamps of their own.

        Args:
            goes_on: They belong to the same video: whoever is hidden stays so.
        """
        with self.execution.working(()):
            self._open = None
            self.schedule.reset()
            self.segmenter.reset()
            self._forget(goes_on=goes_on)
            if self.faces is not None:
                (self.faces.refresh if goes_on else self.faces.reset)()
            self.compositor.refresh()

    def close(self) -> None:
        """Free the stages; safe to call twice."""
        with self.execution.working(()):
            self.execution.wait()
            if self.faces is not None:
                # After detection that is still in progress when something has failed.
                self.execution.submit(self.faces.close)()
        self.segmenter.close()
        if self.detector is not None:
            self.detector.close()
        if self.merger is not None:
            self.merger.close()
        self.compositor.close()
        self.execution.close()


@dataclass(slots=True, eq=False)
class Scene:
    """Up to a batch of frames of one scene."""

    frames: Sequence[Frame]
    reduced: Sequence[AnalysisFrame]
    begins: bool
    """Whether the scene begins with these frames."""
    since_refresh: int
    """Number of frames from the last refresh to the first of these."""
    masks: Sequence[Array | None] = ()
    """Empty: not segmented yet."""
    mattes: Sequence[Matte] = ()
    boxes: Sequence[Sequence[FoundBox]] = ()
    """Boxes that the detector finds, by frame."""
    faces: Callable[[], list[FoundFaces]] = list
    """Waits for the detection of faces in the mattes."""


def _is_renewed(since_refresh: int) -> bool:
    """Return whether state is renewed this number of frames after a refresh."""
    return since_refresh in (0, BACKGROUND_REFRESH_OFFSET)
