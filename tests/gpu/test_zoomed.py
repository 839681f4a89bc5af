"""Whole and close passes on the GPU: the planes, the decisions and the masks of the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.diagnose.parity import CELLS, TENSOR
from bgsoft.face.networks import FaceGlance, wiring_of
from bgsoft.frame import Frame, PixelLayout
from bgsoft.infer.base import Network
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.ops.placement import HOST, current_device
from bgsoft.report import Event
from bgsoft.segment.boxes import Box
from bgsoft.segment.factory import DeviceSegmenterFactory, HostSegmenterFactory
from bgsoft.segment.planes import CLOSER, REFINED, ZoomPlanes
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.settings.config import MatteQuality, Precision
from bgsoft.threads import LanePool
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.gpu.tolerances import BLENDED, SCHEDULED_MASK
from tests.pictures import frame_format, frame_of, random_frame

pytestmark = pytest.mark.gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "person.mp4"
SIZES = [(641, 359), (1281, 719), (1920, 1080), (70, 50), (33, 21), (1, 1)]
MODEL = (256, 256)


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", SIZES)
def test_planes(gpu: Any, size: tuple[int, int], layout: PixelLayout) -> None:
    import cupy

    rng = np.random.default_rng(5)
    format = frame_format(size, layout)
    frames = [random_frame(format, rng) for _ in range(2)]
    placed = [frame_on_device(frame) for frame in frames]
    reduced = Reducer(format, LanePool(2)).reduce(frames)
    host = ZoomPlanes(format, MODEL, LanePool(2))
    device = ZoomPlanes(
        format, MODEL, placement=current_device(), batch=2, device=gpu, stream=gpu.new_stream()
    )
    placed_grids = [grid_on_device(grid) for grid in reduced]
    for planes, grids in ((host, reduced), (device, placed_grids)):
        planes.watch(grids)
    shapes = (MODEL, (20, 30), (144, 256), (144, 256))
    masks = [rng.random(shape, np.float32) for shape in shapes]
    on_host = [host.on_grid(mask) for mask in masks]
    with device.aside():
        on_device = [device.on_grid(cupy.asarray(masks[0]))]
    on_device += [device.on_grid(cupy.asarray(mask)) for mask in masks[1:]]
    wanted = host.read(on_host)()
    found = [cells.copy() for cells in device.read(on_device)()]
    (again,) = device.read(on_device[1:2], later=True)()
    assert len(found) == len(wanted)
    for ours, theirs in zip([*found, again], [*wanted, wanted[1]], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=CELLS, atol=CELLS)
    assert device.read([])() == []

    rows, columns = analysis_shape(*size)
    boxes = [Box(0, rows // 4, max(1, columns // 3), rows), Box(columns // 8, 0, columns, rows)]
    spec = resolve("selfie-general").spec
    reference, preprocessor = (
        Preprocessor(spec, format, placement) for placement in (HOST, current_device())
    )
    crops = zip(
        host.crops(frames, reduced, boxes), device.crops(placed, placed_grids, boxes), strict=True
    )
    for index, (theirs, ours) in enumerate(crops):
        assert ours.factor == theirs.factor
        np.testing.assert_array_equal(ours.luma.get(), theirs.luma)
        np.testing.assert_array_equal(ours.chroma.get(), theirs.chroma)
        tensor = np.empty((3, *MODEL), np.float32)
        reference.write(theirs, tensor[None])
        batch = cupy.zeros((2, 3, *MODEL), np.float32)
        preprocessor.write(ours, batch, index)
        codes = np.abs(batch[index].get() - tensor) * 255
        assert TENSOR.allows(codes)

    close = rng.random(MODEL, np.float32)
    for planes, passes, mask in ((host, on_host, close), (device, on_device, cupy.asarray(close))):
        # Another picture than the passes have seen, and the same without a close pass.
        planes.blend(planes.masks[:1], [0], planes.whole(1, passes[1::2]), boxes[0], [mask])
        planes.blend(planes.masks[1:], [1], planes.whole(1, passes[3:]), None, [None])
    for ours, theirs in zip(device.masks, host.masks, strict=True):
        np.testing.assert_allclose(ours.get(), theirs, atol=BLENDED)
    others = rng.random((2, *MODEL), np.float32)
    for planes, (closer, refined) in ((host, others), (device, cupy.asarray(others))):
        planes.average(planes.masks[0], boxes[1], closer, *CLOSER)
        planes.average(planes.masks[0], boxes[0], refined, *REFINED)
    wanted, sharpened = (each.sharpened(each.masks[0], boxes[1]) for each in (host, device))
    np.testing.assert_allclose(sharpened.get(), wanted, atol=4 * BLENDED)
    np.testing.assert_allclose(device.masks[0].get(), host.masks[0], atol=2 * BLENDED)


def person_walks(count: int, rows: int | None = None) -> list[Frame]:
    """The sample at half size, or its first rows; for three frames the person is elsewhere."""
    video = cv2.VideoCapture(str(SAMPLE))
    frames = []
    for index in range(count):
        image = video.read()[1][::2, ::2][:rows]
        frames.append(frame_of(np.roll(image, 120, axis=1) if 6 <= index < 9 else image, index))
    return frames


@pytest.mark.parametrize("quality", [MatteQuality.STANDARD, MatteQuality.BEST])
@pytest.mark.parametrize("backend", ["cuda", "cpu"])
@pytest.mark.parametrize("rows", [None, 264])
def test_masks(gpu: Any, backend: str, quality: MatteQuality, rows: int | None) -> None:
    from bgsoft.infer.cuda import for_device

    frames = person_walks(12, rows)
    format = frames[0].format
    pool = LanePool(4)
    grids_of = Reducer(format, pool).reduce
    events: list[Event] = []
    stream = gpu.new_stream()
    with gpu.use(stream):
        loader = NetworkLoader(resolve("selfie-general"))
        host = HostSegmenterFactory("cpu", format, pool).create(
            loader, quality, lambda: FaceGlance(format)
        )
        factory = DeviceSegmenterFactory(backend, format, 4, gpu, stream, events.append)

        def make_faces() -> FaceGlance:
            def on_cpu(model: ResolvedModel, batch: int) -> Network:
                (network,) = loader.sibling(model, Precision.FP32).on_cpu(wiring_of(model, batch))
                return for_device(network, gpu, stream)

            with gpu.use(stream):
                return FaceGlance(format, on_cpu, 4, current_device())

        device = factory.create(loader, quality, make_faces)
        for segmenter in (host, device):
            segmenter.start()
        for start in range(0, 12, 4):
            part = frames[start : start + 4]
            reduced = grids_of(part)
            placed = [frame_on_device(frame) for frame in part]
            placed_grids = [grid_on_device(grid) for grid in reduced]
            device.begin(placed, placed_grids)
            wanted = host.masks(part, reduced)
            found = device.masks(placed, placed_grids)
            for ours, theirs in zip(found, wanted, strict=True):
                assert SCHEDULED_MASK.allows(np.abs(ours.get() - theirs))
            if start == 4:
                host.reset()
                device.reset()
        for segmenter in (host, device):
            segmenter.close()
    assert not events
