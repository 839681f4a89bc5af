"""Loaded networks as stages use them, and what drives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bgsoft.frame import Array, Frame
from bgsoft.records import dataclass
from bgsoft.settings.config import Precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bgsoft.cuda.device import CudaDevice

Shapes = Mapping[str, tuple[int, ...]]
"""By name of an input or output, the batch first."""

States = Mapping[str, "NDArray[Any]"]
"""By input name, on the host: what a network carries from one run to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Use of a model's inputs and outputs."""

    inputs: Shapes
    """Of every input that is written."""
    outputs: tuple[str, ...] = ()
    """Those that are read; empty: all. The rest stays where the network runs."""
    free_outputs: Shapes = field(default_factory=dict)
    """Of outputs whose shapes the file leaves free, where they are known, without the batch."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Inputs of one number that never changes."""
    loops: Mapping[str, str] = field(default_factory=dict)
    """Output → the input that takes it in the next run."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The outputs that a run is asked for; empty: all of them."""
        return () if self.loops else self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A model as a GPU provider loads it."""

    path: Path
    shapes: Shapes
    """Of every input, with nothing left dynamic."""
    backend: str
    """``tensorrt`` or ``cuda``."""
    device: CudaDevice
    outputs: tuple[str, ...] = ()
    """Those that are wanted; empty: all."""
    precision: Precision = Precision.FP32
    """fp16 lets TensorRT use half precision; CUDA runs what the file holds."""
    sha256: str = ""
    """Of the file and of what was changed in it, for the engine cache."""
    tell: Callable[[str], None] = lambda _text: None
    """Called with a notice before an engine is built, which takes about a minute."""
    largest_batch: int | None = None
    """An engine's, so that it serves smaller batches too; None: that of ``shapes``."""
    source: bytes | None = None
    """Loaded instead of the file, where it was changed."""
    must_run: bool = False
    """Another file serves where this one does not run, or not all of it on this provider."""


class Network(Protocol):
    """One ONNX model, loaded, with fixed input and output buffers on one device."""

    provider: str
    """The execution provider that really runs, read back from the session."""
    mixed: str = ""
    """The part of the model that other providers run, for people; empty: none."""
    inputs: dict[str, Array]
    """Input buffers by name: write them, then call :meth:`run`."""
    outputs: dict[str, Array]
    """Output buffers by name, overwritten by every run."""

    def run(self) -> None:
        """Run once on what lies in :attr:`inputs`; raises InferenceError."""
        ...

    def states(self) -> States:
        """A copy of what it carries from run to run; empty where every run stands alone.

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
"""Called with a network and the start and stop of some frames, its items 0, 1 and so on: writes
them into its inputs, or takes them from its outputs."""


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
        """Run the model on some frames; ``write`` is called again where an attempt fails.

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
