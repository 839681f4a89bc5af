"""Models with a memory on the GPU: alphas as on the CPU; states that stay or move along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.diagnose.parity import CELLS, MIN_MATTE_DB, TENSOR
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, PixelLayout
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ModelSpec, ResolvedModel
from bgsoft.ops.placement import current_device
from bgsoft.report import Event
from bgsoft.segment.base import Segmenter
from bgsoft.segment.factory import DeviceSegmenterFactory, HostSegmenterFactory
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.threads import LanePool
from tests.face_clips import SAMPLE
from tests.gpu.device_frames import frame_on_device
from tests.gpu.tolerances import MAX_WHOLE_FRAME_DIFFERENCE, RECURRENT_ALPHA, TENSOR_8_BITS
from tests.pictures import frame_format, random_frame
from tests.recurrent_model import recurrent_model
from tests.rendering import psnr, read_back

pytestmark = pytest.mark.gpu

FORMAT = frame_format((641, 359))


@pytest.fixture
def model(tmp_path: Path) -> ResolvedModel:
    return recurrent_model(tmp_path)


def noise(count: int, format: FrameFormat = FORMAT) -> list[Frame]:
    rng = np.random.default_rng(11)
    return [random_frame(format, rng, 40 * index) for index in range(count)]


def expected(model: ResolvedModel, frames: list[Frame], cuts: tuple[int, ...]) -> list[np.ndarray]:
    segmenter = HostSegmenterFactory("cpu", FORMAT, LanePool()).create(NetworkLoader(model))
    segmenter.start()
    alphas = []
    for index, frame in enumerate(frames):
        if index in cuts:
            segmenter.reset()
        alphas.append(segmenter.masks([frame], [])[0].copy())
    segmenter.close()
    return alphas


def on_device(
    model: ResolvedModel, backend: str, gpu: Any, stream: Any, events: list[Event]
) -> Segmenter:
    made = DeviceSegmenterFactory(backend, FORMAT, 4, gpu, stream, events.append).create(
        NetworkLoader(model)
    )
    made.start()
    return made


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_the_device_sees_what_the_host_sees(
    gpu: Any, stream: Any, model: ResolvedModel, backend: str
) -> None:
    events: list[Event] = []
    segmenter = on_device(model, backend, gpu, stream, events)
    frames = noise(7)
    placed = [frame_on_device(frame) for frame in frames]
    masks = [mask.get() for mask in segmenter.masks(placed[:4], [])]
    segmenter.reset()
    masks += [mask.get() for mask in segmenter.masks(placed[4:], [])]
    for mask, alpha in zip(masks, expected(model, frames, (4,)), strict=True):
        assert RECURRENT_ALPHA.allows(np.abs(mask - alpha))
    assert events == []
    segmenter.close()


def test_the_host_can_have_its_network_on_the_device(gpu: Any, model: ResolvedModel) -> None:
    segmenter = HostSegmenterFactory("cuda", FORMAT, LanePool(3), gpu).create(NetworkLoader(model))
    segmenter.start()
    gpu.copies.h2d_bytes = gpu.copies.d2h_bytes = 0
    frames = noise(3)
    masks = [mask.copy() for mask in segmenter.masks(frames, [])]
    for mask, alpha in zip(masks, expected(model, frames, ()), strict=True):
        np.testing.assert_allclose(mask, alpha, atol=CELLS)
    # The picture goes there, alpha comes back, the states and the foreground stay.
    assert gpu.copies.h2d_bytes == 3 * 3 * 641 * 359 * 4
    assert gpu.copies.d2h_bytes == 3 * 641 * 359 * 4
    segmenter.close()


def test_states_go_along_where_a_network_fails(gpu: Any, stream: Any, model: ResolvedModel) -> None:
    events: list[Event] = []
    segmenter = on_device(model, "cuda", gpu, stream, events)
    frames = noise(6)
    placed = [frame_on_device(frame) for frame in frames]
    masks = []
    for start in (0, 2, 4):
        masks += [mask.get() for mask in segmenter.masks(placed[start : start + 2], [])]
        segmenter.driver.network._network._session = None  # type: ignore[attr-defined]
    for mask, alpha in zip(masks, expected(model, frames, ()), strict=True):
        assert RECURRENT_ALPHA.allows(np.abs(mask - alpha))
    assert [event.kind for event in events] == ["retry", "retry", "retry", "fallback"]
    segmenter.close()


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", [(641, 359), (1026, 770), (1920, 1080), (3, 2), (1, 1)])
def test_the_whole_frame_as_a_tensor(
    gpu: Any, stream: Any, size: tuple[int, int], layout: PixelLayout
) -> None:
    import cupy

    format = frame_format(size, layout)
    (frame,) = noise(1, format)
    width, height = size
    spec = ModelSpec(
        name="x", family="recurrent", file="x", input="src", output="pha",
        width=width, height=height,
    )  # fmt: skip
    want = np.empty((3, height, width), np.float32)
    Preprocessor(spec, format).write(AnalysisFrame(1, frame.luma, frame.chroma), want[None])
    placed = frame_on_device(frame)
    got = cupy.empty((1, 3, height, width), np.float32)
    preprocessor = Preprocessor(spec, format, current_device())
    preprocessor.write(AnalysisFrame(1, placed.luma, placed.chroma), got)
    codes = np.abs(got[0].get() - want) * 255
    even = layout is PixelLayout.NV12 and size[0] % 2 == 0
    tolerance = TENSOR_8_BITS if even else TENSOR
    assert tolerance._replace(maximum=MAX_WHOLE_FRAME_DIFFERENCE).allows(codes)


@pytest.mark.parametrize(
    ("infer", "composite"), [("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")]
)
def test_renders_agree(
    gpu: Any, model: ResolvedModel, tmp_path: Path, infer: str, composite: str
) -> None:
    shown = []
    for name, backends in (
        ("cpu", {"infer": "cpu", "composite": "cpu"}),
        ("gpu", {"infer": infer, "composite": composite}),
    ):
        target = tmp_path / f"{name}.mkv"
        bgsoft.render(
            SAMPLE,
            target,
            effect="matte",
            codec="ffv1",
            duration=0.5,
            model=str(model.path),
            face="off",  # this model misses a third of the face: whatever fills it is not the point
            decode="cpu",
            encode="cpu",
            **backends,
        )
        shown.append([frame.planes[0] for frame in read_back(target)])
    assert (
        min(psnr(one, other, 8) for one, other in zip(*shown, strict=True)) >= MIN_MATTE_DB["cuda"]
    )
