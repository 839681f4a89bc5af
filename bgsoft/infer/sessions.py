"""ONNX Runtime sessions on an NVIDIA GPU, which run on the requested provider or fail."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnxruntime as ort

from bgsoft.cache import locked
from bgsoft.cuda.driver import driver_problem
from bgsoft.errors import BackendUnavailableError, MixedModelError, translated
from bgsoft.infer.base import GpuModel
from bgsoft.infer.providers import (
    CUDA_OPTIONS,
    ORT_ERRORS,
    PROVIDERS,
    loader_problem,
    missing_provider,
    preload_libraries,
    provider_options,
    tensorrt_version,
)
from bgsoft.models.cache import cache_folder
from bgsoft.startup import span

T = TypeVar("T")

_CONVOLUTION = (
    b'\x08\x08:5\n\x0f\n\x01x\n\x01w\x12\x01y"\x04Conv\x12\x01gZ\t\n\x01x\x12\x04\n\x02\x08\x01'
    b"Z\t\n\x01w\x12\x04\n\x02\x08\x01b\t\n\x01y\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)
"""An ONNX file: y = Conv(x, w), float32 of any shapes, opset 17."""

_MAX_KINDS = 3
"""Number of operators named in a message about a backend that lacks them."""

_VOLATILE = frozenset({"user_compute_stream", "device_id", "trt_cuda_graph_enable"})
"""Options that do not affect an engine."""

RECORD_PLACEMENT = "session.record_ep_graph_assignment_info"
"""Option that records which provider runs which node; its cost is small."""

_building = threading.Lock()
"""Serialises builds of engines: concurrent builds would disturb each other's timings."""


def open_session(model: GpuModel, stream: int | None, *, graphs: bool = True) -> Any:
    """Load a model on a GPU provider.

    Stream and graphs are those of :func:`bgsoft.infer.providers.provider_options`.

    Raises:
        MixedModelError: A CUDA graph was requested, and other providers would have to run a part
            of the model.
        BackendUnavailableError: The provider does not run here; the message has its own reason.
    """
    backend = model.backend
    missing = missing_provider(backend)
    if missing is not None:
        raise BackendUnavailableError(f"{backend}: {missing.reason}", stage="infer")
    preload_libraries()
    # Otherwise ONNX Runtime warns about plug-ins that are not used.
    ort.set_default_logger_severity(4)
    options = provider_options(model, stream, graphs=graphs)
    alone = stream is not None
    if backend != "tensorrt":
        return _session(model, [(PROVIDERS[backend], options)], alone=alone)
    versions = {"onnxruntime": ort.__version__, "tensorrt": tensorrt_version()}
    key = engine_key(model, options, versions)
    # Nodes that TensorRT does not support run on CUDA, on the same stream.
    common = ("device_id", "user_compute_stream")
    shared = {name: options[name] for name in common if name in options}

    def load(cache: dict[str, str]) -> Any:
        wanted = (PROVIDERS["tensorrt"], {**options, **cache})
        return _session(model, [wanted, (PROVIDERS["cuda"], shared)], alone=alone)

    with _building, span(f"TensorRT engine of {model.path.name}"):
        return _with_engines(key, load, model.on_notice)


_opening = threading.Lock()


def open_provider(gpu: int) -> None:
    """Load ONNX Runtime's provider library, cuBLAS and cuDNN ahead of their use.

    This does not hold the interpreter's lock, so other modules can be imported meanwhile. The first
    convolution of a process takes cuDNN 0.2 s (H100). Failures are ignored: the first session will
    report them.
    """
    with _opening:
        _open_provider(gpu)


@functools.cache
def _open_provider(gpu: int) -> None:
    if driver_problem(gpu) is not None or missing_provider("cuda") is not None:
        return
    with suppress(Exception):  # ONNX Runtime raises types that it does not export
        ort.set_default_logger_severity(4)
        wanted = [(PROVIDERS["cuda"], {"device_id": str(gpu), **CUDA_OPTIONS})]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(_CONVOLUTION, options, wanted, enable_fallback=0)
        shapes = {"x": (8, 16, 32, 32), "w": (16, 16, 1, 1)}  # typical shapes
        session.run(None, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})


