"""A network whose outputs come back as its inputs, without leaving the device it runs on."""

from __future__ import annotations

import numpy as np

from bgsoft.errors import ModelError
from bgsoft.frame import Array
from bgsoft.infer.base import Network, States, Wiring

__all__ = ["LoopingNetwork"]


class LoopingNetwork(Network):
    """Carries states from run to run; a run that fails leaves them as they were.

    They are copied, not swapped: the network keeps its addresses, so that one CUDA graph serves.
    At 1080p that is 4 MB a frame.

    Args:
        network: Has all inputs and outputs, the states' in their full shapes.
        wiring: What loops, and what is read besides.

    Raises:
        ModelError: An output is missing.
    """

    def __init__(self, network: Network, wiring: Wiring) -> None:
        self.provider = network.provider
        self.device = network.device
        self._network = network
        missing = [name for name in wiring.outputs if name not in network.outputs]
        if missing:
            raise ModelError(
                f"the model has no output {missing[0]!r}, only {', '.join(network.outputs)}"
            )
        self.inputs: dict[str, Array] = {name: network.inputs[name] for name in wiring.inputs}
        self.outputs: dict[str, Array] = {name: network.outputs[name] for name in wiring.outputs}
        self._states: dict[str, Array] = {
            into: network.inputs[into] for into in wiring.loops.values()
        }
        self._made: dict[str, Array] = {
            into: network.outputs[made] for made, into in wiring.loops.items()
        }

    def run(self) -> None:
        self._network.run()
        for name, state in self._states.items():
            state[...] = self._made[name]

    def states(self) -> States:
        return {
            name: state.copy() if isinstance(state, np.ndarray) else state.get()
            for name, state in self._states.items()
        }

    def set_states(self, states: States) -> None:
        for name, state in self._states.items():
            if name not in states:
                state.fill(0)
            elif isinstance(state, np.ndarray):
                state[...] = states[name]
            else:
                state.set(states[name].astype(state.dtype))

    def close(self) -> None:
        self._network.close()
