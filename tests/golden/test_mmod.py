"""The embedded second detector of faces, against dlib.

``mmod.npz`` is written by ``scripts/convert_mmod.py --record``. It holds three versions of a part
of the image of ``models.npz``, and the scores of the face that dlib sees in them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.golden.test_models import catalogue, model_path, session

MAX_DIFFERENCE = 0.03
"""dlib surrounds the picture with smaller copies, whose samples reach into the middle."""


def scores(images: NDArray[np.uint8]) -> list[float]:
    """Scores of pictures, (N, 144, 144, 3) R'G'B'."""
    spec = catalogue()["mmod"]["input"]
    values = (images / 255 - spec["mean"]) / spec["std"]
    planes = np.ascontiguousarray(values.transpose(0, 3, 1, 2), np.float32)
    (found,) = session("mmod").run(["score"], {"image": planes})
    assert found.shape == (len(images), 1)
    result: list[float] = found[:, 0].tolist()
    return result


def test_scores_are_those_of_dlib() -> None:
    with np.load(Path(__file__).with_name("mmod.npz")) as archive:
        images, expected = archive["images"], archive["scores"]
    assert expected.min() > 1
    np.testing.assert_allclose(scores(images), expected, rtol=0, atol=MAX_DIFFERENCE)
    # A face upside down, one at the edge, and none.
    moved = [images[0, ::-1], np.roll(images[0], 60, axis=1), np.full_like(images[0], 90)]
    assert max(scores(np.stack(moved))) < 0


def test_the_catalogue_agrees_with_the_file() -> None:
    spec = catalogue()["mmod"]
    content = model_path("mmod").read_bytes()
    assert len(content) == spec["bytes"]
    assert hashlib.sha256(content).hexdigest() == spec["sha256"]
    graph = onnx.load_from_string(content).graph
    (taken,), (given,) = graph.input, graph.output
    assert (taken.name, given.name) == (spec["input"]["name"], spec["outputs"][0]["name"])
    shape = [each.dim_value for each in taken.type.tensor_type.shape.dim]
    assert shape[1:] == [3, spec["input"]["height"], spec["input"]["width"]]
