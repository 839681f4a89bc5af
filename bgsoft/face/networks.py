"""The face networks as the finder uses them, on the host or on a CUDA device.

Their inputs are made where the frames are; what they make of them is read on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.cuda.readback import Readback
from bgsoft.errors import InferenceError
from bgsoft.face.detect import (
    PREDICTION_VALUES,
    Canvas,
    Canvases,
    Detection,
    DetectionReader,
    grid_cells,
    merge,
)
from bgsoft.face.geometry import Affine, Box, Roi, frame_from_roi, middle
from bgsoft.face.warp import EDGE, MIRRORED, FrameView, Warper
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Network, Shapes, Wiring
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.ops.placement import HOST, Placement
from bgsoft.startup import StartupPool

MakeNetwork = Callable[[ResolvedModel, int], Network]
"""Loads a model for a batch size, with its arrays on the side, on the current stream; it may replay
a CUDA graph, which is captured by its first run."""
FramePair = tuple[Frame, AnalysisFrame]
"""A frame, and the same on the analysis frame."""

Landmarks = NDArray[np.float64]
"""(3, 468): rows of x, y and z, frame pixels; z in the same scale, smaller is nearer."""

A = TypeVar("A")

CHECKER, LANDMARKER = ("mmod", ("face-check",)), ("face-mesh", ("face-landmarks",))
"""Names and families of dlib's detector, for one face, and of Face Mesh."""
CLOSE_PX = 128
"""Side of the detector's input for one face and its surroundings, turned upright,"""
CLOSE_SCALE = 1.7
"""Side of that view in face sizes. Of 99 faces that the other views are not sure of, 60 have a
higher score there than all but 3 of 1,532 other things, as with 1.4; with 2.0 it is 54."""
SMOOTHED_SCALE = 3.0
"""The same for the smoothed view. With 2.4, 32 of 864 faces in dark noise are open, not 1."""
CHECK_SCALES = 1.3, 0.87
"""Sides of the views for :meth:`FaceNetworks.check`, in face sizes; the best score counts. Of 214
large faces in doubt, 168 have more than 0, and 141 with the first alone. Of 66 other things none
has."""

_CANVAS_VIEWS = 2
"""Most views of whole frames in a run on a device: about two of eight frames are wanted. With 8, an
H200 took 4.7 ms a frame where faces are hidden."""
_GLANCE_PX, _GLANCE_SCORE = 320, 0.65
"""Input pixels of the frame's long side at a glance, and the score of a face there: hands have up
to 0.64."""


def resolve_detector(canvas: Canvas | None = None, *, smoothed: bool = False) -> ResolvedModel:
    """YuNet, for a canvas or for one face; raises ModelError where its file is damaged."""
    model = resolve("yunet-smoothed" if smoothed else "yunet", ("face-detector",))
    width, height = (CLOSE_PX, CLOSE_PX) if canvas is None else (canvas.width, canvas.height)
    return model._replace(spec=replace(model.spec, width=width, height=height))


def wiring_of(model: ResolvedModel, batch: int) -> Wiring:
    """Inputs and outputs of a face network, in batches of a size."""
    spec = model.spec
    free: Shapes = {}
    if spec.family == "face-detector":
        free = {"faces": (len(grid_cells(spec.height, spec.width)), PREDICTION_VALUES)}
    return Wiring(inputs={spec.input: spec.input_shape(batch)}, free_outputs=free)


def _on_cpu(model: ResolvedModel, batch: int) -> Network:
    return CpuNetwork(model.path, wiring_of(model, batch).inputs, threads=1)


