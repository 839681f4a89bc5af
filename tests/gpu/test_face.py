"""Faces as the GPU finds them against the CPU: the models' inputs, and whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.face.create import finder_settings
from bgsoft.face.detect import Canvas, Canvases, Detection
from bgsoft.face.finder import FaceFinder
from bgsoft.face.geometry import Affine, Roi, frame_from_roi
from bgsoft.face.networks import FaceNetworks, resolve_detector, wiring_of
from bgsoft.face.warp import EDGE, MIRRORED, Warper
from bgsoft.frame import Frame, PixelLayout
from bgsoft.infer.base import GpuModel, GpuRun
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.catalog import ModelSpec, ResolvedModel, find_spec
from bgsoft.ops.placement import current_device
from bgsoft.ring import FrameRing
from bgsoft.settings.config import FaceConfig, FaceMode, Precision
from tests.fakes import host_planes
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.gpu.tolerances import CHECK, FACE_BOX_SHARE, FACE_SIZE_SHARE, PRESENCE
from tests.pictures import frame_format, make_frame, random_frame

pytestmark = pytest.mark.gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "person.mp4"
FRAMES = 20


class TwinNetwork:
    """The model on the CPU with arrays on the device, so that only the finders differ."""

    provider = "CPUExecutionProvider"
    device = "cpu"

    def __init__(self, model: ResolvedModel, batch: int) -> None:
        import cupy

        self._network = CpuNetwork(model.path, {model.spec.input: model.spec.input_shape(batch)})
        self.inputs = {name: cupy.asarray(a) for name, a in self._network.inputs.items()}
        self.outputs = {name: cupy.asarray(a) for name, a in self._network.outputs.items()}

    def run(self) -> None:
        for name, array in self.inputs.items():
            self._network.inputs[name][:] = array.get()
        self._network.run()
        for name, array in self.outputs.items():
            array.set(self._network.outputs[name])

    def close(self) -> None:
        self._network.close()


def around(size: tuple[int, int], spec: ModelSpec) -> list[Affine]:
    """All around the frame, turned, enlarged and far outside."""
    width, height = size
    rois = (
        Roi(width / 2, height / 2, max(size), 0),
        Roi(height * 0.175 - 5, height * 0.175 - 7, height * 0.35, 0),
        Roi(width * 0.6, height * 0.4, height * 0.5, 0.4),
        Roi(0, 0, height * 1.5, -2),
        Roi(1e5, -1e5, 100, 0),
    )
    return [frame_from_roi(roi, spec.width) for roi in rois]


SIZES = [(1920, 1080), (1026, 770), (641, 359), (65, 47), (3, 2), (1, 1)]
INPUTS = ["whole", "half", "on_side", "close", "landmarks"]


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("size", SIZES)
def test_model_inputs_are_the_same(
    gpu: Any, size: tuple[int, int], name: str, layout: PixelLayout, full_range: bool
) -> None:
    """Inputs of whole frames in all turns, with a mirrored border, and of parts of frames."""
    import cupy

    format = frame_format(size, layout, full_range=full_range)
    frame = random_frame(format, np.random.default_rng(1))
    grid = Reducer(format).reduce([frame])[0]
    canvas: Canvas | None = getattr(hiding(frame), name, None)
    spec = find_spec("face-mesh") if name == "landmarks" else resolve_detector(canvas).spec
    border = EDGE if name == "landmarks" else MIRRORED
    asked = around(size, spec)
    if canvas is not None:
        asked += [canvas.view(quarters) for quarters in range(4)]
    expected = np.empty((len(asked), 3, spec.height, spec.width), np.float32)
    on_host = Warper(spec, format, len(asked), border=border)
    on_host.write([(frame, grid, view) for view in asked], expected)
    stream = gpu.new_stream()
    with gpu.use(stream):
        warper = Warper(spec, format, len(asked) + 1, current_device(), border)
        tensor = cupy.full((len(asked) + 1, *expected.shape[1:]), 7, np.float32)
        device_frame, device_grid = frame_on_device(frame), grid_on_device(grid)
        stream.synchronize()
        warper.write([(device_frame, device_grid, view) for view in asked], tensor)
        found = tensor.get()
    assert np.all(found[-1] == 7)
    np.testing.assert_array_equal(found[:-1], expected)


def hiding(frame: Frame) -> Canvases:
    """Inputs of the detector where faces are hidden."""
    config = FaceConfig(mode=FaceMode.ANONYMIZE)
    return finder_settings(config, frame.format, writes_data=False).canvases(frame.format)


def sample() -> Iterator[Frame]:
    with CpuDecoder(SAMPLE) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            if frame.index == FRAMES:
                return
            yield make_frame(frame.format, frame.luma.copy(), frame.chroma.copy(), frame.index * 33)
            ring.release(frame)


@pytest.mark.parametrize("writes_data", [False, True])
@pytest.mark.parametrize("mode", [FaceMode.GUARD, FaceMode.ANONYMIZE])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_batches_give_the_faces_of_the_cpu(
    gpu: Any, batch: int, mode: FaceMode, writes_data: bool
) -> None:
    """With any batch size, the largest face of each frame is the CPU's."""
    frames = list(sample())
    format = frames[0].format
    settings = finder_settings(FaceConfig(mode=mode), format, writes_data=writes_data)
    canvases = settings.canvases(format)
    reduced = [Reducer(format).reduce([frame])[0] for frame in frames]
    with FaceFinder(format, FaceNetworks(format, canvases), settings) as on_cpu:
        expected = on_cpu.find(frames, reduced)
    found = []
    with gpu.use(gpu.new_stream()):
        networks = FaceNetworks(format, canvases, TwinNetwork, batch, current_device())
        with FaceFinder(format, networks, settings) as finder:
            finder.start()
            for start in range(0, FRAMES, batch):
                part = slice(start, start + batch)
                on_device = [frame_on_device(frame) for frame in frames[part]]
                found += finder.find(on_device, [grid_on_device(grid) for grid in reduced[part]])
    assert len(found) == len(expected) == FRAMES
    for (face, *_), (same, *_) in zip(found, expected, strict=True):
        assert (face.id, face.detected, face.age_frames) == (0, same.detected, same.age_frames)
        width = same.box_xyxy[2] - same.box_xyxy[0]
        np.testing.assert_allclose(face.box_xyxy, same.box_xyxy, atol=FACE_BOX_SHARE * width)
        assert face.has_landmarks == same.has_landmarks == writes_data
        if writes_data:
            off = np.linalg.norm((face.landmarks - same.landmarks)[:, :2], axis=1)
            assert off.mean() < FACE_SIZE_SHARE * width


