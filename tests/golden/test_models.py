"""The embedded ONNX models against results recorded from MediaPipe's own runtime.

``models.npz`` is written by ``scripts/convert_models.py --record``. It holds one 256 x 256 crop of
NASA's portrait of Eileen Collins (public domain), the part of it each model sees, and what
MediaPipe 0.10.21 answers for three images made from that part.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import bgsoft

Arrays = Mapping[str, NDArray[Any]]

MODELS_DIR = Path(bgsoft.__file__).parent / "models"
NAMES = ("selfie-general", "selfie-landscape", "face-mesh")

# Largest absolute difference from MediaPipe, in each output's unit: alpha, input pixels, logits.
# Measured over 94 photographs (57 faces): 1.7e-4, 1.8e-4, 1.9e-5 in this order.
TOLERANCES = {"mask": 2e-3, "landmarks": 1e-2, "presence": 1e-2}


@cache
def catalogue() -> dict[str, Any]:
    """The parsed catalogue."""
    return tomllib.loads((MODELS_DIR / "catalog.toml").read_text(encoding="utf-8"))


def model_path(name: str) -> Path:
    """The embedded file of a catalogue entry."""
    return MODELS_DIR / "data" / str(catalogue()[name]["file"])


def session(name: str) -> ort.InferenceSession:
    """A CPU session, one thread, so that runs repeat exactly."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model_path(name), options, providers=["CPUExecutionProvider"])


def model_input(name: str, golden: Arrays) -> NDArray[np.float32]:
    """The three recorded images, (3, 3, H, W), normalised as the catalogue says."""
    top, left, height, width, step = golden[f"{name}/window"]
    part = golden["image"][top : top + height : step, left : left + width : step]
    images = np.stack([part, part[:, ::-1], part // 2]).transpose(0, 3, 1, 2)
    spec = catalogue()[name]["input"]
    assert images.shape[2:] == (spec["height"], spec["width"])
    mean, std = (np.array(spec[key], np.float32).reshape(1, 3, 1, 1) for key in ("mean", "std"))
    return (images.astype(np.float32) / np.float32(255) - mean) / std


def expected(name: str, output: str, golden: Arrays) -> NDArray[np.float32]:
    """MediaPipe's results for the three images; masks are stored as 65535ths."""
    values = golden[f"{name}/{output}"]
    if values.dtype == np.uint16:
        return values.astype(np.float32) / np.float32(65535)
    return values


def outputs_of(name: str) -> list[str]:
    """Output names of a catalogue entry, in the graph's order."""
    return [output["name"] for output in catalogue()[name]["outputs"]]


@pytest.fixture(scope="module")
def golden() -> Arrays:
    with np.load(Path(__file__).with_name("models.npz")) as archive:
        return dict(archive)


@pytest.mark.parametrize("name", NAMES)
def test_batch_of_three_matches_mediapipe(name: str, golden: Arrays) -> None:
    results = session(name).run(outputs_of(name), {"image": model_input(name, golden)})
    for output, found in zip(outputs_of(name), results, strict=True):
        truth = expected(name, output, golden)
        assert found.shape == truth.shape
        np.testing.assert_allclose(found, truth, rtol=0, atol=TOLERANCES[output], err_msg=output)


@pytest.mark.parametrize("name", NAMES)
def test_single_images_match_mediapipe(name: str, golden: Arrays) -> None:
    model = session(name)
    for index, image in enumerate(model_input(name, golden)):
        results = model.run(outputs_of(name), {"image": image[None]})
        for output, found in zip(outputs_of(name), results, strict=True):
            truth = expected(name, output, golden)[index : index + 1]
            np.testing.assert_allclose(
                found, truth, rtol=0, atol=TOLERANCES[output], err_msg=f"{output}, image {index}"
            )


def test_recorded_results_show_a_person_and_a_face(golden: Arrays) -> None:
    """The recorded data prove nothing unless the images show a person and a face."""
    for name in ("selfie-general", "selfie-landscape"):
        mask = expected(name, "mask", golden)
        assert np.all((mask > 0.9).mean(axis=(1, 2, 3)) > 0.3)
        assert np.all((mask < 0.1).mean(axis=(1, 2, 3)) > 0.1)
    assert np.all(expected("face-mesh", "presence", golden) > 0)


@pytest.mark.parametrize("name", NAMES)
def test_graph_is_plain(name: str) -> None:
    model = onnx.load(model_path(name))
    graph = model.graph
    assert {opset.domain: opset.version for opset in model.opset_import} == {"": 17}

    kinds = {node.op_type for node in graph.node}
    assert not kinds & {"Shape", "Slice", "Gather", "Unsqueeze", "Squeeze", "If", "Loop"}
    assert "Transpose" not in kinds

    weights = {tensor.name: tensor for tensor in graph.initializer}
    casts = [node for node in graph.node if node.op_type == "Cast"]
    assert {node.input[0] for node in casts} == {
        key for key, tensor in weights.items() if tensor.data_type == onnx.TensorProto.FLOAT16
    }
    halves = sum(len(weights[node.input[0]].raw_data) for node in casts)
    assert halves > 0.98 * sum(len(tensor.raw_data) for tensor in weights.values())

    spec = catalogue()[name]
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    taken = spec["input"]
    assert shapes.pop(taken["name"]) == ["N", 3, taken["height"], taken["width"]]
    assert shapes == {o["name"]: ["N", *o["shape"]] for o in spec["outputs"]}


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_entry_agrees_with_the_file(name: str) -> None:
    spec = catalogue()[name]
    content = model_path(name).read_bytes()
    assert len(content) == spec["bytes"]
    assert hashlib.sha256(content).hexdigest() == spec["sha256"]
    metadata = {p.key: p.value for p in onnx.load_from_string(content).metadata_props}
    assert metadata["licence"] == spec["licence"] == "Apache-2.0"
    assert metadata["source"] == spec["source"]