class FaceNetworks(Closing):
    """The networks on the host or a device; answers are on the host, in frame pixels.

    On a device, all are loaded at once, so that runs can be captured, and run on the current
    stream, which the host waits for. On the host, all but the upright frames' are loaded when they
    are first used. All but ``close`` raise :class:`InferenceError` where a model fails.

    Args:
        format: Format of the frames.
        canvases: Inputs of the detector, made of whole frames.
        make_network: Loads a network.
        batch: Frames at a time; 1: a run takes one view.
        placement: Host or device of the frames.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A network does not load on the device.
    """

    def __init__(
        self,
        format: FrameFormat,
        canvases: Canvases,
        make_network: MakeNetwork = _on_cpu,
        batch: int = 1,
        placement: Placement = HOST,
    ) -> None:
        self.views_per_run = min(batch, _CANVAS_VIEWS)
        """Views of whole frames that a network takes in the time of one."""
        self._placement = placement
        device = placement.xp.cuda.Device() if placement.on_device else None
        stream = placement.xp.cuda.get_current_stream() if placement.on_device else nullcontext()

        def load(model: ResolvedModel, views: int) -> _Model:
            if device is not None:
                device.use()
            with stream:
                return _Model(model, make_network(model, views), format, views, placement)

        self._load: dict[Canvas | str, Callable[[], _Model]] = {
            "close": partial(load, resolve_detector(), batch),
            "smoothed": partial(load, resolve_detector(smoothed=True), batch),
            "check": partial(load, resolve(*CHECKER), batch),
            "landmarks": partial(load, resolve(*LANDMARKER), batch),
        }
        for canvas in filter(None, canvases):
            views = 1 if canvas is canvases.fine else self.views_per_run
            self._load[canvas] = partial(load, resolve_detector(canvas), views)
        wanted: list[Canvas | str] = [canvases.whole]
        if placement.on_device:
            wanted = [*self._load]
            if canvases.half is None:
                unused = "close", "smoothed", "check"
                wanted = [name for name in wanted if name not in unused]
        with StartupPool() as pool:
            loading = {name: pool.submit("face networks", self._load[name]) for name in wanted}
            self._loaded = {name: each.result() for name, each in loading.items()}

    def start(self) -> None:
        """Run what is loaded on a device once, in the thread that will use it."""
        for model in self._loaded.values():
            model.start()

    def detect(
        self, canvas: Canvas, asked: Sequence[FrameView], min_score: float
    ) -> list[list[Detection]]:
        """The faces of each view of a canvas with at least that score, best first."""
        return self._when_used(canvas).detections(asked, min_score)

    def detect_close(
        self,
        asked: Sequence[tuple[FramePair, Detection]],
        min_score: float,
        *,
        smoothed: bool = False,
    ) -> list[list[Detection]]:
        """Return what the detector sees around each face, enlarged and turned upright.

        The smoothed view is wider, blurred, and has a standard contrast: faces in noise and in the
        dark have higher scores there.
        """
        if not asked:
            return []
        name, scale = ("smoothed", SMOOTHED_SCALE) if smoothed else ("close", CLOSE_SCALE)
        views = [_close_view(*each, scale, CLOSE_PX) for each in asked]
        return self._when_used(name).detections(views, min_score)

    def check(self, asked: Sequence[tuple[FramePair, Detection]]) -> list[float]:
        """Return the score of each face, turned upright, by another detector (dlib's).

        Clear faces have about 1, other things -1.3 on average and hardly ever more than 0.
        """
        if not asked:
            return []
        checker = self._when_used("check")
        size = checker.size
        views = [_close_view(*each, scale, size) for scale in CHECK_SCALES for each in asked]
        scores = checker.answers(views, lambda shown, score: score.ravel()[: len(shown)].tolist())
        return [max(scores[at :: len(asked)]) for at in range(len(asked))]

    def landmarks(self, asked: Sequence[tuple[FramePair, Roi]]) -> list[Landmarks | None]:
        """The landmarks of each square; None: no face is probable there."""
        if not asked:
            return []
        landmarker = self._when_used("landmarks")

        def read(
            views: Sequence[Affine], landmarks: Array, presence: Array
        ) -> list[Landmarks | None]:
            found = zip(views, landmarks, presence.ravel().tolist(), strict=False)
            return [view.applied(points) if logit >= 0 else None for view, points, logit in found]

        views = [(*pair, frame_from_roi(roi, landmarker.size)) for pair, roi in asked]
        return landmarker.answers(views, read)

    def _when_used(self, name: Canvas | str) -> _Model:
        if name not in self._loaded:
            self._loaded[name] = self._load[name]()
        return self._loaded[name]

    def close(self) -> None:
        for model in self._loaded.values():
            model.close()


