"""Models of others on a GPU: partly run by CUDA, or with rembg's rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.analysis.reduce import Reducer
from bgsoft.errors import BackendUnavailableError
from bgsoft.frame import Frame, PixelLayout
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ResolvedModel, find_spec, resolve
from bgsoft.ops.placement import current_device
from bgsoft.report import Event
from bgsoft.segment.factory import DeviceSegmenterFactory
from tests.face_clips import SAMPLE
from tests.gpu.device_frames import frame_on_device
from tests.outside_models import masks_of, write_grey, write_mixed
from tests.pictures import frame_format, random_frame
from tests.rendering import psnr, read_back

pytestmark = pytest.mark.gpu

COUNT = 5
SLOW = "mixed.onnx is slow on cuda: 2 of 5 nodes run on CPU (DynamicQuantizeLinear, ConvInteger)"


def frames_of(size: tuple[int, int], layout: PixelLayout = PixelLayout.NV12) -> list[Frame]:
    rng = np.random.default_rng(7)
    return [random_frame(frame_format(size, layout), rng, 40 * k) for k in range(COUNT)]


def on_device(
    model: ResolvedModel,
    frames: list[Frame],
    gpu: Any,
    stream: Any,
    events: list[Event],
    told: list[str],
    *instead: str,
) -> list[np.ndarray]:
    format = frames[0].format
    loader = NetworkLoader(model, on_notice=told.append, instead=instead)
    made = DeviceSegmenterFactory("cuda", format, COUNT, gpu, stream, events.append).create(loader)
    made.start()
    placed = [frame_on_device(frame) for frame in frames]
    masks = made.masks(
        placed, Reducer(format, placement=current_device(), batch=COUNT).reduce(placed)
    )
    found = [mask.get() for mask in masks]
    made.close()
    return found


@pytest.mark.parametrize("batch", ["free", 1, 3])
def test_what_cuda_runs_a_part_of_runs(
    gpu: Any, stream: Any, tmp_path: Path, batch: int | str
) -> None:
    model = resolve(str(write_mixed(tmp_path / "mixed.onnx", batch=batch)))
    frames, events, told = frames_of((320, 240)), list[Event](), list[str]()
    wanted = masks_of(model, frames, on_notice=told.append)
    assert told == []
    for found in (
        on_device(model, frames, gpu, stream, events, told),
        masks_of(model, frames, "cuda", gpu, told.append),
    ):
        # The step of the 8-bit codes, and a code value of the picture.
        np.testing.assert_allclose(found, wanted, atol=2 / 255)
    assert events == []
    assert told == [SLOW, SLOW]


def test_it_is_left_to_the_cpu_only_where_that_may_be(
    gpu: Any, stream: Any, tmp_path: Path
) -> None:
    model = resolve(str(write_mixed(tmp_path / "mixed.onnx")))
    frames, told = frames_of((320, 240)), list[str]()
    try:
        on_device(model, frames, gpu, stream, [], told, "cuda", "cpu")
    except BackendUnavailableError as exc:
        assert "the CPU alone takes" in exc.message  # noqa: PT017
        assert told == []
    else:
        assert len(told) == 1


@pytest.mark.parametrize("composite", ["cuda", "cpu"])
@pytest.mark.parametrize("infer", ["cuda", "auto"])
def test_it_renders(gpu: Any, tmp_path: Path, composite: str, infer: str) -> None:
    path = write_mixed(tmp_path / "mixed.onnx", 64)
    wanted, made = tmp_path / "wanted.mkv", tmp_path / "made.mkv"
    common: dict[str, Any] = {"model": str(path), "codec": "ffv1", "duration": "1"}
    bgsoft.render(SAMPLE, wanted, decode="cpu", infer="cpu", composite="cpu", **common)
    report = bgsoft.render(SAMPLE, made, infer=infer, composite=composite, **common)
    stage = report.stages["segment"]
    notices = [event.message for event in report.events if "slow on cuda" in event.message]
    if stage.backend == "cuda":
        assert len(notices) == 1
    else:
        assert infer == "auto"
        assert "slow on cuda" in (stage.fallback_reason or "")
    pairs = zip(read_back(made), read_back(wanted), strict=True)
    assert min(psnr(one.planes[0], other.planes[0], 8) for one, other in pairs) > 40


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("name", ["u2net", "isnet-general-use", "birefnet-general"])
def test_models_of_rembg_see_and_tell_the_same(
    gpu: Any, stream: Any, tmp_path: Path, name: str, layout: PixelLayout
) -> None:
    """The maximum, the sigmoid, the stretch, whole frames as input, and batches of one."""
    spec = find_spec(name)
    path = tmp_path / spec.file
    write_grey(path, spec.width, sigmoid=spec.activation == "none")
    given = replace(spec, checksum=None, input="input.1", output="d0", batch=1)
    model = ResolvedModel(spec=given, path=path, sha256=name)
    frames, events = frames_of((1030, 771), layout), list[Event]()
    for frame in frames[:2]:  # dark ones, so that the maximum matters
        frame.planes.luma[...] //= 3
    wanted = masks_of(model, frames)
    found = on_device(model, frames, gpu, stream, events, [])
    assert events == []
    # A code value of the picture may be off, of few samples: see test_preprocess.
    off = np.abs(np.array(found) - np.array(wanted))
    assert off.max() <= 8 / 255
    assert off.mean() < 1e-3


@pytest.mark.parametrize("model", ["selfie-general", "selfie-landscape"])
def test_what_is_embedded_runs_wholly_on_cuda(gpu: Any, stream: Any, model: str) -> None:
    told: list[str] = []
    on_device(resolve(model), frames_of((640, 360)), gpu, stream, [], told, "cuda", "cpu")
    assert told == []
