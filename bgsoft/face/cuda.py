"""Finding the faces of batches of frames on a CUDA device.

The models' inputs are made on the device, and the detector's output is decoded there. Faces and
landmarks, some kilobytes each, come back to the host, where tracks are kept: twice a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import cupy

from bgsoft.closing import Closing
from bgsoft.face.cuda_detect import CudaDetections
from bgsoft.face.cuda_mesh import CudaMeshes
from bgsoft.face.cuda_warp import CudaWarper
from bgsoft.face.detect import Detections
from bgsoft.face.geometry import frame_from_roi
from bgsoft.face.landmarks import Meshes
from bgsoft.face.networks import AskedFace, AskedView, resolve_detector, resolve_landmarker
from bgsoft.face.search import FinderSettings
from bgsoft.face.together import Together
from bgsoft.face.warp import View
from bgsoft.frame import Array, FrameFormat
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ResolvedModel
from bgsoft.startup import Parts

__all__ = ["CudaFaceFinder", "CudaFaceNetworks", "MakeNetwork"]

MakeNetwork = Callable[[ResolvedModel, int], Network]
"""Loads a model for a batch size, with its arrays on the device, on the pipeline's stream."""

_VIEWS_PER_FRAME = 2
"""Of the detector, in one run: with one face, the one near it and a share of those of searches. On
an H100 a run of 16 takes 0.64 ms where one of 8 takes 0.51."""
_RUNS_PER_WAIT = 4
"""Runs of a network whose results are waited for together, at most."""


class CudaFaceNetworks(Closing):
    """Implements :class:`bgsoft.face.networks.FaceNetworks` for frames on the current device.

    Everything runs on the current stream, which the host waits for at the end of each call.

    Args:
        format: Format of the frames.
        make_network: Loads a model for a batch size.
        batch: Faces per run of the landmark model.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A network does not load on the device.
    """

    def __init__(self, format: FrameFormat, make_network: MakeNetwork, batch: int) -> None:
        detector, landmarker = resolve_detector(), resolve_landmarker()
        device, stream = cupy.cuda.Device(), cupy.cuda.get_current_stream()
        views = _VIEWS_PER_FRAME * batch

        def load_detector() -> Network:
            device.use()
            with stream:
                return make_network(detector, views)

        with Parts() as parts:
            loading = parts.begin("face detector", load_detector)
            network = make_network(landmarker, batch)
            self._detector = _Model(detector, loading.result(), format, views)
            self._landmarker = _Model(landmarker, network, format, batch)
        self._found = CudaDetections(detector.spec.width, self._detector.most)
        self._meshes = CudaMeshes(self._landmarker.most)

    def start(self) -> None:
        """Run both networks once, in the thread that will use them.

        Raises:
            InferenceError: One of them failed.
        """
        self._detector.network.run()
        self._landmarker.network.run()

    def detect(self, asked: Sequence[AskedView], min_score: float) -> list[Detections]:
        """See :class:`bgsoft.face.networks.FaceNetworks`."""
        answers: list[Detections] = []
        for start in range(0, len(asked), self._detector.most):
            part = asked[start : start + self._detector.most]
            for views, outputs, first, count in self._detector.run(part):
                raw = outputs["boxes"], outputs["scores"]
                self._found.launch(views, *raw, first, count, min_score)
            self._found.fetch(len(part))
            cupy.cuda.get_current_stream().synchronize()
            answers += self._found.read(len(part))
        return answers

    def landmarks(self, asked: Sequence[AskedFace]) -> Meshes:
        """See :class:`bgsoft.face.networks.FaceNetworks`."""
        size, most = self._landmarker.size, self._landmarker.most
        answers = []
        for start in range(0, len(asked), most):
            part = [
                (frame, grid, View(frame_from_roi(roi, size), True))
                for frame, grid, roi in asked[start : start + most]
            ]
            for views, outputs, first, count in self._landmarker.run(part):
                raw = outputs["landmarks"], outputs["presence"]
                self._meshes.launch(views, *raw, first, count)
            self._meshes.fetch(len(part))
            cupy.cuda.get_current_stream().synchronize()
            answers.append(self._meshes.read(len(part)))
        return answers[0] if len(answers) == 1 else Meshes.joined(answers)

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._detector.network.close()
        self._landmarker.network.close()


class _Model:
    """One network and what fills its input."""

    def __init__(
        self, model: ResolvedModel, network: Network, format: FrameFormat, batch: int
    ) -> None:
        self.size = model.spec.width
        self.most = _RUNS_PER_WAIT * batch
        """Views of one :meth:`run`, at most."""
        self._batch = batch
        self._input = model.spec.input
        self.network = network
        self._warper = CudaWarper(model.spec, format, batch, self.most)

    def run(self, asked: Sequence[AskedView]) -> Iterator[tuple[Array, dict[str, Array], int, int]]:
        """Run as often as it takes to show all views; what is launched between runs stays in order.

        Args:
            asked: Up to :attr:`most` views.

        Yields:
            After each run: its views and outputs on the device, the outputs overwritten by the
            next one; the index of its first view, and how many there are.
        """
        self._warper.upload(asked)
        for first in range(0, len(asked), self._batch):
            count = self._warper.write(first, self.network.inputs[self._input])
            self.network.run()
            yield self._warper.views(first), self.network.outputs, first, count


class CudaFaceFinder(Together):
    """Finds faces in frames on the device.

    Args:
        format: Format of the frames.
        make_network: Loads a model for a batch size.
        batch: Frames that are found together, as a rule.
        settings: How to look; the defaults where left out.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A network does not load on the device.
    """

    def __init__(
        self,
        format: FrameFormat,
        make_network: MakeNetwork,
        batch: int = 8,
        settings: FinderSettings | None = None,
    ) -> None:
        networks = CudaFaceNetworks(format, make_network, batch)
        super().__init__(format, networks, settings or FinderSettings())
