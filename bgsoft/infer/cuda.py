"""ONNX Runtime on an NVIDIA GPU, through TensorRT or CUDA, on the pipeline's own stream.

A model's input and mask are small (a few hundred kilobytes), so inference and compositing may run
on different devices at little cost: two wrappers copy them between host and device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import cupy
import numpy as np
import onnxruntime as ort

from bgsoft.cuda.device import CudaDevice, cuda_errors_as, pinned_array
from bgsoft.errors import InferenceError, ModelError
from bgsoft.infer.base import GpuModel, GpuRun, Network, Shapes, States, WrappedNetwork
from bgsoft.infer.cpu import RUNNING, TENSOR_DTYPES, HostNetwork, wanted_outputs
from bgsoft.infer.providers import PROVIDERS
from bgsoft.infer.sessions import describe_assignment, open_session
from bgsoft.startup import span


class GpuNetwork(Network):
    """A model that runs entirely on one GPU provider, with CuPy arrays at fixed addresses.

    It can be replayed as one CUDA graph, and the host never waits for it. No part may run
    elsewhere: a run returns before its results exist, and other providers would read too early.
    With ``graphs``, ONNX Runtime verifies that. A model that it rejects must not be loaded without.

    Args:
        model: Path, shapes and provider.
        run: Stream and graphs. ONNX Runtime keeps one graph for each thread and captures it in the
            first :meth:`run` there, when no other thread may use the device.
        output_shapes: Called where the file leaves shapes free beyond the batch.

    Raises:
        MixedModelError: Other providers would have to run a part of it.
        BackendUnavailableError: The provider does not run here; the message is the reason.
        InferenceError: It must run (:attr:`GpuModel.must_run`), and fails.
        ModelError: ONNX Runtime cannot load the file.
    """

    def __init__(
        self, model: GpuModel, run: GpuRun, *, output_shapes: Callable[[], Shapes] = dict
    ) -> None:
        self.provider = PROVIDERS[model.backend]
        stream = self._stream = run.stream  # kept alive: the session has only its address
        graphs = run.graphs
        self._session: Any = open_session(model, stream.ptr, graphs=graphs)
        if graphs and not run.replays and model.backend == "tensorrt":
            # The node assignment has been verified; this provider takes no stream by run option.
            self._session = open_session(model, stream.ptr, graphs=False)
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self._options = ort.RunOptions()
        # The pipeline's stream orders all work; ONNX Runtime need not wait for the device.
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        # Its default; but where it is not set, each run throws and catches, which takes 0.1 ms.
        self._options.add_run_config_entry("gpu_graph_id", "0" if run.replays else "-1")
        self._binding = self._session.io_binding()
        with model.device.use(stream):
            self._bind(model, output_shapes)
        if graphs and model.backend == "cuda":
            # A failure here will come again in run(), and be reported.
            with RUNNING if model.must_run else suppress(Exception):
                self._prepare()

    def _prepare(self) -> None:
        """Run once without a graph, so that cuDNN's plans are made while other networks load.

        Only the capture is left for the first :meth:`run`.
        """
        options = ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", "-1")  # no capture, no replay
        with span("first run without a graph"):
            self._session.run_with_iobinding(self._binding, options)

    def _bind(self, model: GpuModel, output_shapes: Callable[[], Shapes]) -> None:
        path, gpu = model.path, model.device.number
        known = {node.name: node for node in self._session.get_inputs()}
        if known.keys() != model.shapes.keys():
            raise ModelError(
                f"cannot use {path.name}: its inputs are {', '.join(known)}, not "
                f"{', '.join(model.shapes)}",
                path=path,
            )
        for name, shape in model.shapes.items():
            dtype = TENSOR_DTYPES[known[name].type]
            array = self.inputs[name] = cupy.zeros(shape, dtype)
            self._binding.bind_input(name, "cuda", gpu, dtype, shape, array.data.ptr)
        batch = next(iter(model.shapes.values()))[0]
        for node in wanted_outputs(self._session, path, model.outputs):
            made: tuple[int | None, ...] = tuple(
                axis if isinstance(axis, int) else batch if position == 0 else None
                for position, axis in enumerate(node.shape)
            )
            if None in made:
                made = output_shapes().get(node.name, made)
            if None in made or node.type not in TENSOR_DTYPES:
                raise ModelError(
                    f"cannot use {path.name}: output {node.name} is {node.type} of {node.shape}, "
                    "which cannot be bound",
                    path=path,
                )
            dtype = TENSOR_DTYPES[node.type]
            array = self.outputs[node.name] = cupy.zeros(made, dtype)
            self._binding.bind_output(node.name, "cuda", gpu, dtype, made, array.data.ptr)

    def run(self) -> None:
        with RUNNING:
            self._session.run_with_iobinding(self._binding, self._options)

    def close(self) -> None:
        self._binding = None
        self._session = None


class MixedNetwork(HostNetwork):
    """A model that several providers run, on ONNX Runtime's streams, synchronised with the host.

    On a stream of ours, or if a run returned early, outputs would be read too early: the process
    crashed, or masks were torn. Its arrays are on the host.

    Raises:
        BackendUnavailableError: The provider does not run here; the message is the reason.
        ModelError: ONNX Runtime cannot load the file.
    """

    def __init__(self, model: GpuModel) -> None:
        session = open_session(model, None)
        self.provider = PROVIDERS[model.backend]
        slow = describe_assignment(session, model.backend)
        self.mixed = f"{model.path.name} is slow on {model.backend}: {slow}"
        super().__init__(session, model.path, model.shapes, model.outputs)


def for_host(network: Network, device: CudaDevice, stream: Any) -> Network:
    """Wrap a network on the GPU so that its arrays are on the host."""
    on_host = all(isinstance(array, np.ndarray) for array in network.inputs.values())
    return network if on_host else _HostFedNetwork(network, device, stream)


def for_device(network: Network, device: CudaDevice, stream: Any) -> Network:
    """Wrap a network on the GPU so that its arrays are on the device."""
    on_host = any(isinstance(array, np.ndarray) for array in network.inputs.values())
    return _DeviceFedNetwork(network, device, stream) if on_host else network


class StreamOrder:
    """The :class:`bgsoft.infer.shared.Order` of work on CUDA streams, by events.

    Args:
        device, stream: Those of the network's thread; users work on their current streams.
    """

    def __init__(self, device: CudaDevice, stream: Any) -> None:
        self._device, self._stream = device, stream

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._device.use(self._stream):
            yield
            self._stream.synchronize()

    def mark(self) -> Any:
        event = cupy.cuda.Event(disable_timing=True)
        event.record()
        return event

    def after(self, mark: Any) -> None:
        cupy.cuda.get_current_stream().wait_event(mark)


class _HostFedNetwork(WrappedNetwork):
    """A network on the device with arrays on the host: :meth:`run` waits for its outputs."""

    def __init__(self, network: Network, device: CudaDevice, stream: Any) -> None:
        super().__init__(network)
        self._gpu = device
        self._stream = stream
        self.inputs = {name: pinned_array(a.shape, a.dtype) for name, a in network.inputs.items()}
        self.outputs = {name: pinned_array(a.shape, a.dtype) for name, a in network.outputs.items()}

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Attribute faults of the device to this network: the frames are on the host."""
        failed = cuda_errors_as(InferenceError, "cannot run the model on the GPU", stage="segment")
        with failed, self._gpu.use(self._stream):
            yield

    def run(self) -> None:
        with self._working():
            for name, host in self.inputs.items():
                self._network.inputs[name].set(host, stream=self._stream)
                self._gpu.copies.add_h2d(host.nbytes)
            self._network.run()
            for name, host in self.outputs.items():
                self._network.outputs[name].get(out=host, stream=self._stream, blocking=False)
                self._gpu.copies.add_d2h(host.nbytes)
            self._stream.synchronize()

    def states(self) -> States:
        with self._working():
            return self._network.states()

    def set_states(self, states: States) -> None:
        with self._working():
            self._network.set_states(states)


class _DeviceFedNetwork(WrappedNetwork):
    """A network on the host with arrays on the device: :meth:`run` waits for its inputs."""

    def __init__(self, network: Network, device: CudaDevice, stream: Any) -> None:
        super().__init__(network)
        self._gpu = device
        self._stream = stream
        with device.use(stream):
            self.inputs = {n: cupy.zeros(a.shape, a.dtype) for n, a in network.inputs.items()}
            self.outputs = {n: cupy.zeros(a.shape, a.dtype) for n, a in network.outputs.items()}

    def run(self) -> None:
        with self._gpu.use(self._stream):
            for name, array in self.inputs.items():
                array.get(out=self._network.inputs[name], stream=self._stream, blocking=False)
                self._gpu.copies.add_d2h(array.nbytes)
            self._stream.synchronize()
            self._network.run()
            for name, array in self.outputs.items():
                array.set(self._network.outputs[name], stream=self._stream)
                self._gpu.copies.add_h2d(array.nbytes)
