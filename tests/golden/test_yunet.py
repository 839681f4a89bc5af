"""The embedded face detector, and how its output is read, against OpenCV.

``yunet.npz`` is written by ``scripts/convert_yunet.py --record``. It holds what OpenCV makes of
OpenCV Zoo's file, in its own runtime and in ``FaceDetectorYN``, for three versions of the image of
``models.npz``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from bgsoft.face.detect import DetectionReader
from bgsoft.face.geometry import Affine, box_iou
from tests.golden.test_models import (
    Arrays,
    catalogue,
    golden,  # noqa: F401 - a fixture
    model_path,
    session,
)

WHOLE = Affine(1, 0, 0, 0, 1, 0)
MAX_DIFFERENCE = 1e-4
"""Largest difference of outputs: scores and strides. Measured: 6e-6."""


@pytest.fixture(scope="module")
def recorded() -> Arrays:
    with np.load(Path(__file__).with_name("yunet.npz")) as archive:
        return dict(archive)


def versions(golden: Arrays) -> NDArray[np.float32]:  # noqa: F811
    """The picture, mirrored, and at half brightness: (3, 3, 256, 256) BGR, 0 to 255."""
    image = golden["image"][..., ::-1]
    images = np.stack([image, image[:, ::-1], image // 2]).transpose(0, 3, 1, 2)
    return images.astype(np.float32)


def outputs(images: NDArray[np.float32], name: str = "yunet") -> NDArray[np.float32]:
    result: NDArray[np.float32] = session(name).run(["faces"], {"input": images})[0]
    return result


def test_a_batch_has_the_outputs_of_opencv(golden: Arrays, recorded: Arrays) -> None:  # noqa: F811
    images = np.ascontiguousarray(versions(golden)[:, :, ::2, ::2])
    np.testing.assert_allclose(outputs(images), recorded["rows"], rtol=0, atol=MAX_DIFFERENCE)
    for image, rows in zip(images, recorded["rows"], strict=True):
        np.testing.assert_allclose(outputs(image[None])[0], rows, rtol=0, atol=MAX_DIFFERENCE)


def test_faces_are_those_of_opencv(golden: Arrays, recorded: Arrays) -> None:  # noqa: F811
    """OpenCV keeps the best prediction; bgsoft averages it with similar ones."""
    rows = outputs(versions(golden))
    found = DetectionReader(256, 256, 3).read([WHOLE] * 3, rows, 0.1)
    for (face,), (left, top, width, height, *points, score) in zip(
        found, recorded["faces"].tolist(), strict=True
    ):
        assert score > 0.8
        assert face.score == pytest.approx(score, abs=1e-4)
        assert box_iou(face.box, (left, top, left + width, top + height)) > 0.9
        right_eye, left_eye = np.array(points[:2]), np.array(points[2:4])
        across, down = left_eye - right_eye
        assert face.angle == pytest.approx(np.arctan2(down, across), abs=0.1)


@pytest.mark.parametrize("gain", [1.0, 0.1, 0.0])
def test_smoothed_pictures_are_those_of_opencv(golden: Arrays, gain: float) -> None:  # noqa: F811
    images = np.round(gain * versions(golden) + 8)
    expected = np.empty_like(images)
    for image, target in zip(images, expected, strict=True):
        kernel = {"ksize": (13, 13), "sigmaX": 1.75, "borderType": cv2.BORDER_REPLICATE}
        blurred = np.stack([cv2.GaussianBlur(plane, **kernel) for plane in image])
        gained = (blurred - blurred.mean()) * 64 / (blurred.std() + 1)
        target[...] = np.clip(gained + 128, 0, 255)
    np.testing.assert_allclose(
        outputs(images, "yunet-smoothed"), outputs(expected), rtol=0, atol=2e-3
    )


def test_any_size_that_is_a_multiple_of_32() -> None:
    for height, width in ((32, 96), (64, 32), (416, 608)):
        cells = sum((height // stride) * (width // stride) for stride in (8, 16, 32))
        shape = outputs(np.zeros((2, 3, height, width), np.float32)).shape
        assert shape == (2, cells, 16)


@pytest.mark.parametrize("name", ["yunet", "yunet-smoothed"])
def test_the_catalogue_agrees_with_the_file(name: str) -> None:
    spec = catalogue()[name]
    content = model_path(name).read_bytes()
    assert len(content) == spec["bytes"]
    assert hashlib.sha256(content).hexdigest() == spec["sha256"]
    graph = onnx.load_from_string(content).graph
    (taken,), (given,) = graph.input, graph.output
    assert (taken.name, given.name) == (spec["input"]["name"], spec["outputs"][0]["name"])
