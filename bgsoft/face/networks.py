"""The two face networks as the finder uses them, and how they run on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.face.detect import Detections, anchor_centres, decode, weighted_nms
from bgsoft.face.geometry import Roi, frame_from_roi
from bgsoft.face.landmarks import LANDMARKS, Mesh, read_meshes
from bgsoft.face.warp import CpuWarper, View
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.catalog import ResolvedModel, resolve

FrameView = tuple[Frame, AnalysisFrame, View]
"""A frame, the same on the analysis frame, and what of it the detector is shown."""
FrameRoi = tuple[Frame, AnalysisFrame, Roi]
"""The same with the square that the landmark model is shown."""


class FaceNetworks(Protocol):
    """Both networks on one device; answers are on the host, in frame pixels.

    All but ``close`` raise :class:`InferenceError` where a model fails.
    """

    views_per_run: int
    """Views that the detector looks at in the time of one."""
    faces_per_run: int
    """Squares that the landmark model looks at in the time of one."""

    def start(self) -> None:
        """Run both once, in the thread that will use them."""
        ...

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[Detections]:
        """The faces that the detector is that sure of, for each view."""
        ...

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        """The landmarks of each square."""
        ...

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        ...


def resolve_detector() -> ResolvedModel:
    """BlazeFace; raises ModelError where its file is damaged."""
    return resolve("blazeface-short", ("face-detector",))


def resolve_landmarker() -> ResolvedModel:
    """Face Mesh; raises :class:`ModelError` where its file is damaged."""
    return resolve("face-mesh", ("face-landmarks",))


class _Model:
    """One network that is shown one view after the other: a run of several takes as long."""

    def __init__(self, model: ResolvedModel, format: FrameFormat) -> None:
        spec = model.spec
        self.size = spec.width
        self._network = CpuNetwork(model.path, {spec.input: spec.input_shape(1)}, threads=1)
        self._tensor = self._network.inputs[spec.input][0]
        self._warper = CpuWarper(spec, format)
        self.close = self._network.close

    def run(self, frame: Frame, grid: AnalysisFrame, view: View) -> dict[str, NDArray[np.floating]]:
        """The outputs, without the batch's axis; overwritten by the next call."""
        self._warper.write(frame, grid, view, self._tensor)
        self._network.run()
        return {name: output[0] for name, output in self._network.outputs.items()}


class CpuFaceNetworks(Closing):
    """Implements :class:`FaceNetworks` with ONNX Runtime on the CPU; the reference.

    The landmark model is loaded when it is first used.

    Raises:
        ModelError: A model's file is damaged.
    """

    views_per_run = faces_per_run = 1

    def __init__(self, format: FrameFormat) -> None:
        detector, landmarker = resolve_detector(), resolve_landmarker()
        self._make_landmarker = partial(_Model, landmarker, format)
        self._landmarker: _Model | None = None
        self._detector = _Model(detector, format)
        self._anchors = anchor_centres(self._detector.size)

    def start(self) -> None:
        """Their first runs take hardly longer than others."""

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[Detections]:
        """See :class:`FaceNetworks`."""
        return [self._detect(*each, min_score) for each in asked]

    def _detect(
        self, frame: Frame, grid: AnalysisFrame, view: View, min_score: float
    ) -> Detections:
        raw = self._detector.run(frame, grid, view)
        found = decode(raw["boxes"], raw["scores"], self._detector.size, min_score, self._anchors)
        return weighted_nms(found).moved(view.frame_from_input)

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        """See :class:`FaceNetworks`."""
        if not asked:
            return []
        if self._landmarker is None:
            self._landmarker = self._make_landmarker()
        size = self._landmarker.size
        points = np.empty((len(asked), LANDMARKS, 3), np.float32)
        presence = np.empty(len(asked), np.float32)
        for index, (frame, grid, roi) in enumerate(asked):
            raw = self._landmarker.run(frame, grid, View(frame_from_roi(roi, size), True))
            points[index], presence[index] = raw["landmarks"], raw["presence"][0]
        return read_meshes(points, presence, [roi for _, _, roi in asked], size)

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._detector.close()
        if self._landmarker is not None:
            self._landmarker.close()
