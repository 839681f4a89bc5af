"""The two face networks as the finder uses them, and how they run on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.face.detect import Detection, DetectionReader
from bgsoft.face.geometry import Roi, frame_from_roi
from bgsoft.face.landmarks import Mesh, MeshReader
from bgsoft.face.warp import WARP_VIEW, CpuWarper, View
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

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
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

        self._shown = np.zeros(1, WARP_VIEW)

    def run(
        self, frame: Frame, grid: AnalysisFrame, view: View
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """The view as operations take it, and the outputs; overwritten by the next call."""
        self._shown[0] = view.frame_from_input, 0, view.repeat_edges
        self._warper.write(frame, grid, view, self._tensor)
        self._network.run()
        return self._shown, self._network.outputs


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
        self._found = DetectionReader(self._detector.size, 1)
        self._meshes = MeshReader(1)

    def start(self) -> None:
        """Their first runs take hardly longer than others."""

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
        """See :class:`FaceNetworks`."""
        answers = []
        for frame, grid, view in asked:
            shown, raw = self._detector.run(frame, grid, view)
            self._found.launch(shown, raw["boxes"], raw["scores"], 0, 1, min_score)
            answers += self._found.read(1)
        return answers

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        """See :class:`FaceNetworks`."""
        if not asked:
            return []
        if self._landmarker is None:
            self._landmarker = self._make_landmarker()
        answers = []
        for frame, grid, roi in asked:
            view = View(frame_from_roi(roi, self._landmarker.size), True)
            shown, raw = self._landmarker.run(frame, grid, view)
            self._meshes.launch(shown, raw["landmarks"], raw["presence"], 0, 1)
            answers += self._meshes.read(1)
        return answers

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._detector.close()
        if self._landmarker is not None:
            self._landmarker.close()
