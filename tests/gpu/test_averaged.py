"""Mattes averaged with masks on the GPU, against the CPU's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.infer.loading import NetworkLoader
from bgsoft.ops.placement import current_device
from bgsoft.report import Event
from bgsoft.segment.averaged import MaskAverage
from bgsoft.segment.factory import DeviceSegmenterFactory, HostSegmenterFactory
from bgsoft.settings.config import MatteQuality
from bgsoft.threads import LanePool
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.gpu.test_zoomed import person_walks
from tests.gpu.tolerances import AVERAGED_MATTE, BLENDED
from tests.pictures import frame_format
from tests.recurrent_model import recurrent_model

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "size", [(641, 359), (1281, 719), (1920, 1080), (1026, 770), (70, 50), (3, 2), (1, 1)]
)
def test_planes(gpu: Any, size: tuple[int, int]) -> None:
    import cupy

    rng = np.random.default_rng(2)
    format = frame_format(size)
    grid = analysis_shape(*size)
    mattes, masks = [], []
    for _ in range(2):
        coarse = rng.random((5, 7), np.float32)
        mattes.append(cv2.resize(coarse, size).clip(0.2, 0.8) / 0.6 - np.float32(1 / 3))
        masks.append(cv2.resize(coarse[:, ::-1] ** 2, grid[::-1]))
    on_device, on_host = MaskAverage(format, current_device()), MaskAverage(format)
    changed = []
    for matte, mask in zip(mattes, masks, strict=True):
        ours, wanted = cupy.asarray(matte), matte.copy()
        on_device.apply(ours, cupy.asarray(mask))
        on_host.apply(wanted, mask)
        np.testing.assert_allclose(ours.get(), wanted, atol=BLENDED)
        changed.append((wanted != matte).any())
    if min(size) > 50:
        assert any(changed)


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_mattes(gpu: Any, tmp_path: Path, backend: str) -> None:
    frames = person_walks(6)
    format, pool = frames[0].format, LanePool(2)
    loader = NetworkLoader(recurrent_model(tmp_path))
    events: list[Event] = []
    stream = gpu.new_stream()
    with gpu.use(stream):
        host = HostSegmenterFactory("cpu", format, pool).create(loader, MatteQuality.BEST)
        factory = DeviceSegmenterFactory(backend, format, 2, gpu, stream, events.append)
        device = factory.create(loader, MatteQuality.BEST)
        for segmenter in (host, device):
            segmenter.start()
        for start in range(0, 6, 2):
            part = frames[start : start + 2]
            reduced = Reducer(format, pool).reduce(part)
            wanted = host.masks(part, reduced)
            placed = [frame_on_device(frame) for frame in part]
            found = device.masks(placed, [grid_on_device(grid) for grid in reduced])
            for ours, theirs in zip(found, wanted, strict=True):
                assert ours.shape == format.luma_shape
                assert AVERAGED_MATTE.allows(np.abs(ours.get() - theirs))
        for segmenter in (host, device):
            segmenter.close()
    assert not events
