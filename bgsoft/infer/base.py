"""Protocols of loaded networks and of the drivers that run them."""

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
"""Shape by name of an input or output, the batch first."""

States = Mapping[str, "NDArray[Any]"]
"""State by input name, on the host: the values that a network carries from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Use of a model's inputs and outputs."""

    inputs: Shapes
    """Shape of every input that is written."""
    outputs: tuple[str, ...] = ()
    """Names of outputs that are read; empty: all. Others stay where the network runs."""
    free_outputs: Shapes = field(default_factory=dict)
    """Known shapes of outputs whose shapes the file leaves free, without the batch."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Inputs of one number that never changes."""
    loops: Mapping[str, str] = field(default_factory=dict)
    """Output → the input that takes it in the next run."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of the outputs that a run must return; empty: all of them."""
        return () if self.loops else self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A model with the settings of a GPU provider."""

    path: Path
    shapes: Shapes
    """Shape of every input, without free axes."""
    backend: str
    """``tensorrt`` or ``cuda``."""
    device: CudaDevice
    outputs: tuple[str, ...] = ()
    """Names of the wanted outputs; empty: all."""
    precision: Precision = Precision.FP32
    """fp16 lets TensorRT use half precision; CUDA uses the file's own types."""
    sha256: str = ""
    """Hash of the file and of changes to it, for the engine cache."""
    on_notice: Callable[[str], None] = lambda _text: None
    """Called with a notice before an engine is built, which takes about a minute."""
    largest_batch: int | None = None
    """Largest batch of the engine, which then runs smaller ones too; None: that of ``shapes``."""
    source: bytes | None = None
    """Contents to load instead of the file, where it was changed."""
    must_run: bool = False
    """Whether a model that does not run, or not entirely on this provider, is an error: another
    file can replace it."""


@dataclass(frozen=True, slots=True)
class GpuRun:
    """The way in which a model runs on a GPU."""

    backend: str
    """``tensorrt`` or ``cuda``."""
    device: CudaDevice
    stream: Any
    """CuPy stream of every run."""
    graphs: bool = True
    """Verify that a CUDA graph can be captured."""
    replays: bool = True
    """Capture and replay it; otherwise only verify."""
    largest_batch: int | None = None
    """See :attr:`GpuModel.largest_batch`."""


class Network(Protocol):
    """A loaded ONNX model with fixed input and output buffers on one device."""

    provider: str
    """The execution provider that runs it, as the session reports."""
    mixed: str = ""
    """Description of the part that other providers run; empty: none."""
    inputs: dict[str, Array]
    """Input buffers by name: write them, then call :meth:`run`."""
    outputs: dict[str, Array]
    """Output buffers by name, overwritten by every run."""

    def run(self) -> None:
        """Run once on the contents of :attr:`inputs`; raises InferenceError."""
        ...

    def states(self) -> States:
        """Return a copy of the states; empty for a network without any.

        Raises:
            InferenceError: It cannot be read any more.
        """
        return {}

    def set_states(self, states: States) -> None:
        """Continue from these states; missing ones become zeros."""
        return

    def close(self) -> None:
        """Free the session; safe to call twice."""
        ...


class WrappedNetwork(Network):
    """A network around another, which it closes."""

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
"""Function of a network and the range (start, stop) of some frames, which are its items 0, 1, ….
It writes their inputs, or reads their outputs."""


class Driver(Protocol):
    """Runs a model on the frames of a batch, and decides what follows a failure."""

    @property
    def network(self) -> Network:
        """The network that runs now, or one of several equal ones."""
        ...

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`run`, while nothing else runs.

        Raises:
            InferenceError: The model failed for good.
        """
        ...

    def run(self, frames: Sequence[Frame], write: Step, read: Step) -> None:
        """Run the model on some frames; ``write`` is called again after a failure.

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
