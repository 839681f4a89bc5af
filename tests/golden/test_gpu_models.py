"""The models as GPUs run them, against MediaPipe and against the files for the CPU, on the CPU."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

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
    model_path,
    outputs_of,
    session,
)
from tests.marks import slow

FILES = (("selfie-general", "cuda"), ("selfie-landscape", "cuda"), ("face-mesh", "gpu"))
of_each = pytest.mark.parametrize(("name", "kind"), FILES)

# Alpha, input pixels and logits. The files differ only in what float32 rounds: measured at most
# 1.2e-3, 5.3e-5 and 6.2e-6 in this order, on noise.
CLOSE = {"mask": 3e-3, "landmarks": 1e-3, "presence": 1e-3}


def path_of(name: str, kind: str) -> Path:
    return MODELS_DIR / "data" / str(catalogue()[name][f"{kind}_file"])


def results(name: str, kind: str, images: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    path, names = path_of(name, kind), outputs_of(name)
    model = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip(names, model.run(names, {"image": images}), strict=True))


@of_each
def test_results_match_mediapipe(name: str, kind: str, golden: Arrays) -> None:  # noqa: F811
    for output, found in results(name, kind, model_input(name, golden)).items():
        truth = expected(name, output, golden)
        assert found.shape == truth.shape
        np.testing.assert_allclose(found, truth, rtol=0, atol=TOLERANCES[output], err_msg=output)


@of_each
@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_results_are_those_of_the_file_for_the_cpu(
    name: str,
    kind: str,
    seed: int,
    golden: Arrays,  # noqa: F811
) -> None:
    recorded = model_input(name, golden)
    # Noise holds no face; of the mixtures with the recorded images, all but the dark one do.
    noise = np.random.default_rng(seed).random(recorded.shape, np.float32)
    for images in (noise, noise * np.float32(0.5) + recorded * np.float32(0.5)):
        found = results(name, kind, images)
        for output, values in zip(
            outputs_of(name), session(name).run(outputs_of(name), {"image": images}), strict=True
        ):
            np.testing.assert_allclose(
                found[output], values, rtol=0, atol=CLOSE[output], err_msg=output
            )


@pytest.mark.parametrize("name", [name for name, kind in FILES if kind == "cuda"])
def test_the_provider_has_fewer_kernels_to_run(name: str) -> None:
    """Each operator and each bias of a convolution is a kernel, unless it is fused."""
    plain, fused = (
        [node for node in onnx.load(path).graph.node if node.op_type != "Cast"]
        for path in (model_path(name), path_of(name, "cuda"))
    )
    before, after = (Counter(node.op_type for node in nodes) for nodes in (plain, fused))
    assert after["FusedConv"] == before["Relu"] > 0
    assert after["Relu"] == 0
    kernels = [
        len(nodes) + sum(node.op_type == "Conv" and len(node.input) > 2 for node in nodes)
        for nodes in (plain, fused)
    ]
    assert kernels[1] < 0.7 * kernels[0]


@of_each
def test_the_catalogue_agrees_with_the_file(name: str, kind: str) -> None:
    spec = catalogue()[name]
    content = path_of(name, kind).read_bytes()
    assert len(content) == spec[f"{kind}_bytes"]
    assert hashlib.sha256(content).hexdigest() == spec[f"{kind}_sha256"]
    metadata = {p.key: p.value for p in onnx.load_from_string(content).metadata_props}
    assert metadata["licence"] == spec["licence"]
    assert metadata["source"] == spec["source"]
