"""Which file of a model a provider loads, for which precision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bgsoft.errors import BackendUnavailableError, ModelIntegrityError
from bgsoft.models.catalog import ModelFile, ResolvedModel, resolve
from bgsoft.settings.config import Precision

FP32, FP16 = Precision.FP32, Precision.FP16


def model(name: str) -> ResolvedModel:
    return resolve(name, ("single-shot", "face-detector", "face-landmarks"))


@pytest.mark.parametrize(
    ("name", "backend", "precision", "kind"),
    [
        ("selfie-general", "cpu", FP32, None),
        ("selfie-general", "cuda", FP32, "cuda"),
        ("selfie-general", "tensorrt", FP32, None),
        ("selfie-general", "tensorrt", FP16, None),  # of which it makes half precision
        ("selfie-general", "cuda", FP16, "fp16"),
        ("selfie-landscape", "cuda", FP16, "fp16"),
        ("yunet", "cpu", FP32, None),
        ("yunet", "cuda", FP32, "gpu"),
        ("yunet", "tensorrt", FP32, "gpu"),
        ("face-mesh", "cpu", FP32, None),
        ("face-mesh", "cuda", FP32, "gpu"),
        ("face-mesh", "tensorrt", FP32, "gpu"),
        ("face-mesh", "tensorrt", FP16, "gpu"),
    ],
)
def test_each_provider_has_its_file(
    name: str, backend: str, precision: Precision, kind: str | None
) -> None:
    asked = model(name)
    chosen = asked.for_provider(backend, precision)
    if kind is None:
        assert chosen is asked
        return
    further: ModelFile = getattr(asked.spec, kind)
    assert chosen.spec is asked.spec
    assert chosen.path.name == further.name != asked.path.name
    assert chosen.path.stat().st_size == further.bytes
    assert chosen.sha256 == further.sha256 != asked.sha256


@pytest.mark.parametrize("name", ["selfie-general", "face-mesh"])
def test_what_is_not_replayed_has_no_operators_of_the_provider(name: str) -> None:
    asked = model(name)
    assert asked.for_provider("cuda", FP32, replays=False) == asked.for_provider("tensorrt", FP32)


@pytest.mark.parametrize(
    ("change", "words"), [({"sha256": "0" * 64}, "SHA-256"), ({"bytes": 1}, "bytes, expected 1")]
)
@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("face-mesh", "gpu", FP32),
        ("selfie-general", "fp16", FP16),
        ("selfie-general", "cuda", FP32),
    ],
)
def test_further_files_are_checked(
    name: str, kind: str, precision: Precision, change: dict[str, object], words: str
) -> None:
    asked = model(name)
    wrong = getattr(asked.spec, kind)._replace(**change)
    damaged = asked._replace(spec=replace(asked.spec, **{kind: wrong}))
    assert damaged.for_provider("cpu", FP32) is damaged
    with pytest.raises(ModelIntegrityError, match=words):
        damaged.for_provider("cuda", precision)


@pytest.mark.parametrize(
    ("name", "backend", "words"),
    [
        ("selfie-general", "cpu", "--precision fp16: the CPU runs only fp32"),
        ("face-mesh", "cuda", "cannot use fp16 with face-mesh: .*TensorRT, which makes"),
    ],
)
def test_a_precision_that_is_not_there(name: str, backend: str, words: str) -> None:
    with pytest.raises(BackendUnavailableError, match=words):
        model(name).for_provider(backend, FP16)
