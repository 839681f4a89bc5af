"""Batched segmentation: the right masks, and the rule for faults."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bgsoft.errors import InferenceError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.report import Event
from tests.fakes import host_planes

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


class FakeNetwork:
    """Gives the red channel back as the mask; fails as often as it is told."""

    provider = "fake"
    device = "cuda:0"

    def __init__(self, batch: int, failures: list[int]) -> None:
        import cupy

        self.batch = batch
        self._failures = failures
        self.inputs = {"image": cupy.zeros((batch, 3, 12, 16), np.float32)}
        self.outputs = {"mask": cupy.zeros((batch, 1, 12, 16), np.float32)}

    def run(self) -> None:
        if self._failures and self._failures[0] > 0:
            self._failures[0] -= 1
            raise InferenceError("broken", stage="segment")
        self.outputs["mask"][:, 0] = self.inputs["image"][:, 0]

    def close(self) -> None:
        pass


class Bench:
    """A segmenter over fakes, and what happened in it."""

    def __init__(self, gpu: Any, failures: int = 0, twin_fails: bool = False) -> None:
        from bgsoft.analysis.cuda import CudaReducer
        from bgsoft.segment.batched import BatchedSegmenter

        self.gpu = gpu
        self.events: list[Event] = []
        self.sizes: list[int] = []
        left = [failures]

        def make(batch: int, _graphs: bool) -> FakeNetwork:
            self.sizes.append(batch)
            return FakeNetwork(batch, left)

        def twin() -> FakeNetwork:
            self.sizes.append(-1)
            return FakeNetwork(1, [10**9] if twin_fails else [0])

        self.segmenter = BatchedSegmenter(SPEC, make, twin, FORMAT, 4, self.events.append)
        self._reducer = CudaReducer(FORMAT, 4)

    def masks(self, lumas: list[int]) -> list[float]:
        """The mean mask of flat grey frames."""
        import cupy

        frames = []
        for index, luma in enumerate(lumas):
            planes = host_planes(FORMAT, index)
            planes.luma[:], planes.chroma[:] = luma, 128
            planes.luma, planes.chroma = cupy.asarray(planes.luma), cupy.asarray(planes.chroma)
            frame = Frame(planes, FORMAT, index, 40 * index, Fraction(1, 1000))
            frames.append(frame)
        masks = self.segmenter.masks(frames, self._reducer.reduce(frames))
        return [float(mask.mean()) for mask in masks]


LUMAS = [40, 80, 120, 160]
EXPECTED = [(luma - 16) / 219 for luma in LUMAS]


def test_each_frame_gets_its_own_mask(gpu: Any) -> None:
    bench = Bench(gpu)
    assert bench.masks(LUMAS) == pytest.approx(EXPECTED, abs=0.01)
    assert bench.masks(LUMAS[:3]) == pytest.approx(EXPECTED[:3], abs=0.01)
    assert bench.events == []
    assert bench.sizes == [4]


def test_one_failure_is_retried(gpu: Any) -> None:
    bench = Bench(gpu, failures=1)
    assert bench.masks(LUMAS) == pytest.approx(EXPECTED, abs=0.01)
    assert [e.kind for e in bench.events] == ["retry"]
    assert bench.sizes == [4]


def test_repeated_failures_halve_the_batch(gpu: Any) -> None:
    bench = Bench(gpu, failures=2)
    assert bench.masks(LUMAS) == pytest.approx(EXPECTED, abs=0.01)
    assert bench.sizes == [4, 2]
    assert bench.segmenter.size == 2
    assert bench.masks(LUMAS) == pytest.approx(EXPECTED, abs=0.01)


def test_a_batch_that_does_not_even_start_is_halved(gpu: Any) -> None:
    bench = Bench(gpu, failures=1)
    bench.segmenter.start()
    assert bench.sizes == [4, 2]
    assert bench.events[0].frame is None
    assert bench.masks(LUMAS) == pytest.approx(EXPECTED, abs=0.01)


def test_at_last_the_cpu_takes_over(gpu: Any) -> None:
    bench = Bench(gpu, failures=10**9)
    assert bench.masks(LUMAS) == pytest.approx(EXPECTED, abs=0.01)
    assert bench.sizes == [4, 2, 1, -1]
    assert bench.events[-1].kind == "fallback"
    assert "CPU takes over" in bench.events[-1].message


def test_when_the_cpu_fails_too_it_is_an_error_with_its_time(gpu: Any) -> None:
    bench = Bench(gpu, failures=10**9, twin_fails=True)
    with pytest.raises(InferenceError) as caught:
        bench.masks(LUMAS)
    assert caught.value.pts == 0
