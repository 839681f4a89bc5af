"""What a loaded network is to the stages that run one, and what drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Array, Frame

TENSOR_DTYPES: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
"""ONNX Runtime's name of a type → NumPy's; models of other types are not taken."""

States = Mapping[str, NDArray[Any]]
"""By input name, on the host: what a network carries from one run to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the inputs and outputs of a model are used."""

    inputs: Mapping[str, tuple[int, ...]]
    """Shape of every input that is written, the batch first."""
    outputs: tuple[str, ...] = ()
    """What is read, where not all is: the rest stays where the network runs."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Inputs of one number that never changes."""
    loops: Mapping[str, str] = field(default_factory=dict)
    """Output → the input that takes it in the next run."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The outputs that a run is asked for; empty: all of them."""
        return () if self.loops else self.outputs


class Network(Protocol):
    """One ONNX model, loaded, with fixed input and output buffers on one device."""

    provider: str
    """The execution provider that really runs, read back from the session."""
    mixed: str = ""
    """Where other providers run a part of the model: which, for people. Empty: one runs it all."""
    inputs: dict[str, Array]
    """Input buffers by name: write them, then call :meth:`run`."""
    outputs: dict[str, Array]
    """Output buffers by name, overwritten by every run."""

    def run(self) -> None:
        """Run once on what lies in :attr:`inputs`.

        Raises:
            InferenceError: The runtime failed.
        """
        ...

    def states(self) -> States:
        """A copy of what it carries from run to run; nothing where every run stands alone.

        Raises:
            InferenceError: It cannot be read any more.
        """
        return {}

    def set_states(self, states: States) -> None:
        """Go on from these; zeros for those that are missing."""
        return

    def close(self) -> None:
        """Free the session; safe to call twice."""
        ...


class WrappedNetwork(Network):
    """A network around another, which is closed with it."""

    def __init__(self, network: Network) -> None:
        self.provider = network.provider
        self.mixed = network.mixed
        self._network = network

    def states(self) -> States:
        return self._network.states()

    def set_states(self, states: States) -> None:
        self._network.set_states(states)

    def close(self) -> None:
        self._network.close()


Step = Callable[[Network, int, int], None]
"""Called with a network and the start and stop of some frames: they are the network's items 0, 1
and so on. Either writes them into its inputs, or takes them from its outputs."""


class Driver(Protocol):
    """Runs a model on the frames of a batch: how many at once, on what, and what if it fails."""

    @property
    def network(self) -> Network:
        """The one that runs now, or one of several alike."""
        ...

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`run`, while nothing else does.

        Raises:
            InferenceError: The model failed for good.
        """
        ...

    def run(self, frames: Sequence[Frame], write: Step, read: Step) -> None:
        """Run the model on some frames; every frame is written, run and read once in the end.

        Args:
            frames: For their number, and for messages.
            write: Writes frames into a network; called again where an attempt fails.
            read: Takes what came out.

        Raises:
            InferenceError: The model failed for good; carries the frame's pts.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        ...

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        ...
