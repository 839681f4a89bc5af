"""Faces as the GPU finds them against the CPU: the models' inputs, and whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.cpu import CpuReducer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.face.finder import CpuFaceFinder, network_shapes
from bgsoft.face.geometry import Roi, Tile, frame_from_roi, frame_from_tile, letterbox
from bgsoft.face.warp import CpuWarper, View, choose_source
from bgsoft.frame import Frame, PixelLayout
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.catalog import ResolvedModel, find_spec
from bgsoft.pipeline.ring import FrameRing
from tests.fakes import host_planes
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.pictures import codes, frame_format, make_frame

pytestmark = pytest.mark.gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "person.mp4"
FRAMES = 20


class TwinNetwork:
    """The model on the CPU, its arrays on the device: what is compared are the finders."""

    provider = "CPUExecutionProvider"
    device = "cpu"

    def __init__(self, model: ResolvedModel, batch: int) -> None:
        import cupy

        self._network = CpuNetwork(model.path, network_shapes(model.spec, batch))
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


def smooth(rng: np.random.Generator, shape: tuple[int, ...], top: int) -> Any:
    """Noise without single samples that stand out: places may round differently."""
    noise = cv2.GaussianBlur(rng.random(shape).astype(np.float32), (0, 0), 2).reshape(shape)
    noise -= noise.min()
    return noise / max(float(noise.max()), 1e-6) * top


def views(size: tuple[int, int], side: int) -> list[View]:
    width, height = size
    return [
        View(letterbox(width, height, side).inverse(), False),
        View(frame_from_roi(Roi(width * 0.6, height * 0.4, height * 0.5, 0.4), side), True),
        View(frame_from_roi(Roi(0, 0, height * 1.5, -2), side), True),
        View(frame_from_tile(Tile(-5, -7, height * 0.35), side), False),
        View(frame_from_roi(Roi(1e7, -1e7, 100, 1), side), False),
    ]


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("name", ["blazeface-short", "face-mesh"])
@pytest.mark.parametrize("size", [(1920, 1080), (1026, 770), (641, 359), (65, 47), (3, 2), (1, 1)])
def test_model_inputs_are_the_same(
    gpu: Any, size: tuple[int, int], name: str, layout: PixelLayout, full_range: bool
) -> None:
    import cupy

    from bgsoft.face.cuda import CudaWarper

    format = frame_format(size, layout, full_range=full_range)
    rng = np.random.default_rng(1)
    top = (1 << format.bit_depth) - 1
    luma, chroma = (smooth(rng, s, top) for s in (format.luma_shape, format.chroma_shape))
    frame = make_frame(format, codes(format, luma), codes(format, chroma))
    grid = CpuReducer(format).reduce(frame)
    spec = find_spec(name)
    asked = views(size, spec.width)
    expected = np.empty((len(asked), 3, spec.height, spec.width), np.float32)
    on_cpu = CpuWarper(spec, format)
    for view, item in zip(asked, expected, strict=True):
        on_cpu.write(choose_source(frame, grid, view), view, item)
    stream = gpu.new_stream()
    with gpu.use(stream):
        warper = CudaWarper(spec, format, len(asked) + 1)
        tensor = cupy.full(warper.shape, 7, np.float32)
        device_frame, device_grid = frame_on_device(frame), grid_on_device(grid)
        stream.synchronize()
        warper.write([(device_frame, device_grid, view) for view in asked], tensor)
        found = tensor.get()
    assert np.all(found[-1] == 7)
    off = np.abs(found[:-1] - expected) * 255 * spec.std[0]
    # OpenCV's own places are in 1/32 of a sample in some versions.
    assert off.max() <= 16
    assert off.mean(axis=(1, 2, 3)).max() <= 1


def test_too_many_views_are_refused(gpu: Any) -> None:
    import cupy

    from bgsoft.face.cuda import CudaWarper

    format = frame_format((64, 64))
    with gpu.use(gpu.new_stream()):
        warper = CudaWarper(find_spec("face-mesh"), format, 1)
        tensor = cupy.empty(warper.shape, np.float32)
        frame = frame_on_device(make_frame(format, *_black(format)))
        grid = grid_on_device(CpuReducer(format).reduce(make_frame(format, *_black(format))))
        asked = [(frame, grid, view) for view in views((64, 64), 192)]
        with pytest.raises(ValueError, match="up to 1 views"):
            warper.write(asked, tensor)


def _black(format: Any) -> tuple[Any, Any]:
    return np.zeros(format.luma_shape, np.uint8), np.zeros(format.chroma_shape, np.uint8)


def sample() -> Iterator[Frame]:
    with CpuDecoder(SAMPLE) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            if frame.index == FRAMES:
                return
            yield make_frame(frame.format, frame.luma.copy(), frame.chroma.copy(), frame.index * 33)
            ring.release(frame)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_batches_give_the_faces_of_the_cpu(gpu: Any, batch: int) -> None:
    from bgsoft.face.cuda import CudaFaceFinder

    frames = list(sample())
    reducer = CpuReducer(frames[0].format)
    on_cpu = CpuFaceFinder(frames[0].format)
    expected = [on_cpu.find(frame, reducer.reduce(frame)) for frame in frames]
    stream = gpu.new_stream()
    found = []
    with (
        gpu.use(stream),
        CudaFaceFinder(frames[0].format, lambda m, n: TwinNetwork(m, n), batch) as finder,
    ):
        finder.start()
        for start in range(0, FRAMES, batch):
            part = frames[start : start + batch]
            grids = [grid_on_device(reducer.reduce(frame)) for frame in part]
            found += finder.find_batch([frame_on_device(frame) for frame in part], grids)
    assert len(found) == FRAMES
    for faces, (face,) in zip(found, expected, strict=True):
        assert [f.id for f in faces] == [0]
        width = face.box_xyxy[2] - face.box_xyxy[0]
        off = np.linalg.norm((faces[0].landmarks - face.landmarks)[:, :2], axis=1)
        assert off.mean() < 0.02 * width
    on_cpu.close()


@pytest.mark.parametrize("backend", ["cuda", "tensorrt"])
def test_the_networks_run_on_the_device(gpu: Any, backend: str) -> None:
    """The real sessions, replayed as CUDA graphs, find the sample's face in every frame."""
    from bgsoft.errors import BackendUnavailableError
    from bgsoft.face.cuda import CudaFaceFinder
    from bgsoft.infer.cuda import GpuNetwork

    stream = gpu.new_stream()

    def make(model: ResolvedModel, batch: int) -> GpuNetwork:
        return GpuNetwork(
            model.path,
            network_shapes(model.spec, batch),
            backend=backend,
            device=gpu,
            stream=stream,
            sha256=model.sha256,
        )

    frames = list(sample())
    reducer = CpuReducer(frames[0].format)
    with gpu.use(stream):
        try:
            finder = CudaFaceFinder(frames[0].format, make, 8)
        except BackendUnavailableError as exc:
            pytest.skip(str(exc))
        finder.start()
        for start in range(0, FRAMES, 8):
            part = frames[start : start + 8]
            grids = [grid_on_device(reducer.reduce(frame)) for frame in part]
            found = finder.find_batch([frame_on_device(frame) for frame in part], grids)
            assert [[face.id for face in faces] for faces in found] == [[0]] * len(part)
        finder.close()
