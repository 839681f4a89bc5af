"""The picture stages of one frame: reduce, segment, refine the matte, composite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from bgsoft.analysis.base import Reducer
from bgsoft.composite.base import Compositor
from bgsoft.face.step import FaceStep, FoundFaces
from bgsoft.frame import Frame, Matte, Reduced
from bgsoft.matte.base import Matter
from bgsoft.pipeline.metrics import Metrics
from bgsoft.segment.base import Segmenter

__all__ = ["MaskSchedule", "PictureStages", "SceneProbe"]


class SceneProbe(Protocol):
    """Compares frames with earlier ones, on the device they live on."""

    def is_cut(self, reduced: Reduced) -> bool:
        """Whether this frame begins a new scene. Called once for every frame, in order."""
        ...

    def is_similar(self, reduced: Reduced, min_db: float) -> bool:
        """Whether the frame is within ``min_db`` PSNR of the one last kept by :meth:`keep`."""
        ...

    def keep(self, reduced: Reduced) -> None:
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

    def is_due(self, reduced: Reduced, scenes: SceneProbe) -> bool:
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
        """Make the next frame due (scene cut)."""
        self._since = None


class PictureStages:
    """Runs the picture stages of one render on one frame after another, in presentation order.

    All state between frames is in the stages that are passed in; a scene cut resets it.
    """

    batch = 1
    """Frames at a time, for :class:`bgsoft.pipeline.runner.Pipeline`."""

    def __init__(
        self,
        *,
        reducer: Reducer,
        scenes: SceneProbe,
        schedule: MaskSchedule,
        segmenter: Segmenter,
        matter: Matter,
        compositor: Compositor,
        metrics: Metrics,
        on_cut: Callable[[Frame], None],
        faces: FaceStep | None = None,
    ) -> None:
        self._faces = faces
        self.held = 0 if faces is None else faces.held
        """Frames kept back at most, for the same."""
        self._reducer = reducer
        self._scenes = scenes
        self._schedule = schedule
        self._segmenter = segmenter
        self._matter = matter
        self._compositor = compositor
        self._on_cut = on_cut
        self._segment_clock = metrics.stage("segment")
        self._matte_clock = metrics.stage("matte")
        self._composite_clock = metrics.stage("composite")
        if faces is not None:
            self._face_clock = metrics.stage("face")
            # Faces need nothing of the mask: where a core is free, they cost no time.
            self._finding = ThreadPoolExecutor(1, thread_name_prefix="bgsoft-face")

    def start(self) -> None:
        """Run the model once; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        self._segmenter.start()

    def process(self, frame: Frame) -> Matte:
        """Finish one frame in place, whatever may follow, and write its matte into its alpha plane.

        For single frames: faces are hidden by what is known of this frame and those before it.

        Raises:
            InferenceError: The model failed on this frame.
        """
        matte, found = self._composite(frame)
        self._finish(frame, found)
        self.flush()
        return matte

    def process_batch(self, frames: Sequence[Frame]) -> list[Frame]:
        """Composite some frames; see :class:`bgsoft.pipeline.runner.FrameStage`.

        Raises:
            InferenceError: The model failed on a frame.
        """
        finished = []
        for frame in frames:
            _, found = self._composite(frame)
            finished += self._finish(frame, found)
        return finished

    def flush(self) -> list[Frame]:
        """Finish what is kept back; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        if self._faces is None or not self._faces.edits_frame:
            return []
        with self._face_clock.measure():
            return self._faces.flush()

    def _composite(self, frame: Frame) -> tuple[Matte, FoundFaces | None]:
        """Everything but hiding faces."""
        with self._segment_clock.measure():
            reduced = self._reducer.reduce(frame)
            cut = self._scenes.is_cut(reduced)
            if cut:
                self._schedule.reset()
                self._segmenter.reset()
                self._matter.reset()
                self._on_cut(frame)
            if self._faces is not None:
                finding = self._finding.submit(self._find, self._faces, frame, reduced, cut)
            due = self._schedule.is_due(reduced, self._scenes)
            mask = self._segmenter.mask(frame, reduced) if due else None
        with self._matte_clock.measure():
            matte = self._matter.refine(mask, frame, reduced)
        found = None
        if self._faces is not None:
            found = finding.result()
            if self._faces.edits_matte:
                with self._face_clock.measure():
                    self._faces.edit_matte(frame, matte, found)
        with self._composite_clock.measure():
            self._compositor.apply(frame, matte, reduced)
        return matte, found

    def _find(self, faces: FaceStep, frame: Frame, reduced: Reduced, cut: bool) -> FoundFaces:
        with self._face_clock.measure():
            return faces.find(frame, reduced, cut)

    def _finish(self, frame: Frame, found: FoundFaces | None) -> list[Frame]:
        """Hide faces; returns the frames in which that is done."""
        if self._faces is None or found is None or not self._faces.edits_frame:
            return [frame]
        with self._face_clock.measure():
            return self._faces.finish(frame, found)

    def close(self) -> None:
        """Free the stages; safe to call twice."""
        if self._faces is not None:
            self._finding.shutdown()
        self._segmenter.close()
        self._compositor.close()
        if self._faces is not None:
            self._faces.close()