def _session(model: GpuModel, providers: list[tuple[str, dict[str, str]]], *, alone: bool) -> Any:
    """Open a session; ``alone``: no node may run on the host."""
    provider = providers[0][0]
    options = ort.SessionOptions()
    if alone:
        # More threads would spin without work: eight starts in parallel took 3.4 s of processor
        # time each on 16 cores, and 7.4 s with a thread a core.
        options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry(RECORD_PLACEMENT, "1")

    def failed(exc: Exception) -> BackendUnavailableError:
        reason = loader_problem(provider) or " ".join(str(exc).split())
        # ONNX Runtime allows a graph only if one provider runs all nodes without copies to the
        # host; its message names "graph capture".
        kind = MixedModelError if "graph capture" in reason else BackendUnavailableError
        return kind(f"{provider} cannot load {model.path.name}: {reason}", stage="infer")

    with translated(*ORT_ERRORS, to=failed):
        # Its Python would print an error that hides the reason, and try the next provider.
        session = ort.InferenceSession(
            model.source or str(model.path),
            sess_options=options,
            providers=providers,
            enable_fallback=0,
        )
    # ONNX Runtime drops a provider that does not start without raising an error.
    if provider not in session.get_providers():
        reason = loader_problem(provider) or "ONNX Runtime gives no reason"
        raise BackendUnavailableError(f"cannot start {provider}: {reason}", stage="infer")
    return session


def describe_assignment(session: Any, backend: str) -> str:
    """Describe the part of a simplified model that other providers run."""
    subgraphs = session.get_provider_graph_assignment_info()
    nodes = [(part.ep_name, node.op_type) for part in subgraphs for node in part.get_nodes()]
    other = [(provider, kind) for provider, kind in nodes if provider != PROVIDERS[backend]]
    if not other:
        return "no node runs elsewhere, but the host decides its branches or loops"
    places = sorted({provider.removesuffix("ExecutionProvider") for provider, _ in other})
    kinds = Counter(kind for _, kind in other).most_common(_MAX_KINDS)
    what = ", ".join(kind for kind, _ in kinds)
    return f"{len(other)} of {len(nodes)} nodes run on {' and '.join(places)} ({what})"


def engine_key(model: GpuModel, options: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """Return the name of the engine folder for exactly this combination, 32 hex digits."""
    kept = {name: value for name, value in options.items() if name not in _VOLATILE}
    device = model.device
    parts = [model.sha256, kept, dict(versions), device.name, device.compute_capability]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _with_engines(
    key: str, load: Callable[[dict[str, str]], T], on_notice: Callable[[str], None]
) -> T:
    """Load a model with its cached engines, or build and cache them.

    Processes that need the same engines wait for each other. Engines appear in their folder once
    they are complete. Cached engines that do not load are deleted and built once more. Without a
    writable cache, engines serve one run.
    """
    folder = cache_folder() / "engines" / key
    building = folder.with_suffix(".building")

    def on_wait() -> None:
        if not folder.exists():
            on_notice("another process is building the TensorRT engine: waiting for it")

    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.with_suffix(".lock"), on_wait))
            if folder.exists():
                try:
                    return load(_options(folder))
                except MixedModelError:
                    raise  # the engines are not at fault
                except BackendUnavailableError as exc:
                    on_notice(
                        f"cannot load the cached TensorRT engine; building it again: {exc.message}"
                    )
                shutil.rmtree(folder)
            else:
                on_notice("building the TensorRT engine, once, about a minute")
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
        except OSError as exc:
            on_notice(
                f"cannot keep the TensorRT engine in {folder.parent}: {exc.strerror}; "
                "building it for this run alone, about a minute"
            )
            return load({})
        try:
            session = load(_options(building))
        except MixedModelError:
            _keep(building, folder)  # engines of parts of the model are still useful
            raise
        _keep(building, folder)
        return session


def _keep(building: Path, folder: Path) -> None:
    with suppress(OSError):
        building.rename(folder)


def _options(folder: Path) -> dict[str, str]:
    return {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": str(folder),
    }
