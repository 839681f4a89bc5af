"""Face Mesh as GPUs run it, against MediaPipe and against the file for the CPU, on the CPU."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from tests.golden.test_models import (
    MODELS_DIR,
    TOLERANCES,
    Arrays,
    catalogue,
    expected,
    golden,  # noqa: F401 - a fixture
    model_input,
    outputs_of,
    session,
)

NAME = "face-mesh"
PATH = MODELS_DIR / "data" / str(catalogue()[NAME]["gpu_file"])

# Input pixels and logits. The operators differ only in how they round: measured at most 4.6e-5 and
# 6.7e-6 on noise.
CLOSE = {"landmarks": 1e-3, "presence": 1e-3}


def results(images: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = ort.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
    names = outputs_of(NAME)
    return dict(zip(names, model.run(names, {"image": images}), strict=True))


def test_results_match_mediapipe(golden: Arrays) -> None:  # noqa: F811
    for output, found in results(model_input(NAME, golden)).items():
        truth = expected(NAME, output, golden)
        assert found.shape == truth.shape
        np.testing.assert_allclose(found, truth, rtol=0, atol=TOLERANCES[output], err_msg=output)


@pytest.mark.parametrize("seed", range(3))
def test_results_are_those_of_the_file_for_the_cpu(seed: int, golden: Arrays) -> None:  # noqa: F811
    rng = np.random.default_rng(seed)
    noise = rng.random((3, 3, 192, 192), np.float32)
    # Noise holds no face; of the mixtures with the recorded images, all but the dark one do.
    mixed = noise * np.float32(0.5) + model_input(NAME, golden) * np.float32(0.5)
    for images in (noise, mixed):
        found = results(images)
        for output, values in zip(
            outputs_of(NAME), session(NAME).run(outputs_of(NAME), {"image": images}), strict=True
        ):
            np.testing.assert_allclose(
                found[output], values, rtol=0, atol=CLOSE[output], err_msg=output
            )


def test_the_catalogue_agrees_with_the_file() -> None:
    spec = catalogue()[NAME]
    content = PATH.read_bytes()
    assert len(content) == spec["gpu_bytes"]
    assert hashlib.sha256(content).hexdigest() == spec["gpu_sha256"]
    metadata = {p.key: p.value for p in onnx.load_from_string(content).metadata_props}
    assert metadata["licence"] == spec["licence"]
    assert metadata["source"] == spec["source"]
