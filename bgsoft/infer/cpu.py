"""ONNX Runtime with arrays on the host: on the CPU, or on several providers at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import InferenceError, ModelError
from bgsoft.infer.base import Network, Shapes
from bgsoft.infer.providers import ORT_ERRORS, ort_errors_as, require_runtime
from bgsoft.models.onnx_file import bake, free_axes

require_runtime()

import onnxruntime as ort  # noqa: E402 - a damaged installation imports as an empty module

TENSOR_DTYPES: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
"""ONNX Runtime's name of a type → NumPy's; other types are not supported."""

RUNNING = ort_errors_as(InferenceError, "cannot run the model", stage="segment")
"""Translates errors of each run."""


@cache
def _share_arena() -> None:
    """Let sessions share one memory arena: 6 MiB less at 1080p than one for each."""
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    as_asked = ort.OrtArenaCfg({"max_mem": 0, "arena_extend_strategy": 1})
    with suppress(*ORT_ERRORS):  # another arena is registered, which serves as well
        ort.create_and_register_allocator(memory, as_asked)


class HostNetwork(Network):
    """An ``onnxruntime.InferenceSession`` with fixed NumPy arrays, on any provider.

    ``shapes`` are those of all inputs, without free axes; ``outputs`` the names of the wanted
    outputs, empty: all. Raises ModelError where the model has other inputs, or does not run.
    """

    def __init__(
        self, session: Any, path: Path, shapes: Shapes, outputs: Sequence[str] = ()
    ) -> None:
        self._session = session
        self.inputs: dict[str, NDArray[Any]] = {}
        self.outputs: dict[str, NDArray[Any]] = {}
        known = {node.name: node for node in session.get_inputs()}
        for name, shape in shapes.items():
            if name not in known:
                raise ModelError(
                    f"cannot use {path.name}: it has no input {name!r}, only {', '.join(known)}",
                    path=path,
                )
            self.inputs[name] = np.zeros(shape, _dtype(known[name].type, path))
        missing = known.keys() - shapes.keys()
        if missing:
            raise ModelError(
                f"cannot use {path.name}: it also needs input {min(missing)!r}", path=path
            )
        self._allocate_outputs(path, wanted_outputs(session, path, outputs))

    def _allocate_outputs(self, path: Path, nodes: Sequence[Any]) -> None:
        """Allocate the outputs; free shapes are found by a run."""
        if all(isinstance(axis, int) for node in nodes for axis in node.shape):
            for node in nodes:
                self.outputs[node.name] = np.zeros(node.shape, _dtype(node.type, path))
            return
        names = [node.name for node in nodes]
        with ort_errors_as(ModelError, f"cannot run {path.name}", path=path):
            first = self._session.run(names, dict(self.inputs))
        for name, array in zip(names, first, strict=True):
            self.outputs[name] = np.ascontiguousarray(array)

    def run(self) -> None:
        with RUNNING:
            made = self._session.run(list(self.outputs), dict(self.inputs))
        for array, value in zip(self.outputs.values(), made, strict=True):
            array[...] = value

    def close(self) -> None:
        self._session = None


class CpuNetwork(HostNetwork):
    """A model on the CPU provider, with bound arrays, so that nothing is copied.

    Args:
        path: ONNX file.
        shapes: As for :class:`HostNetwork`.
        constants: Further inputs, of one number that never changes.
        outputs: As for :class:`HostNetwork`.
        threads: Threads of one run; the pipeline keeps all cores busy already.

    Raises:
        ModelError: ONNX Runtime cannot load the file, or an input is unknown.
    """

    provider = "CPUExecutionProvider"

    def __init__(
        self,
        path: Path,
        shapes: Shapes,
        constants: Mapping[str, float] | None = None,
        *,
        outputs: Sequence[str] = (),
        threads: int = 1,
    ) -> None:
        session = _session(path, shapes, constants, threads)
        super().__init__(session, path, shapes, outputs)
        self._bind()

    def sharing(self) -> CpuNetwork:
        """Return a network of the same session with its own buffers; both may run at once."""
        other = copy.copy(self)
        other.inputs = {name: np.zeros_like(array) for name, array in self.inputs.items()}
        other.outputs = {name: np.zeros_like(array) for name, array in self.outputs.items()}
        other._bind()
        return other

    def _bind(self) -> None:
        # On the CPU an OrtValue shares the memory of its NumPy array.
        self._binding: Any = self._session.io_binding()
        for name, array in self.inputs.items():
            self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for name, array in self.outputs.items():
            self._binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))

    def run(self) -> None:
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception:
            with RUNNING:
                raise

    def close(self) -> None:
        self._binding = None
        super().close()


def _session(
    path: Path, shapes: Shapes, constants: Mapping[str, float] | None, threads: int
) -> Any:
    """Load a model on the CPU provider; the arguments are those of :class:`CpuNetwork`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning workers would take cores from the decoder and the encoder.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads == 1:  # large models have more threads, and free their memory after a run
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 4
    source = bake(path, shapes, constants) if constants else str(path)
    if not constants:
        # With known sizes ONNX Runtime computes in blocks, in a tenth of the time.
        for name, size in free_axes(path, shapes).items():
            options.add_free_dimension_override_by_name(name, size)
    with ort_errors_as(ModelError, f"cannot load model {path.name}", path=path):
        # Its Python would print the error, and try again.
        return ort.InferenceSession(
            source, sess_options=options, providers=[CpuNetwork.provider], enable_fallback=0
        )


def wanted_outputs(session: Any, path: Path, names: Sequence[str]) -> list[Any]:
    """Return ONNX Runtime's descriptions of outputs; raises ModelError for an unknown name."""
    nodes = {node.name: node for node in session.get_outputs()}
    missing = [name for name in names if name not in nodes]
    if missing:
        raise ModelError(
            f"cannot use {path.name}: it has no output {missing[0]!r}, only {', '.join(nodes)}",
            path=path,
        )
    return [nodes[name] for name in names or nodes]


def _dtype(onnx_type: str, path: Path) -> type[np.generic]:
    if onnx_type not in TENSOR_DTYPES:
        raise ModelError(
            f"cannot use {path.name}: its tensor type {onnx_type} is unsupported", path=path
        )
    return TENSOR_DTYPES[onnx_type]
