"""Which file a provider and a precision mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bgsoft.config import Precision
from bgsoft.errors import BackendUnavailableError, ModelIntegrityError
from bgsoft.models.catalog import ResolvedModel, catalog, resolve

MODELS = [m.name for m in catalog().values() if m.embedded and m.family == "single-shot"]


@pytest.fixture
def model() -> ResolvedModel:
    return resolve("selfie-general")


@pytest.fixture
def mesh() -> ResolvedModel:
    """The model that has a file for GPUs."""
    return resolve("face-mesh", ("face-landmarks",))


@pytest.mark.parametrize(
    ("backend", "precision"),
    [
        ("cuda", Precision.FP32),
        ("tensorrt", Precision.FP32),
        ("tensorrt", Precision.FP16),  # of which it makes half precision
    ],
)
def test_gpus_have_a_file_of_their_own(
    mesh: ResolvedModel, backend: str, precision: Precision
) -> None:
    chosen = mesh.for_provider(backend, precision)
    assert chosen.path.name == mesh.spec.gpu_file != mesh.path.name
    assert chosen.path.stat().st_size == mesh.spec.gpu_bytes
    assert chosen.sha256 == mesh.spec.gpu_sha256 != mesh.sha256
    assert chosen.spec is mesh.spec


def test_the_cpu_keeps_the_file_itself(mesh: ResolvedModel) -> None:
    assert mesh.for_provider("cpu", Precision.FP32) is mesh


def test_a_file_for_gpus_is_no_half_precision(mesh: ResolvedModel) -> None:
    with pytest.raises(BackendUnavailableError, match="no fp16 version of face-mesh"):
        mesh.for_provider("cuda", Precision.FP16)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"gpu_sha256": "0" * 64}, "SHA-256"), ({"gpu_bytes": 1}, "bytes, expected 1")],
)
def test_the_file_for_gpus_is_checked(
    mesh: ResolvedModel, change: dict[str, Any], words: str
) -> None:
    damaged = replace(mesh, spec=replace(mesh.spec, **change))
    assert damaged.for_provider("cpu", Precision.FP32) is damaged
    with pytest.raises(ModelIntegrityError, match=words):
        damaged.for_provider("cuda", Precision.FP32)


@pytest.mark.parametrize("backend", ["cpu", "cuda", "tensorrt"])
def test_fp32_is_the_file_itself(model: ResolvedModel, backend: str) -> None:
    assert model.for_provider(backend, Precision.FP32) is model


def test_tensorrt_makes_its_own_half_precision(model: ResolvedModel) -> None:
    assert model.for_provider("tensorrt", Precision.FP16) is model


@pytest.mark.parametrize("name", MODELS)
def test_cuda_has_a_file_of_its_own(name: str) -> None:
    model = resolve(name)
    half = model.for_provider("cuda", Precision.FP16)
    assert half.path.name == model.spec.fp16_file
    assert half.path.stat().st_size == model.spec.fp16_bytes
    assert half.sha256 == model.spec.fp16_sha256 != model.sha256
    assert half.spec is model.spec


def test_the_file_is_checked(model: ResolvedModel) -> None:
    damaged = replace(model, spec=replace(model.spec, fp16_sha256="0" * 64))
    with pytest.raises(ModelIntegrityError, match="SHA-256"):
        damaged.for_provider("cuda", Precision.FP16)


def test_a_model_without_one(model: ResolvedModel) -> None:
    own = replace(model, spec=replace(model.spec, name="mine", fp16_file=None))
    with pytest.raises(BackendUnavailableError, match="no fp16 version of mine; TensorRT makes"):
        own.for_provider("cuda", Precision.FP16)
    assert own.for_provider("tensorrt", Precision.FP16) is own


def test_the_cpu_runs_fp32(model: ResolvedModel) -> None:
    with pytest.raises(BackendUnavailableError, match="--precision fp16 needs GPU inference"):
        model.for_provider("cpu", Precision.FP16)