CLOSE_SCORES = {False: 0.8, True: 0.5}
"""Least score of the sample's face in closer views, as they are and smoothed."""


def assert_alike(
    found: list[list[Detection]], expected: list[list[Detection]], most: float
) -> None:
    """The best detection of each view is the same, its box up to so many pixels."""
    assert [bool(view) for view in found] == [bool(view) for view in expected]
    for (one, *_), (other, *_) in zip(filter(None, found), filter(None, expected), strict=True):
        np.testing.assert_allclose(one.box, other.box, atol=most)
        assert one.score == pytest.approx(other.score, abs=PRESENCE)
        assert one.angle == pytest.approx(other.angle, abs=0.05)


def test_more_faces_than_a_run_takes(gpu: Any) -> None:
    """Squares and views beyond one batch return in order, for every canvas."""
    frame = next(sample())
    format = frame.format
    grid = Reducer(format).reduce([frame])[0]
    rng = np.random.default_rng(0)
    middle, side = np.array([format.width, format.height]) / 2, format.height / 2
    rois = [
        Roi(*(middle + rng.normal(0, 50, 2)), side * rng.uniform(0.8, 1.2), 0) for _ in range(7)
    ]
    canvases = hiding(frame)
    shown = [(canvases.whole, 0), (canvases.whole, 2), (canvases.half, 0), (canvases.on_side, 1)]
    shown = [(canvas, canvas.view(quarters)) for canvas, quarters in shown if canvas is not None]
    assert len(shown) == 4
    shifts = [(int(shift), int(shift / 2)) for shift in rng.integers(-60, 60, 21)]

    def views(view: Affine) -> list[Affine]:
        return [view._replace(x0=view.x0 + x, y0=view.y0 + y) for x, y in shifts]

    with FaceNetworks(format, canvases) as on_cpu:
        expected = on_cpu.landmarks([((frame, grid), roi) for roi in rois])
        boxes = [
            on_cpu.detect(c, [(frame, grid, v) for v in views(view)], 0.3) for c, view in shown
        ]
        seen = [found[0] for found in boxes[0] if found]
        close = {
            smoothed: on_cpu.detect_close(
                [((frame, grid), each) for each in seen], min_score, smoothed=smoothed
            )
            for smoothed, min_score in CLOSE_SCORES.items()
        }
        checks = on_cpu.check([((frame, grid), each) for each in seen])
    assert len(seen) == 21
    assert all(map(all, close.values()))
    with (
        gpu.use(gpu.new_stream()),
        FaceNetworks(format, canvases, TwinNetwork, 4, current_device()) as networks,
    ):
        there = frame_on_device(frame), grid_on_device(grid)
        found = networks.landmarks([(there, roi) for roi in rois])
        for (canvas, view), known in zip(shown, boxes, strict=True):
            answers = networks.detect(canvas, [(*there, each) for each in views(view)], 0.3)
            assert_alike(answers, known, FACE_BOX_SHARE * side)
        for smoothed, known in close.items():
            answers = networks.detect_close(
                [(there, each) for each in seen], CLOSE_SCORES[smoothed], smoothed=smoothed
            )
            assert_alike(answers, known, FACE_BOX_SHARE * side)
        found_checks = networks.check([(there, each) for each in seen])
        np.testing.assert_allclose(found_checks, checks, atol=CHECK)
        assert networks.check([]) == []
        assert networks.landmarks([]) == []
        assert networks.detect(canvases.whole, [], 0.3) == []
        assert networks.detect_close([], 0.3) == []
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
    assert pairs
    for one, other in pairs:
        assert one is not None
        assert np.abs(one - other)[:2].mean() < FACE_SIZE_SHARE * side