def _close_view(pair: FramePair, face: Detection, scale: float, size: int) -> FrameView:
    """Return a square view around a face, turned as it is, ``scale`` times its longer side."""
    box = face.box
    side = scale * max(box[2] - box[0], box[3] - box[1])
    return (*pair, frame_from_roi(Roi(*middle(box), side, face.angle), size))


class FaceGlance:
    """Finds the faces of single frames, upright and not too small.

    They are enough to see where people are (:class:`bgsoft.segment.base.FaceBoxes`).

    Args:
        format: Format of the frames.
        make_network, batch, placement: See :class:`FaceNetworks`.

    Raises:
        ModelError: The model's file is damaged.
        BackendUnavailableError: The network does not load on the device.
    """

    def __init__(
        self,
        format: FrameFormat,
        make_network: MakeNetwork = _on_cpu,
        batch: int = 1,
        placement: Placement = HOST,
    ) -> None:
        scale = min(1.0, _GLANCE_PX / max(format.width, format.height))
        self._canvas = Canvas.of(format, scale)
        model = resolve_detector(self._canvas)
        self._model = _Model(model, make_network(model, batch), format, batch, placement)
        self.start, self.close = self._model.start, self._model.close

    def find(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[list[Box]]:
        """The faces of any frames, best first.

        Raises:
            InferenceError: The model failed; carries a frame's pts.
        """
        view = self._canvas.view()
        asked = [(frame, grid, view) for frame, grid in zip(frames, reduced, strict=True)]
        try:
            found = self._model.detections(asked, _GLANCE_SCORE)
        except InferenceError as exc:
            exc.pts = frames[0].pts
            raise
        return [[each.box for each in merge(map(self._in_frame, faces))] for faces in found]

    def _in_frame(self, found: Detection) -> Detection:
        """A face; one in the mirrored border where it is in the frame."""
        left, top, right, bottom = found.box
        width, height = self._canvas.frame_width, self._canvas.frame_height
        (left, right), (top, bottom) = _folded(left, right, width), _folded(top, bottom, height)
        return found._replace(box=(left, top, right, bottom))


def _folded(start: float, stop: float, size: int) -> tuple[float, float]:
    """A span, mirrored at the end of 0 to ``size`` that its middle lies beyond."""
    if start + stop < 0:
        return -stop, -start
    return (2 * size - stop, 2 * size - start) if start + stop > 2 * size else (start, stop)


class _Model:
    """One network, what fills its input, and what the host has of its output."""

    def __init__(
        self,
        model: ResolvedModel,
        network: Network,
        format: FrameFormat,
        batch: int,
        placement: Placement,
    ) -> None:
        spec = model.spec
        self.size = spec.width
        self._network, self.close = network, network.close
        self._batch, self._placement = batch, placement
        self._input = network.inputs[spec.input]
        border = EDGE if spec.family == "face-landmarks" else MIRRORED
        self._warper = Warper(spec, format, batch, placement, border)
        outputs = network.outputs if placement.on_device else {}
        self._host = {
            name: Readback(placement, each.shape, each.dtype) for name, each in outputs.items()
        }
        self._reader = DetectionReader(spec.height, spec.width, batch)

    def start(self) -> None:
        """Run once on a device, in the thread that will use it."""
        if self._placement.on_device:
            self._network.run()

    def detections(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
        """The faces of some views, any number, of a detector."""
        return self.answers(asked, partial(self._reader.read, min_score=min_score))

    def answers(self, asked: Sequence[FrameView], read: Callable[..., list[A]]) -> list[A]:
        """Return the network's answers for some views, any number.

        ``read`` makes it of up to a batch of them and of the network's outputs by name, on the
        host, for at least as many.
        """
        answers: list[A] = []
        for first in range(0, len(asked), self._batch):
            part = asked[first : first + self._batch]
            self._warper.write(part, self._input)
            self._network.run()
            outputs = self._network.outputs
            if self._placement.on_device:
                for name, host in self._host.items():
                    self._placement.copy(outputs[name], host.array)
                outputs = {name: host.read(len(part)) for name, host in self._host.items()}
            _, _, views = zip(*part, strict=True)
            answers += read(views, **outputs)
        return answers
