"""The refiner: its input, its output, and the resulting mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest

from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.frame import AnalysisFrame
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import read_spec, resolve, spec_path
from bgsoft.models.families import REFINER
from bgsoft.segment.boxes import Box
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.planes import CLOSER, REFINED, ZoomPlanes
from bgsoft.settings.config import Precision
from bgsoft.threads import LanePool
from tests.pictures import frame_format, frame_of

SAMPLE = Path(__file__).parents[3] / "samples" / "person.mp4"


def refined_by_the_file(image: np.ndarray[Any, Any], coarse: np.ndarray[Any, Any]) -> Any:
    """Output of ONNX Runtime for a BGR crop and its mask."""
    session = onnxruntime.InferenceSession(
        str(spec_path(read_spec(REFINER, (REFINER,)))), providers=["CPUExecutionProvider"]
    )
    seen = cv2.resize(image, (256, 256))[..., ::-1].transpose(2, 0, 1)[None]
    mask = cv2.resize(coarse, (256, 256))[None, None]
    inputs = {"image": np.ascontiguousarray(seen, np.float32) / 255, "coarse": mask}
    return session.run(None, inputs)[0][0, 0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_crop_and_its_mask_are_shown_as_the_file_wants_them(count: int) -> None:
    image = cv2.VideoCapture(str(SAMPLE)).read()[1]
    frames = [frame_of(image, index) for index in range(count)]
    format, model, pool = frames[0].format, resolve(REFINER, (REFINER,)), LanePool(2)
    driver = HostSegmenterFactory("cpu", format, pool).driver(NetworkLoader(model))
    refiner = NetworkSegmenter(model.spec, driver, format, pool, batch=count)
    rng = np.random.default_rng(3)
    crops = [AnalysisFrame(1, frame.planes.luma, frame.planes.chroma) for frame in frames]
    coarse = [*cv2.blur(rng.random((45, 60, count), np.float32), (9, 9)).reshape(45, 60, -1).T]
    found = refiner.run(frames, crops, coarse)
    assert len(found) == count
    for mask, given in zip(found, coarse, strict=True):
        wanted = refined_by_the_file(image, given)
        # The frame's chroma has half the picture's size.
        assert np.abs(mask - wanted).mean() < 0.02
        assert mask.std() > 0.1
    refiner.close()
    pool.close()


def test_a_refined_mask_is_averaged_with_the_coarse_one_inside_the_box() -> None:
    format = frame_format((960, 640))
    planes = ZoomPlanes(format, (256, 256), LanePool())
    mask = planes.masks[0]
    inner, frame = Box(40, 0, 140, 100), Box(0, 0, *planes.grid[::-1])
    for box in (inner, frame):
        mask[:] = 0.2
        planes.average(mask, box, np.full((256, 256), 0.8, np.float32), *REFINED)
        expected = np.full(planes.grid, 0.2, np.float32)
        expected[box.top : box.bottom, box.left : box.right] = 0.5
        middle = np.zeros(planes.grid, bool)
        left, right = (0, planes.grid[1]) if box is frame else (box.left + 8, box.right - 8)
        middle[: box.bottom - 8, left:right] = True
        np.testing.assert_allclose(mask[middle], expected[middle], atol=1e-6)
        outside = expected == np.float32(0.2)
        assert (mask[outside] == np.float32(0.2)).all()
    mask[:] = 0.2
    planes.average(mask, inner, np.full((256, 256), 0.8, np.float32), *CLOSER)
    assert (np.diff(mask[50, 40:48]) > 0).all(), "it fades in from an edge inside the frame"
    assert mask[50, 90] == pytest.approx((0.2 + 0.8 / 2) / 1.5), "a closer pass counts a half"


def test_the_refined_mask_takes_only_so_much_away() -> None:
    planes = ZoomPlanes(frame_format((240, 160)), (256, 256), LanePool())
    opacities = np.repeat(np.linspace(0, 1, 11, dtype=np.float32), 24)[None].repeat(160, axis=0)
    mask = planes.masks[0]
    mask[:] = opacities[:, 12:252]
    before, frame = mask.copy(), Box(0, 0, *planes.grid[::-1])
    sharpened = planes.sharpened(mask, frame)
    np.testing.assert_allclose(sharpened, (2 * before - 0.5).clip(0, 1), atol=1e-6)
    np.testing.assert_array_equal(mask, before)
    planes.average(mask, frame, np.zeros((256, 256), np.float32), *REFINED)
    np.testing.assert_allclose(mask, np.maximum(before / 2, before - 0.25), atol=1e-6)
    assert mask.max() == pytest.approx(0.75)


def test_it_runs_in_full_precision_next_to_a_model_in_half() -> None:
    loader = NetworkLoader(resolve("selfie-general"), Precision.FP16)
    refiner = resolve(REFINER, (REFINER,))
    with pytest.raises(BackendUnavailableError, match="cannot use fp16 with refiner"):
        loader.sibling(refiner).check("cuda")
    loader.sibling(refiner, Precision.FP32).check("cuda")


def test_the_refiner_makes_no_masks_alone() -> None:
    with pytest.raises(ConfigError, match="family refiner"):
        resolve(REFINER)