@pytest.mark.parametrize("mode", [FaceMode.GUARD, FaceMode.ANONYMIZE])
@pytest.mark.parametrize("backend", ["cuda", "tensorrt"])
def test_the_networks_run_on_the_device(gpu: Any, backend: str, mode: FaceMode) -> None:
    """The real sessions, replayed as CUDA graphs, find the sample's face in every frame."""
    from bgsoft.errors import BackendUnavailableError
    from bgsoft.infer.cuda import GpuNetwork

    stream = gpu.new_stream()

    def make(model: ResolvedModel, batch: int) -> GpuNetwork:
        chosen = model.for_provider(backend, Precision.FP32)
        wiring = wiring_of(model, batch)

        def free_outputs() -> dict[str, tuple[int, ...]]:
            return {name: (batch, *shape) for name, shape in wiring.free_outputs.items()}

        asked = GpuModel(
            path=chosen.path,
            shapes=wiring.inputs,
            backend=backend,
            device=gpu,
            sha256=chosen.sha256,
        )
        return GpuNetwork(asked, GpuRun(backend, gpu, stream), output_shapes=free_outputs)

    frames = list(sample())
    format, reducer = frames[0].format, Reducer(frames[0].format)
    settings = finder_settings(FaceConfig(mode=mode), format, writes_data=False)
    with gpu.use(stream):
        try:
            networks = FaceNetworks(format, settings.canvases(format), make, 8, current_device())
            finder = FaceFinder(format, networks, settings)
        except BackendUnavailableError as exc:
            pytest.skip(str(exc))
        finder.start()
        for start in range(0, FRAMES, 8):
            part = frames[start : start + 8]
            reduced = [grid_on_device(reducer.reduce([frame])[0]) for frame in part]
            found = finder.find([frame_on_device(frame) for frame in part], reduced)
            assert [faces[0].id for faces in found] == [0] * len(part)
        if mode is FaceMode.ANONYMIZE:
            face = found[-1][0]
            seen = Detection(face.box_xyxy, face.angle, face.score)
            with FaceNetworks(format, settings.canvases(format)) as on_cpu:
                expected = on_cpu.check([((part[-1], reducer.reduce(part[-1:])[0]), seen)])
            assert expected[0] > 0.5
            checks = networks.check([((frame_on_device(part[-1]), reduced[-1]), seen)])
            np.testing.assert_allclose(checks, expected, atol=CHECK)
        finder.close()
