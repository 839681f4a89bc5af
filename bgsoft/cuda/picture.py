"""The picture stages on a CUDA device: a batch is segmented at once, then composited in order.

All work of a batch goes onto one stream. The host waits for a thumbnail of each frame, to see
scene cuts before anything that depends on them is launched, and where faces are looked for, for
what was found of a whole batch. Where people are parted it also reads the mattes; they are made
first and sent for together, and as a rule have come by the time the faces have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import cupy

from bgsoft.analysis.cuda import CudaReducer, CudaSceneProbe
from bgsoft.composite.base import Compositor
from bgsoft.cuda.device import CudaDevice
from bgsoft.face.step import FaceStep, FoundFaces
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.matte.base import Matter
from bgsoft.pipeline.metrics import Metrics, Observer, StageClock
from bgsoft.segment.batched import BatchedSegmenter

__all__ = ["CudaPictureStages", "DeviceTimer"]

_READY_EVENTS = 256
"""Taken in turns, one a batch: more than there can be batches in any ring."""


class DeviceTimer:
    """Time that the device spends on each stage, by events between their launches.

    Results are read once the device is through with a batch, so nothing waits for them.

    Args:
        observer: Also told of each stage's time on the device; that costs one wait, at the start.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
        self._origin: Any = None
        self._origin_ns = 0
        self._free: list[Any] = []
        self._marks: list[tuple[StageClock | None, Any]] = []
        self._pending: list[list[tuple[StageClock | None, Any]]] = []

    def mark(self, clock: StageClock | None) -> None:
        """What was launched since the last mark belongs to ``clock``; None: to nobody."""
        if self._observer is not None and self._origin is None:
            self._set_origin()
        event = self._free.pop() if self._free else cupy.cuda.Event()
        event.record()
        self._marks.append((clock, event))

    def _set_origin(self) -> None:
        """Find a moment that is known on both clocks, the device's and the host's."""
        self._origin = cupy.cuda.Event()
        self._origin.record()
        self._origin.synchronize()
        self._origin_ns = time.perf_counter_ns()

    def end(self) -> None:
        """The batch has been launched; read earlier ones that are done."""
        self._pending.append(self._marks)
        self._marks = []
        while self._pending and self._pending[0][-1][1].done:
            self._read(self._pending.pop(0))

    def flush(self) -> None:
        """Read everything; waits for the device."""
        while self._pending:
            marks = self._pending.pop(0)
            marks[-1][1].synchronize()
            self._read(marks)

    def _read(self, marks: list[tuple[StageClock | None, Any]]) -> None:
        for (_, start), (clock, stop) in pairwise(marks):
            if clock is not None:
                elapsed_ns = int(cupy.cuda.get_elapsed_time(start, stop) * 1e6)
                clock.busy_ns += elapsed_ns
                if self._observer is not None:
                    at = self._host_ns(start)
                    self._observer.device_span(
                        "picture stream", clock.name, at, at + elapsed_ns, clock.calls
                    )
                clock.calls += 1
        self._free.extend(event for _, event in marks)
        if self._origin is not None:
            # CUDA counts in 32-bit floats: only short distances are exact.
            last = self._free.pop()
            self._origin_ns = self._host_ns(last)
            self._free.append(self._origin)
            self._origin = last

    def _host_ns(self, event: Any) -> int:
        """When an event happened, on the host's clock."""
        return self._origin_ns + int(cupy.cuda.get_elapsed_time(self._origin, event) * 1e6)


