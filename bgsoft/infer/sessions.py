"""ONNX Runtime sessions on an NVIDIA GPU, which run where they were asked to or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from bgsoft.cuda.driver import driver_problem
from bgsoft.errors import BackendUnavailableError
from bgsoft.infer.engines import engine_key, with_engines
from bgsoft.infer.providers import (
    PROVIDERS,
    loader_problem,
    missing_provider,
    preload_libraries,
    tensorrt_version,
)
from bgsoft.startup import span

__all__ = ["open_provider", "open_session"]

_TINY_MODEL = (
    b'\x08\x08:3\n\x0c\n\x01x\x12\x01y"\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08'
    b"\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)
"""An ONNX file: y = Relu(x), both float32 of shape (1,), opset 17."""

_building = threading.Lock()
"""One engine's timings would disturb another's."""


def open_session(
    path: Path,
    backend: str,
    options: Mapping[str, str],
    *,
    sha256: str,
    gpu_name: str,
    compute_capability: str,
    tell: Callable[[str], None],
    source: bytes | None = None,
) -> Any:
    """Load a model on a GPU provider.

    Args:
        path: ONNX file.
        backend: ``tensorrt`` or ``cuda``.
        options: From :func:`bgsoft.infer.providers.provider_options`.
        sha256: Of the file.
        gpu_name: As the driver calls it.
        compute_capability: e.g. ``90``.
        tell: Told, in words, before a TensorRT engine is built, and of faults of kept ones.
        source: What is loaded instead of the file, if it was changed.

    Returns:
        An ``onnxruntime.InferenceSession``.

    Raises:
        BackendUnavailableError: The provider does not run here; the message is the reason, in its
            own words.
    """
    missing = missing_provider(backend)
    if missing is not None:
        raise BackendUnavailableError(f"{backend}: {missing.reason}", stage="infer")
    preload_libraries()
    # Without it, ONNX Runtime warns of plug-ins that nobody asked for.
    ort.set_default_logger_severity(4)
    model: str | bytes = str(path) if source is None else source
    if backend != "tensorrt":
        return _session(path, model, PROVIDERS[backend], [(PROVIDERS[backend], dict(options))])
    key = engine_key(
        model_sha256=sha256,
        options=options,
        versions={"onnxruntime": ort.__version__, "tensorrt": tensorrt_version()},
        gpu_name=gpu_name,
        compute_capability=compute_capability,
    )
    # What TensorRT cannot take runs on CUDA, on the same stream.
    shared = {name: options[name] for name in ("device_id", "user_compute_stream")}

    def load(cache: dict[str, str]) -> Any:
        wanted = (PROVIDERS["tensorrt"], {**options, **cache})
        return _session(path, model, wanted[0], [wanted, (PROVIDERS["cuda"], shared)])

    with _building, span(f"TensorRT engine of {path.name}"):
        return with_engines(key, load, tell)


def open_provider(gpu: int) -> None:
    """Have ONNX Runtime load what all its sessions on CUDA share, before the first is wanted.

    That is its provider's library, cuBLAS and cuDNN; none needs the interpreter, which can import
    other things meanwhile. Where it cannot be done nothing is told: the first session will.

    Args:
        gpu: CUDA device number.
    """
    if driver_problem(gpu) is not None or missing_provider("cuda") is not None:
        return
    with suppress(Exception):  # ONNX Runtime raises types that it does not export
        ort.set_default_logger_severity(4)
        wanted = [(PROVIDERS["cuda"], {"device_id": str(gpu)})]
        session = ort.InferenceSession(_TINY_MODEL, providers=wanted, enable_fallback=0)
        session.run(None, {"x": np.zeros(1, np.float32)})


def _session(path: Path, model: str | bytes, provider: str, providers: list[Any]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        # Its Python would print an error that hides the reason, and take the next provider.
        session = ort.InferenceSession(
            model, sess_options=options, providers=providers, enable_fallback=0
        )
    except Exception as exc:  # ONNX Runtime raises types that it does not export
        reason = loader_problem(provider) or " ".join(str(exc).split())
        raise BackendUnavailableError(
            f"{provider} does not load {path.name}: {reason}", stage="infer"
        ) from exc
    # ONNX Runtime drops a provider that does not start without raising anything.
    if provider not in session.get_providers():
        reason = loader_problem(provider) or "ONNX Runtime does not say why"
        raise BackendUnavailableError(f"{provider} does not start: {reason}", stage="infer")
    return session
