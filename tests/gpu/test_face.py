"""Faces as the GPU finds them against the CPU: the models' inputs, and whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.diagnose.parity import (
    FACE_BOX_SHARE,
    FACE_SIZE_SHARE,
    PRESENCE,
)
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.geometry import Affine, Roi, frame_from_roi, frame_from_tile
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.warp import Warper
from bgsoft.frame import Frame, PixelLayout
from bgsoft.infer.base import GpuModel
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.catalog import ModelSpec, ResolvedModel, find_spec
from bgsoft.ops.sides import device
from bgsoft.ring import FrameRing
from bgsoft.settings.config import Precision
from tests.fakes import host_planes
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.pictures import frame_format, make_frame, random_frame

pytestmark = pytest.mark.gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "person.mp4"
FRAMES = 20


class TwinNetwork:
    """The model on the CPU, its arrays on the device: what is compared are the finders."""

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


def views(size: tuple[int, int], spec: ModelSpec) -> list[Affine]:
    """All around the frame; turned ones of the landmark model."""
    width, height = size
    side = max(size)
    tiles = (
        ((width - side) / 2, (height - side) / 2, side),
        (-5, -7, height * 0.35),
        (1e5, -1e5, 100),
    )
    upright = [frame_from_tile(tile, spec.width) for tile in tiles]
    if spec.family == "face-detector":
        return upright
    rois = Roi(width * 0.6, height * 0.4, height * 0.5, 0.4), Roi(0, 0, height * 1.5, -2)
    return [*upright, *(frame_from_roi(roi, spec.width) for roi in rois)]


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("name", ["blazeface-short", "face-mesh"])
@pytest.mark.parametrize("size", [(1920, 1080), (1026, 770), (641, 359), (65, 47), (3, 2), (1, 1)])
def test_model_inputs_are_the_same(
    gpu: Any, size: tuple[int, int], name: str, layout: PixelLayout, full_range: bool
) -> None:
    import cupy

    format = frame_format(size, layout, full_range=full_range)
    frame = random_frame(format, np.random.default_rng(1))
    grid = Reducer(format).reduce([frame])[0]
    spec = find_spec(name)
    asked = views(size, spec)
    expected = np.empty((len(asked), 3, spec.height, spec.width), np.float32)
    Warper(spec, format, len(asked)).write([(frame, grid, view) for view in asked], expected)
    stream = gpu.new_stream()
    with gpu.use(stream):
        warper = Warper(spec, format, len(asked) + 1, device())
        tensor = cupy.full((len(asked) + 1, *expected.shape[1:]), 7, np.float32)
        device_frame, device_grid = frame_on_device(frame), grid_on_device(grid)
        stream.synchronize()
        warper.write([(device_frame, device_grid, view) for view in asked], tensor)
        found = tensor.get()
    assert np.all(found[-1] == 7)
    np.testing.assert_array_equal(found[:-1], expected)


def sample() -> Iterator[Frame]:
    with CpuDecoder(SAMPLE) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            if frame.index == FRAMES:
                return
            yield make_frame(frame.format, frame.luma.copy(), frame.chroma.copy(), frame.index * 33)
            ring.release(frame)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_batches_give_the_faces_of_the_cpu(gpu: Any, batch: int, small: bool) -> None:
    """Whatever the batch."""

    frames = list(sample())
    format = frames[0].format
    settings = FinderSettings(small_faces=small)
    reduced = [Reducer(format).reduce([frame])[0] for frame in frames]
    with FaceFinder(format, FaceNetworks(format), settings) as on_cpu:
        expected = on_cpu.find(frames, reduced)
    found = []
    with gpu.use(gpu.new_stream()):
        networks = FaceNetworks(format, TwinNetwork, batch, device())
        with FaceFinder(format, networks, settings) as finder:
            finder.start()
            for start in range(0, FRAMES, batch):
                part = slice(start, start + batch)
                on_device = [frame_on_device(frame) for frame in frames[part]]
                found += finder.find(on_device, [grid_on_device(grid) for grid in reduced[part]])
    assert len(found) == len(expected) == FRAMES
    for (face,), (same,) in zip(found, expected, strict=True):
        assert (face.id, face.detected, face.age_frames) == (0, same.detected, same.age_frames)
        width = same.box_xyxy[2] - same.box_xyxy[0]
        off = np.linalg.norm((face.landmarks - same.landmarks)[:, :2], axis=1)
        assert off.mean() < FACE_SIZE_SHARE * width


def test_more_faces_than_a_run_takes(gpu: Any) -> None:
    """Squares and views beyond what is waited for at once come back in order."""

    frame = next(sample())
    format = frame.format
    grid = Reducer(format).reduce([frame])[0]
    rng = np.random.default_rng(0)
    middle, side = np.array([format.width, format.height]) / 2, format.height / 2
    rois = [
        Roi(*(middle + rng.normal(0, 50, 2)), side * rng.uniform(0.8, 1.2), 0) for _ in range(7)
    ]
    seen = [frame_from_tile((r.x - side, r.y - side, 2 * side), 128) for r in rois]
    seen = seen * 3
    with FaceNetworks(format) as on_cpu:
        expected = on_cpu.landmarks([(frame, grid, roi) for roi in rois])
        boxes = on_cpu.detect([(frame, grid, view) for view in seen], 0.3)
    with (
        gpu.use(gpu.new_stream()),
        FaceNetworks(format, TwinNetwork, side=device()) as networks,
    ):
        there = frame_on_device(frame), grid_on_device(grid)
        found = networks.landmarks([(*there, roi) for roi in rois])
        views_found = networks.detect([(*there, view) for view in seen], 0.3)
        assert networks.landmarks([]) == []
        assert networks.detect([], 0.3) == []
    sure = [mesh.presence for mesh in expected]
    np.testing.assert_allclose([mesh.presence for mesh in found], sure, atol=PRESENCE)
    assert max(sure) > 0.9
    for one, other in zip(found, expected, strict=True):
        if other.presence > 0.9:
            assert np.abs(one.points - other.points)[:2].mean() < FACE_SIZE_SHARE * side
    assert [len(view) for view in views_found] == [len(view) for view in boxes]
    for one, other in zip(chain(*views_found), chain(*boxes), strict=True):
        np.testing.assert_allclose(one.box, other.box, atol=FACE_BOX_SHARE * side)


@pytest.mark.parametrize("backend", ["cuda", "tensorrt"])
def test_the_networks_run_on_the_device(gpu: Any, backend: str) -> None:
    """The real sessions, replayed as CUDA graphs, find the sample's face in every frame."""
    from bgsoft.errors import BackendUnavailableError
    from bgsoft.infer.cuda import GpuNetwork

    stream = gpu.new_stream()

    def make(model: ResolvedModel, batch: int) -> GpuNetwork:
        chosen = model.for_provider(backend, Precision.FP32)
        asked = GpuModel(
            path=chosen.path,
            shapes={model.spec.input: model.spec.input_shape(batch)},
            backend=backend,
            device=gpu,
            sha256=chosen.sha256,
        )
        return GpuNetwork(asked, stream)

    frames = list(sample())
    reducer = Reducer(frames[0].format)
    with gpu.use(stream):
        try:
            networks = FaceNetworks(frames[0].format, make, 8, device())
            finder = FaceFinder(frames[0].format, networks)
        except BackendUnavailableError as exc:
            pytest.skip(str(exc))
        finder.start()
        for start in range(0, FRAMES, 8):
            part = frames[start : start + 8]
            reduced = [grid_on_device(reducer.reduce([frame])[0]) for frame in part]
            found = finder.find([frame_on_device(frame) for frame in part], reduced)
            assert [[face.id for face in faces] for faces in found] == [[0]] * len(part)
        finder.close()