class CudaPictureStages:
    """The twin of :class:`bgsoft.pipeline.picture.PictureStages` for frames on a device.

    Args:
        format: Format of the frames.
        device: Where they are.
        stream: The stream of all work, also the network's.
        segmenter: Makes the masks.
        matter: Makes the mattes.
        compositor: Replaces the background.
        mask_every: Segment every Nth frame of a scene.
        similarity_db: Also keep the mask while the picture stays this similar; None: don't look.
        metrics: Where the clocks are.
        on_cut: Told of each frame that begins a new scene.
        faces: What is done for faces; None: nothing.
    """

    def __init__(
        self,
        *,
        format: FrameFormat,
        device: CudaDevice,
        stream: Any,
        segmenter: BatchedSegmenter,
        matter: Matter,
        compositor: Compositor,
        mask_every: int,
        similarity_db: float | None,
        metrics: Metrics,
        on_cut: Callable[[Frame], None],
        faces: FaceStep | None = None,
    ) -> None:
        self._faces = faces
        # A similar frame is one like the last that was segmented, so each has to be known before
        # the next is looked at.
        self.batch = segmenter.batch if similarity_db is None else 1
        self.held = 0 if faces is None else faces.held
        self._device = device
        self._stream = stream
        self._segmenter = segmenter
        self._matter = matter
        self._compositor = compositor
        self._every = mask_every
        self._similarity_db = similarity_db
        self._since: int | None = None
        self._on_cut = on_cut
        with device.use(stream):
            self._reducer = CudaReducer(format)
            self._grids = [self._reducer.allocate() for _ in range(self.batch)]
            self._scenes = CudaSceneProbe(format, self.batch)
            self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(_READY_EVENTS)]
        self._timer = DeviceTimer(metrics.observer)
        self._segment_clock = metrics.stage("segment")
        self._matte_clock = metrics.stage("matte")
        self._composite_clock = metrics.stage("composite")
        if faces is not None:
            self._face_clock = metrics.stage("face")
        self._next_event = 0

    def start(self) -> None:
        """Capture the network's CUDA graph; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        with self._device.use(self._stream):
            self._segmenter.start()
            if self._faces is not None:
                self._faces.start()
            self._stream.synchronize()

    def process_batch(self, frames: Sequence[Frame]) -> list[Frame]:
        """Composite up to :attr:`batch` frames; see :class:`bgsoft.pipeline.runner.FrameStage`.

        Everything is launched when this returns; the ``ready`` event of each finished frame tells
        when it is done.

        Raises:
            InferenceError: The model failed on the device and on the CPU.
        """
        with self._device.use(self._stream):
            self._timer.mark(None)
            grids = self._grids[: len(frames)]
            for index, (frame, grid) in enumerate(zip(frames, grids, strict=True)):
                if frame.ready is not None:
                    self._stream.wait_event(frame.ready)
                self._reducer.reduce(frame, grid)
                self._scenes.measure(grid, index)
            self._scenes.fetch()
            cuts = [self._scenes.cut_at(index) for index in range(len(frames))]
            due = [self._is_due(index, cut) for index, cut in enumerate(cuts)]
            masks = self._masks(frames, grids, due)
            self._timer.mark(self._segment_clock)
            mattes: Iterable[Matte] = self._mattes(frames, grids, masks, cuts)
            reads_mattes = self._faces is not None and self._faces.reads_mattes
            if reads_mattes:
                mattes = self._fetched(mattes)
            found: list[FoundFaces | None] = [None] * len(frames)
            if self._faces is not None:
                found = list(self._faces.find_batch(frames, grids, cuts))
                self._timer.mark(self._face_clock)
            finished: list[Frame] = []
            for index, (frame, grid, matte) in enumerate(zip(frames, grids, mattes, strict=True)):
                faces = found[index]
                if self._faces is not None and faces is not None and self._faces.edits_matte:
                    self._faces.edit_matte(frame, matte, faces, index if reads_mattes else None)
                    self._timer.mark(self._face_clock)
                self._compositor.apply(frame, matte, grid)
                self._timer.mark(self._composite_clock)
                if self._faces is not None and faces is not None and self._faces.edits_frame:
                    finished += self._faces.finish(frame, faces)
                    self._timer.mark(self._face_clock)
                else:
                    finished.append(frame)
            self._tell_ready(finished)
            self._timer.end()
        return finished

    def _masks(
        self, frames: Sequence[Frame], grids: Sequence[Reduced], due: Sequence[bool]
    ) -> list[Array | None]:
        """The masks of the frames that are due, made at once; None for the others."""
        wanted = [index for index, is_due in enumerate(due) if is_due]
        masks: list[Array | None] = [None] * len(frames)
        if wanted:
            made = self._segmenter.masks(
                [frames[index] for index in wanted], [grids[index] for index in wanted]
            )
            for at, index in enumerate(wanted):
                masks[index] = made[at]
        return masks

    def _mattes(
        self,
        frames: Sequence[Frame],
        grids: Sequence[Reduced],
        masks: Sequence[Array | None],
        cuts: Sequence[bool],
    ) -> Iterator[Matte]:
        """Make each matte when it is asked for; it is overwritten by the next one, but its alpha.

        So all that is done with a matte is launched before the next one is made.
        """
        for frame, grid, mask, cut in zip(frames, grids, masks, cuts, strict=True):
            if cut:
                self._matter.reset()
                self._on_cut(frame)
            matte = self._matter.refine(mask, frame, grid)
            self._timer.mark(self._matte_clock)
            yield matte

    def _fetched(self, mattes: Iterable[Matte]) -> list[Matte]:
        """Make all mattes and send for each, under its number; none is overwritten by the next."""
        made = []
        for index, matte in enumerate(mattes):
            if self._faces is not None:
                self._faces.fetch_matte(matte, index)
                self._timer.mark(self._face_clock)
            made.append(matte)
        return made

    def flush(self) -> list[Frame]:
        """Finish what is kept back; see :class:`bgsoft.pipeline.runner.FrameStage`."""
        if self._faces is None or not self._faces.edits_frame:
            return []
        with self._device.use(self._stream):
            self._timer.mark(None)
            finished = self._faces.flush()
            self._timer.mark(self._face_clock)
            self._tell_ready(finished)
            self._timer.end()
        return finished

    def _tell_ready(self, frames: Sequence[Frame]) -> None:
        """Give frames an event behind everything that has been launched, maybe by earlier calls."""
        if not frames:
            return
        ready = self._event()
        ready.record(self._stream)
        for frame in frames:
            frame.ready = ready

    def _is_due(self, index: int, cut: bool) -> bool:
        """Whether a frame is to be segmented; see :class:`bgsoft.pipeline.picture.MaskSchedule`."""
        if not cut and self._since is not None:
            self._since += 1
            if self._since < self._every:
                return False
            db = self._similarity_db
            if db is not None and self._scenes.similarity_db_at(index) > db:
                return False
        self._since = 0
        if self._similarity_db is not None:
            self._scenes.keep(self._grids[index])
        return True

    def _event(self) -> Any:
        self._next_event = (self._next_event + 1) % len(self._events)
        return self._events[self._next_event]

    def close(self) -> None:
        """Wait for the device and free the stages; safe to call twice."""
        with self._device.use(self._stream):
            self._stream.synchronize()
            self._timer.flush()
            if self._faces is not None:
                self._faces.close()
        self._segmenter.close()
        self._compositor.close()
