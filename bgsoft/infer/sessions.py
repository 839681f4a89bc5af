"""ONNX Runtime sessions on an NVIDIA GPU, which run where they were asked to or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from bgsoft.errors import BackendUnavailableError
from bgsoft.infer.engines import engine_key, with_engines
from bgsoft.infer.providers import (
    PROVIDERS,
    loader_problem,
    missing_provider,
    preload_libraries,
    tensorrt_version,
)

__all__ = ["open_session"]


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

    return with_engines(key, load, tell)


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
