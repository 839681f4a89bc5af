"""Networks whose inputs and outputs are wanted on the other side of PCIe.

A model's input and mask are small (a few hundred kilobytes), so inference and compositing may run
on different devices at little cost. Each adapter is a :class:`bgsoft.infer.base.Network` itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from bgsoft.cuda.device import CudaDevice
from bgsoft.cuda.pinned import pinned_array
from bgsoft.errors import InferenceError
from bgsoft.infer.base import Network, States

__all__ = ["DeviceSide", "HostSide"]


class HostSide(Network):
    """A network on the device, used from the host: :meth:`run` waits for its outputs.

    Args:
        network: Has CuPy arrays.
        device: Where it runs.
        stream: The stream it runs on.
    """

    def __init__(self, network: Network, device: CudaDevice, stream: Any) -> None:
        self.provider = network.provider
        self.device = network.device
        self._network = network
        self._gpu = device
        self._stream = stream
        self.inputs = {name: pinned_array(a.shape, a.dtype) for name, a in network.inputs.items()}
        self.outputs = {name: pinned_array(a.shape, a.dtype) for name, a in network.outputs.items()}

    @contextmanager
    def _working(self) -> Iterator[None]:
        """The device is one network's business here: the host's frames survive its faults."""
        try:
            with self._gpu.use(self._stream):
                yield
        except cupy.cuda.runtime.CUDARuntimeError as exc:
            raise InferenceError(f"the GPU failed: {exc}", stage="segment") from exc

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

    def close(self) -> None:
        self._network.close()


class DeviceSide(Network):
    """A network on the host, used from the device: :meth:`run` waits for its inputs.

    Args:
        network: Has NumPy arrays.
        device: Where its inputs and outputs are wanted.
        stream: The stream they are written and read on.
    """

    def __init__(self, network: Network, device: CudaDevice, stream: Any) -> None:
        self.provider = network.provider
        self.device = network.device
        self._network = network
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

    def states(self) -> States:
        return self._network.states()

    def set_states(self, states: States) -> None:
        self._network.set_states(states)

    def close(self) -> None:
        self._network.close()
