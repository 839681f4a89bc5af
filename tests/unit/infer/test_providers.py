from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime as ort
import pytest

from bgsoft.infer import providers, sessions
from bgsoft.infer.base import GpuModel
from bgsoft.infer.providers import provider_options
from bgsoft.infer.sessions import engine_key, open_provider
from bgsoft.settings.config import Precision

SHAPES = {"image": (8, 3, 256, 256)}


def gpu_model(backend: str, *, number: int = 0, **changes: Any) -> GpuModel:
    device: Any = SimpleNamespace(number=number, name="GPU", compute_capability="90")
    values: dict[str, Any] = {"shapes": SHAPES, "device": device, "sha256": "ab", **changes}
    return GpuModel(path=Path("model.onnx"), backend=backend, **values)


def options(
    backend: str, *, stream: int = 1234, graphs: bool = True, **changes: Any
) -> dict[str, str]:
    return provider_options(gpu_model(backend, **changes), stream, graphs=graphs)


def test_cuda_runs_on_the_given_stream_and_device() -> None:
    given = options("cuda", number=2)
    assert (given["device_id"], given["user_compute_stream"]) == ("2", "1234")
    assert given["enable_cuda_graph"] == "1"
    assert options("cuda", graphs=False)["enable_cuda_graph"] == "0"


def test_what_opens_the_provider_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a provider reports no error, so the model runs on the CPU here."""
    ran = []

    class Session(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, model: bytes, options: ort.SessionOptions, wanted: Any, **_: Any):
            assert wanted[0][1]["device_id"] == "7"
            super().__init__(model, options, providers=["CPUExecutionProvider"])

        def run(self, *args: Any) -> Any:
            ran.extend(super().run(*args))

    monkeypatch.setattr(sessions, "driver_problem", lambda _gpu: None)
    monkeypatch.setattr(sessions, "missing_provider", lambda _backend: None)
    monkeypatch.setattr(ort, "InferenceSession", Session)
    open_provider(7)
    assert ran[0].ndim == 4


def test_tensorrt_takes_words_for_switches() -> None:
    given = options("tensorrt", graphs=False)
    assert (given["trt_fp16_enable"], given["trt_cuda_graph_enable"]) == ("False", "False")
    given = options("tensorrt", precision=Precision.FP16)
    assert (given["trt_fp16_enable"], given["trt_cuda_graph_enable"]) == ("True", "True")


@pytest.mark.parametrize(
    ("batch", "largest_batch", "most"), [(8, None, 8), (16, None, 16), (4, 8, 8)]
)
def test_tensorrt_has_a_profile_for_every_batch(
    batch: int, largest_batch: int | None, most: int
) -> None:
    given = options("tensorrt", shapes={"image": (batch, 3, 256, 256)}, largest_batch=largest_batch)
    assert given["trt_profile_min_shapes"] == "image:1x3x256x256"
    assert given["trt_profile_opt_shapes"] == f"image:{most}x3x256x256"
    assert given["trt_profile_max_shapes"] == f"image:{most}x3x256x256"


VERSIONS = {"onnxruntime": "1.26.0", "tensorrt": "10.9.0"}


def key(**changes: Any) -> str:
    return engine_key(gpu_model("tensorrt", **changes), options("tensorrt", **changes), VERSIONS)


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "cd"},
        {"precision": Precision.FP16},
        {"shapes": {"image": (8, 3, 144, 256)}},
        {"shapes": {"image": (16, 3, 256, 256)}},
        {"device": SimpleNamespace(number=0, name="other GPU", compute_capability="90")},
        {"device": SimpleNamespace(number=0, name="GPU", compute_capability="89")},
    ],
)
def test_what_makes_another_engine_makes_another_key(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_an_engine_belongs_to_versions() -> None:
    newer = {**VERSIONS, "tensorrt": "10.10.0"}
    assert engine_key(gpu_model("tensorrt"), options("tensorrt"), newer) != key()


@pytest.mark.parametrize("change", [{"stream": 9}, {"number": 1}, {"graphs": False}])
def test_where_and_how_it_runs_makes_no_other_engine(change: dict[str, Any]) -> None:
    assert engine_key(gpu_model("tensorrt"), options("tensorrt", **change), VERSIONS) == key()


def test_a_smaller_batch_continues_with_the_engine_of_a_larger_one() -> None:
    assert key(shapes={"image": (4, 3, 256, 256)}, largest_batch=8) == key()


def test_a_runtime_without_a_provider_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime as ort

    providers.missing_provider.cache_clear()
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    try:
        missing = providers.missing_provider("cuda")
    finally:
        providers.missing_provider.cache_clear()
    assert missing is not None
    assert "is built without it" in missing.reason
