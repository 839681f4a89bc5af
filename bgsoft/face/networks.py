"""The two face networks as the finder uses them, on the host or on a CUDA device.

Their inputs are made where the frames are; what they make of them is read on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.ops.sides import HOST, Side
from bgsoft.startup import StartupPool

MakeNetwork = Callable[[ResolvedModel, int], Network]
"""Loads a model for a batch size, with its arrays on the side, on the current stream; it may replay
a CUDA graph, which is captured by its first run."""

A = TypeVar("A", list[Detection], Mesh)


def resolve_detector() -> ResolvedModel:
    """BlazeFace; raises ModelError where its file is damaged."""
    return resolve("blazeface-short", ("face-detector",))


def resolve_landmarker() -> ResolvedModel:
    """Face Mesh; raises :class:`ModelError` where its file is damaged."""
    return resolve("face-mesh", ("face-landmarks",))


def _on_cpu(model: ResolvedModel, batch: int) -> Network:
    return CpuNetwork(model.path, {model.spec.input: model.spec.input_shape(batch)}, threads=1)


class FaceNetworks(Closing):
    """Both networks on one side; answers are on the host, in frame pixels.

    On a device everything runs on the current stream, which the host waits for after each run. The
    landmark model is loaded there at once, beside others that take as long, so that its runs can be
    captured; on the host when it is first used, as many videos never ask for it. All but ``close``
    raise :class:`InferenceError` where a model fails.

    Args:
        format: Format of the frames.
        make_network: Loads a network.
        batch: Looks of a run.
        side: Where the frames are.

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
    ) -> None:
        detector, landmarker = resolve_detector(), resolve_landmarker()
        self.looks_per_run = batch
        """Looks that a network takes in the time of one."""
        self._side = side
        device = side.xp.cuda.Device() if side.on_device else None
        stream = side.xp.cuda.get_current_stream() if side.on_device else nullcontext()

        def load(model: ResolvedModel) -> _Model:
            if device is not None:
                device.use()
            with stream:
                return _Model(model, make_network(model, batch), format, batch, side)

        self._load_landmarker = partial(load, landmarker)
        self._landmarker: _Model | None = None
        with StartupPool() as pool:
            loading = pool.submit("face detector", partial(load, detector))
            if side.on_device:
                self._landmarker = pool.submit("face landmarks", self._load_landmarker).result()
            self._detector = loading.result()
        self._found = DetectionReader(self._detector.size, batch)

    def start(self) -> None:
        """Run what is loaded on a device once, in the thread that will use it."""
        if self._landmarker is not None:
            self._detector.network.run()
            self._landmarker.network.run()

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
        """The faces that the detector is that sure of, for each view, best first."""

        return self._detector.answers(asked, partial(self._found.read, min_score=min_score))

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        """The landmarks of each square."""
        if not asked:
            return []
        landmarker = self._landmarker = self._landmarker or self._load_landmarker()

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
            self._landmarker.close()


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
