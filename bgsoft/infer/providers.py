"""Which of ONNX Runtime's GPU execution providers can run here, and with which options."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bgsoft.config import Precision

__all__ = [
    "PROVIDERS",
    "TENSORRT_LIBRARY",
    "engine_cache_options",
    "engine_key",
    "missing_provider",
    "preload_libraries",
    "provider_options",
    "tensorrt_version",
]

PROVIDERS = {"tensorrt": "TensorrtExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Backend name → ONNX Runtime's name."""

TENSORRT_LIBRARY = "libnvinfer.so.10"
_MIN_BATCH, _OPT_BATCH, _MAX_BATCH = 1, 4, 8
"""Batch sizes that a TensorRT engine is built for."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a provider cannot run."""

    reason: str
    fix: str | None = None


@functools.cache
def missing_provider(backend: str) -> Missing | None:
    """Why a GPU provider cannot run on this machine, or None where nothing speaks against it.

    Args:
        backend: ``tensorrt`` or ``cuda``.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        return Missing("ONNX Runtime is missing", "pip install 'bgsoft[gpu]'")
    if PROVIDERS[backend] not in ort.get_available_providers():
        return Missing(
            f"this ONNX Runtime {ort.__version__} is built without it",
            "pip uninstall onnxruntime; pip install 'bgsoft[gpu]'",
        )
    preload_libraries()
    if backend == "tensorrt" and not _loads(TENSORRT_LIBRARY):
        return Missing(f"{TENSORRT_LIBRARY} not found", "pip install 'bgsoft[tensorrt]'")
    return None


@functools.cache
def preload_libraries() -> None:
    """Load CUDA's and cuDNN's libraries from NVIDIA's Python packages, where they are installed.

    ONNX Runtime's provider library is linked against them and does not search there by itself.
    """
    import contextlib
    import io

    import onnxruntime as ort

    if hasattr(ort, "preload_dlls"):
        # It prints what it did not find; whether that matters shows when a session is made.
        with contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return _load_from_package(library)
    return True


def _load_from_package(library: str) -> bool:
    """Load a TensorRT library out of the ``tensorrt-libs`` package."""
    import importlib.util

    spec = importlib.util.find_spec("tensorrt_libs")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        try:
            ctypes.CDLL(str(Path(folder) / library), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return True
    return False


def provider_options(
    backend: str,
    *,
    gpu: int,
    stream: int,
    shapes: Mapping[str, tuple[int, ...]],
    precision: Precision,
    graphs: bool = True,
) -> dict[str, str]:
    """The options of one provider, as ONNX Runtime's documentation of each provider names them.

    Args:
        backend: ``tensorrt`` or ``cuda``.
        gpu: CUDA device number.
        stream: Handle of the stream that all work is put on.
        shapes: Input shapes by name, the batch first.
        precision: fp16 lets TensorRT use half precision; CUDA runs what the file holds.
        graphs: Replay the network as a CUDA graph. While one is captured, no other thread may use
            the device.
    """
    options = {"device_id": str(gpu), "user_compute_stream": str(stream)}
    if backend == "cuda":
        return options | {
            "enable_cuda_graph": str(int(graphs)),
            # EXHAUSTIVE makes a run of 8 a sixth faster (0.80 against 0.95 ms on an H100), but
            # the first frame waits two seconds for it.
            "cudnn_conv_algo_search": "HEURISTIC",
            "arena_extend_strategy": "kSameAsRequested",
            # Full float32, so that masks agree with the CPU's.
            "use_tf32": "0",
        }
    options |= {
        "trt_fp16_enable": str(int(precision is Precision.FP16)),
        "trt_cuda_graph_enable": str(int(graphs)),
        "trt_builder_optimization_level": "3",
    }
    for name, batch in (("min", _MIN_BATCH), ("opt", _OPT_BATCH), ("max", _MAX_BATCH)):
        options[f"trt_profile_{name}_shapes"] = ",".join(
            f"{tensor}:{'x'.join(map(str, (batch, *shape[1:])))}"
            for tensor, shape in shapes.items()
        )
    return options


def engine_cache_options(folder: Path) -> dict[str, str]:
    """TensorRT's further options, where engines are kept.

    Args:
        folder: For the engines of one :func:`engine_key`, and for the timing cache.
    """
    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(folder),
    }


def tensorrt_version() -> str:
    """Version of the TensorRT library, e.g. ``10.9.0``; only where it has been found."""
    library: Any = ctypes.CDLL(TENSORRT_LIBRARY)
    number = library.getInferLibVersion()  # 10 and later: major · 10000 + minor · 100 + patch
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def engine_key(
    *,
    model_sha256: str,
    options: Mapping[str, str],
    versions: Mapping[str, str],
    gpu_name: str,
    compute_capability: str,
) -> str:
    """Name of the folder that holds the engines for exactly this combination.

    Args:
        model_sha256: Of the model file.
        options: The provider's options; stream and device number don't count.
        versions: Version by name of every library that has a hand in an engine, and of no other.
        gpu_name: As the driver calls it.
        compute_capability: e.g. ``90``.

    Returns:
        32 hexadecimal digits.
    """
    volatile = {"user_compute_stream", "device_id"}
    kept = {k: v for k, v in options.items() if k not in volatile}
    parts: list[Any] = [model_sha256, kept, dict(versions), gpu_name, compute_capability]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
