"""The two face networks as the finder uses them, on the host or on a CUDA device.

Their inputs are made where the frames are; what they make of them is read on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from functools import partial
from typing import TypeVar

from bgsoft.closing import Closing
from bgsoft.cuda.readback import Readback
from bgsoft.face.detect import Detection, DetectionReader, probability
from bgsoft.face.geometry import Affine, frame_from_roi
from bgsoft.face.landmarks import Mesh, make_mesh
from bgsoft.face.warp import FrameRoi, FrameView, Warper
from bgsoft.frame import Array, FrameFormat
from bgsoft.infer.base import Network
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.infer.warm import daemon_thread
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.ops.sides import HOST, Side
from bgsoft.startup import StartupPool
from bgsoft.workers import Job

MakeNetwork = Callable[[ResolvedModel, int, bool], Network]
"""Loads a model for a batch size, with its arrays on the side, on the current stream; the last
argument says whether it may replay a CUDA graph, which is captured by its first run."""

A = TypeVar("A", list[Detection], Mesh)


def resolve_detector() -> ResolvedModel:
    """BlazeFace; raises ModelError where its file is damaged."""
    return resolve("blazeface-short", ("face-detector",))


def resolve_landmarker() -> ResolvedModel:
    """Face Mesh; raises :class:`ModelError` where its file is damaged."""
    return resolve("face-mesh", ("face-landmarks",))


def _on_cpu(model: ResolvedModel, batch: int, _graphs: bool) -> Network:
    return CpuNetwork(model.path, {model.spec.input: model.spec.input_shape(batch)}, threads=1)


class FaceNetworks(Closing):
    """Both networks on one side; answers are on the host, in frame pixels.

    On a device everything runs on the current stream, which the host waits for after each run. All
    but ``close`` raise :class:`InferenceError` where a model fails.

    Args:
        format: Format of the frames.
        make_network: Loads a network.
        batch: Looks of a run.
        side: Where the frames are.
        needs_landmarks: Load the landmark model with the other. Else, as many videos never ask for
            it, on the host when it is first used, and on a device once all has begun to run; it
            cannot be captured then.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A network does not load on the device.
    """

    def __init__(
        self,
        format: FrameFormat,
        make_network: MakeNetwork = _on_cpu,
        batch: int = 1,
        side: Side = HOST,
        *,
        needs_landmarks: bool = False,
    ) -> None:
        detector, landmarker = resolve_detector(), resolve_landmarker()
        self.looks_per_run = batch
        """Looks that a network takes in the time of one."""
        self._side = side
        device = side.xp.cuda.Device() if side.on_device else None
        stream = side.xp.cuda.get_current_stream() if side.on_device else nullcontext()

        def load(model: ResolvedModel, graphs: bool) -> _Model:
            if device is not None:
                device.use()
            with stream:
                made = _Model(model, make_network(model, batch, graphs), format, batch, side)
                if side.on_device and not graphs:  # half of what it takes is done by its first run
                    made.network.run()
            return made

        self._load_landmarker = partial(load, landmarker, False)
        self._landmarker: Future[_Model] | Job[_Model] | None = None
        with StartupPool() as pool:
            loading = pool.submit("face detector", partial(load, detector, True))
            if needs_landmarks:
                self._landmarker = pool.submit("face landmarks", partial(load, landmarker, True))
            self._detector = loading.result()
        self._found = DetectionReader(self._detector.size, batch)

    def start(self) -> None:
        """Run what is loaded once, in the thread that will use it."""
        if not self._side.on_device:  # their first runs take hardly longer than others
            return
        self._detector.network.run()
        if self._landmarker is None:
            loading = self._landmarker = Job(self._load_landmarker)
            daemon_thread(loading.run, "bgsoft-start face landmarks").start()
        else:
            self._landmarker.result().network.run()

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
        """The faces that the detector is that sure of, for each view, best first."""

        return self._detector.answers(asked, partial(self._found.read, min_score=min_score))

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        """The landmarks of each square."""
        if not asked:
            return []
        if self._landmarker is None:
            loading = self._landmarker = Job(self._load_landmarker)
            loading.run()
        landmarker = self._landmarker.result()

        def read(views: Sequence[Affine], landmarks: Array, presence: Array) -> list[Mesh]:
            logits = presence.ravel().tolist()
            return [
                make_mesh(view.applied(points), probability(logit))
                for view, points, logit in zip(views, landmarks, logits, strict=False)
            ]

        views = [(frame, grid, frame_from_roi(roi, landmarker.size)) for frame, grid, roi in asked]
        return landmarker.answers(views, read)

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._detector.close()
        if self._landmarker is not None:
            with suppress(Exception):  # it did not load
                self._landmarker.result().close()


class _Model:
    """One network, what fills its input, and what the host has of its output."""

    def __init__(
        self, model: ResolvedModel, network: Network, format: FrameFormat, batch: int, side: Side
    ) -> None:
        self.size = model.spec.width
        self.network = network
        self.close = network.close
        self._batch, self._side = batch, side
        self._input = network.inputs[model.spec.input]
        self._warper = Warper(model.spec, format, batch, side)
        outputs = network.outputs if side.on_device else {}
        self._said = {
            name: Readback(side, each.shape, each.dtype) for name, each in outputs.items()
        }

    def answers(self, asked: Sequence[FrameView], read: Callable[..., list[A]]) -> list[A]:
        """What the network says of some views, any number.

        ``read`` makes it of up to a batch of them and of the network's outputs by name, on the
        host, for at least as many.
        """
        answers: list[A] = []
        for first in range(0, len(asked), self._batch):
            part = asked[first : first + self._batch]
            self._warper.write(part, self._input)
            self.network.run()
            outputs = self.network.outputs
            if self._side.on_device:
                for name, said in self._said.items():
                    self._side.copy(outputs[name], said.array)
                outputs = {name: said.read(len(part)) for name, said in self._said.items()}
            _, _, views = zip(*part, strict=True)
            answers += read(views, **outputs)
        return answers
