from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bgsoft.config import Precision
from bgsoft.infer import providers
from bgsoft.infer.providers import engine_cache_options, engine_key, provider_options

SHAPES = {"image": (8, 3, 256, 256)}


def options(backend: str, **changes: Any) -> dict[str, str]:
    values: dict[str, Any] = {
        "gpu": 0,
        "stream": 1234,
        "shapes": SHAPES,
        "precision": Precision.FP32,
        **changes,
    }
    return provider_options(backend, **values)


def test_cuda_runs_on_the_given_stream_and_device() -> None:
    given = options("cuda", gpu=2)
    assert (given["device_id"], given["user_compute_stream"]) == ("2", "1234")
    assert given["enable_cuda_graph"] == "1"
    assert options("cuda", graphs=False)["enable_cuda_graph"] == "0"


def test_tensorrt_has_profiles_for_batches_from_one_to_eight() -> None:
    given = options("tensorrt")
    assert given["trt_profile_min_shapes"] == "image:1x3x256x256"
    assert given["trt_profile_opt_shapes"] == "image:4x3x256x256"
    assert given["trt_profile_max_shapes"] == "image:8x3x256x256"
    assert given["trt_fp16_enable"] == "0"
    assert options("tensorrt", precision=Precision.FP16)["trt_fp16_enable"] == "1"


def test_engines_and_timings_are_kept_in_one_folder(tmp_path: Path) -> None:
    given = engine_cache_options(tmp_path)
    assert given["trt_engine_cache_path"] == given["trt_timing_cache_path"] == str(tmp_path)
    assert given["trt_engine_cache_enable"] == given["trt_timing_cache_enable"] == "1"


def key(**changes: Any) -> str:
    values: dict[str, Any] = {
        "model_sha256": "ab",
        "options": options("tensorrt"),
        "versions": {"onnxruntime": "1.26.0", "tensorrt": "10.9.0"},
        "gpu_name": "GPU",
        "compute_capability": "90",
        **changes,
    }
    return engine_key(**values)


@pytest.mark.parametrize(
    "change",
    [
        {"model_sha256": "cd"},
        {"options": options("tensorrt", precision=Precision.FP16)},
        {"options": options("tensorrt", shapes={"image": (8, 3, 144, 256)})},
        {"versions": {"onnxruntime": "1.26.0", "tensorrt": "10.10.0"}},
        {"gpu_name": "other GPU"},
        {"compute_capability": "89"},
    ],
)
def test_what_makes_another_engine_makes_another_key(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_stream_and_device_number_make_no_other_engine() -> None:
    assert key(options=options("tensorrt", stream=9, gpu=1)) == key()


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
