"""Batched segmentation on the device; ``unit/test_drivers`` has the rule for faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.errors import InferenceError
from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Network
from bgsoft.infer.drivers import BatchDriver
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import current_device
from bgsoft.report import Event
from bgsoft.segment.network import NetworkSegmenter
from tests.gpu.device_frames import frame_on_device
from tests.pictures import flat_frame

pytestmark = pytest.mark.gpu

FORMAT = FrameFormat(width=64, height=48)
SPEC = ModelSpec(
    name="fake",
    family="single-shot",
    file="fake.onnx",
    input="image",
    output="mask",
    width=16,
    height=12,
)


class FakeNetwork(Network):
    """Gives the red channel back as the mask; fails as often as it is told."""

    provider = "fake"

    def __init__(self, batch: int, faults: list[int]) -> None:
        import cupy

        self._faults = faults
        self.inputs = {"image": cupy.zeros((batch, 3, 12, 16), np.float32)}
        self.outputs = {"mask": cupy.zeros((batch, 1, 12, 16), np.float32)}

    def run(self) -> None:
        if self._faults[0] > 0:
            self._faults[0] -= 1
            raise InferenceError("broken", stage="segment")
        self.outputs["mask"][:, 0] = self.inputs["image"][:, 0]

    def close(self) -> None:
        pass


LUMAS = [40, 80, 120, 160]
EXPECTED = [(luma - 16) / 219 for luma in LUMAS]


@pytest.mark.parametrize("faults", [0, 1, 2, 4, 10**9])
def test_each_frame_gets_its_own_mask(gpu: Any, faults: int) -> None:
    events: list[Event] = []
    left = [faults]
    driver = BatchDriver(
        lambda batch, _graphs: FakeNetwork(batch, left),
        lambda: FakeNetwork(1, [0]),
        batch=4,
        on_event=events.append,
    )
    segmenter = NetworkSegmenter(SPEC, driver, FORMAT, placement=current_device(), batch=4)
    frames = [frame_on_device(flat_frame(FORMAT, luma, 128, 128)) for luma in LUMAS]
    reducer = Reducer(FORMAT, placement=current_device(), batch=4)
    for count in (4, 3, 1):
        masks = segmenter.masks(frames[:count], reducer.reduce(frames[:count]))
        means = [float(mask.mean()) for mask in masks]
        assert means == pytest.approx(EXPECTED[:count], abs=0.01)
    assert bool(events) == bool(faults)
    segmenter.close()


def test_cupys_error_of_memory_is_one_that_the_driver_survives(gpu: Any) -> None:
    import cupy

    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
