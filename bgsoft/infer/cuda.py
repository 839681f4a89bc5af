"""ONNX Runtime on an NVIDIA GPU, through TensorRT or CUDA, on the pipeline's own stream.

Inputs and outputs are CuPy arrays at fixed addresses, so that the whole network replays as one
CUDA graph; the host never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import onnxruntime as ort

from bgsoft.config import Precision
from bgsoft.cuda.device import CudaDevice
from bgsoft.errors import BackendUnavailableError, InferenceError, ModelError
from bgsoft.infer.providers import (
    PROVIDERS,
    engine_cache_options,
    engine_key,
    missing_provider,
    preload_libraries,
    provider_options,
    tensorrt_version,
)
from bgsoft.models.cache import cache_folder, locked

__all__ = ["GpuNetwork"]

_DTYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}


class GpuNetwork:
    """One model on one GPU provider.

    Args:
        path: ONNX file.
        shapes: Shape of every input, by name, with nothing left dynamic.
        backend: ``tensorrt`` or ``cuda``.
        device: The GPU.
        stream: CuPy stream that every run is put on.
        precision: fp16 lets TensorRT use half precision.
        sha256: Of the file, for the engine cache.
        on_build: Told, in words, before an engine is built, which takes about a minute.
        graphs: Replay as a CUDA graph. ONNX Runtime keeps one graph a thread and captures it in the
            first :meth:`run` there, when no other thread may use the device.

    Raises:
        BackendUnavailableError: The provider does not run here; the message is the reason.
        ModelError: The file is no model that ONNX Runtime can load.
    """

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        backend: str,
        device: CudaDevice,
        stream: Any,
        precision: Precision = Precision.FP32,
        sha256: str = "",
        on_build: Callable[[str], None] | None = None,
        graphs: bool = True,
    ) -> None:
        missing = missing_provider(backend)
        if missing is not None:
            raise BackendUnavailableError(f"{backend}: {missing.reason}", stage="infer")
        preload_libraries()
        self.provider = PROVIDERS[backend]
        self.device = device.label
        self._stream = stream
        self._graphs = graphs
        # Without it, ONNX Runtime warns of plug-ins that nobody asked for.
        ort.set_default_logger_severity(4)
        self._session: Any = self._load(
            path, shapes, backend, device, precision, sha256, on_build or (lambda _text: None)
        )
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self._options = ort.RunOptions()
        # The pipeline's stream orders everything; ONNX Runtime need not wait for the device.
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        # Its default; but where it is not set, each run throws and catches for a tenth of a ms.
        self._options.add_run_config_entry("gpu_graph_id", "0")
        self._binding = self._session.io_binding()
        with device.use(stream):
            self._bind_inputs(path, shapes, device)
            self._bind_outputs(path, shapes, device)

    def _load(
        self,
        path: Path,
        shapes: Mapping[str, tuple[int, ...]],
        backend: str,
        device: CudaDevice,
        precision: Precision,
        sha256: str,
        on_build: Callable[[str], None],
    ) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        settings = provider_options(
            backend,
            gpu=device.number,
            stream=self._stream.ptr,
            shapes=shapes,
            precision=precision,
            graphs=self._graphs,
        )
        if backend != "tensorrt":
            return self._session_of(path, options, settings)
        key = engine_key(
            model_sha256=sha256,
            options=settings,
            versions={"onnxruntime": ort.__version__, "tensorrt": tensorrt_version()},
            gpu_name=device.name,
            compute_capability=cupy.cuda.Device(device.number).compute_capability,
        )
        folder = cache_folder() / "engines" / key
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob("*.engine")):
            on_build("building the TensorRT engine, once, about a minute")
        with locked(folder / "build.lock"):
            return self._session_of(path, options, settings | engine_cache_options(folder))

    def _session_of(self, path: Path, options: Any, settings: dict[str, str]) -> Any:
        providers: list[Any] = [(self.provider, settings)]
        if self.provider == PROVIDERS["tensorrt"]:
            # What TensorRT cannot take runs on CUDA, on the same stream.
            shared = {k: settings[k] for k in ("device_id", "user_compute_stream")}
            providers.append((PROVIDERS["cuda"], shared))
        try:
            session = ort.InferenceSession(str(path), sess_options=options, providers=providers)
        except Exception as exc:  # ONNX Runtime raises types that it does not export
            raise BackendUnavailableError(
                f"{self.provider} does not load {path.name}: {exc}", stage="infer"
            ) from exc
        # ONNX Runtime drops a provider that does not start without raising anything.
        if self.provider not in session.get_providers():
            raise BackendUnavailableError(
                f"{self.provider} does not start: its libraries do not load", stage="infer"
            )
        return session

    def _bind_inputs(
        self, path: Path, shapes: Mapping[str, tuple[int, ...]], device: CudaDevice
    ) -> None:
        known = {node.name: node for node in self._session.get_inputs()}
        if known.keys() != shapes.keys():
            raise ModelError(
                f"{path.name} takes {', '.join(known)}, not {', '.join(shapes)}", path=path
            )
        for name, shape in shapes.items():
            dtype = _DTYPES[known[name].type]
            array = cupy.zeros(shape, dtype)
            self.inputs[name] = array
            self._binding.bind_input(name, "cuda", device.number, dtype, shape, array.data.ptr)

    def _bind_outputs(
        self, path: Path, shapes: Mapping[str, tuple[int, ...]], device: CudaDevice
    ) -> None:
        batch = next(iter(shapes.values()))[0]
        for node in self._session.get_outputs():
            shape = tuple(
                axis if isinstance(axis, int) else batch if position == 0 else None
                for position, axis in enumerate(node.shape)
            )
            if None in shape or node.type not in _DTYPES:
                raise ModelError(
                    f"{path.name}: output {node.name} is {node.type} of {node.shape}, which "
                    "cannot be bound",
                    path=path,
                )
            dtype = _DTYPES[node.type]
            array = cupy.zeros(shape, dtype)
            self.outputs[node.name] = array
            self._binding.bind_output(
                node.name, "cuda", device.number, dtype, shape, array.data.ptr
            )

    def run(self) -> None:
        try:
            self._session.run_with_iobinding(self._binding, self._options)
        except Exception as exc:
            raise InferenceError(f"the model failed: {exc}", stage="segment") from exc

    def close(self) -> None:
        self._binding = None
        self._session = None
