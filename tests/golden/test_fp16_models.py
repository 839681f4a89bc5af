"""The half-precision models against the float32 ones, on the CPU.

ONNX Runtime's CPU kernels compute in float32 between roundings to float16, so this shows what the
format costs; a GPU's own half-precision kernels are compared in ``tests/gpu``.
"""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from tests.golden.test_models import (
    MODELS_DIR,
    Arrays,
    catalogue,
    golden,  # noqa: F401 - a fixture
    model_input,
    session,
)

NAMES = ("selfie-general", "selfie-landscape")

# Measured on the three recorded images of each model: at most 0.028 and 0.021 on single pixels of
# an edge, 3 of 307,200 values beyond 0.02, mean 2e-5.
MAX_DIFFERENCE = 0.04
CLOSE = 0.02
MAX_SHARE_BEYOND = 1e-4
MEAN_DIFFERENCE = 2e-4


def half_path(name: str) -> str:
    return str(MODELS_DIR / "data" / catalogue()[name]["fp16_file"])


def half_masks(name: str, images: NDArray[np.float32]) -> NDArray[np.float16]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = ort.InferenceSession(half_path(name), options, providers=["CPUExecutionProvider"])
    result: NDArray[np.float16] = model.run(["mask"], {"image": images.astype(np.float16)})[0]
    return result


@pytest.mark.parametrize("name", NAMES)
def test_masks_are_those_of_float32(name: str, golden: Arrays) -> None:  # noqa: F811
    images = model_input(name, golden)
    full = session(name).run(["mask"], {"image": images})[0]
    half = half_masks(name, images)
    assert half.dtype == np.float16
    assert half.shape == full.shape
    difference = np.abs(half.astype(np.float32) - full)
    assert difference.max() <= MAX_DIFFERENCE
    assert (difference > CLOSE).mean() <= MAX_SHARE_BEYOND
    assert difference.mean() <= MEAN_DIFFERENCE


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_float16_throughout(name: str) -> None:
    full = onnx.load(MODELS_DIR / "data" / catalogue()[name]["file"]).graph
    half = onnx.load(half_path(name)).graph
    kinds = [node.op_type for node in half.node]
    assert "Cast" not in kinds
    assert kinds == [node.op_type for node in full.node if node.op_type != "Cast"]
    for value in (*half.input, *half.output):
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    scales = {node.input[2] for node in half.node if node.op_type == "Resize"}
    for tensor in half.initializer:
        wanted = onnx.TensorProto.FLOAT if tensor.name in scales else onnx.TensorProto.FLOAT16
        assert tensor.data_type == wanted, tensor.name


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_agrees_with_the_file(name: str) -> None:
    spec = catalogue()[name]
    content = (MODELS_DIR / "data" / spec["fp16_file"]).read_bytes()
    assert len(content) == spec["fp16_bytes"]
    assert hashlib.sha256(content).hexdigest() == spec["fp16_sha256"]
