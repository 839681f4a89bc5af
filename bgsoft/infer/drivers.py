"""Drivers, which run a model on the frames of a batch, and recover from failures on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bgsoft.errors import BackendUnavailableError, InferenceError
from bgsoft.frame import Frame
from bgsoft.infer.base import Driver, Network, States, Step, WrappedNetwork
from bgsoft.report import Event
from bgsoft.threads import LanePool

_FAULTS = (InferenceError, MemoryError)
"""Failures that a smaller batch, or the CPU, may survive. CuPy's OutOfMemoryError is a
MemoryError."""


class LanesDriver(Driver):
    """Runs frames in parallel on the CPU, one a network; failures are final.

    There is one network for each lane of the pool, or one for all frames.
    """

    def __init__(self, networks: Sequence[Network], pool: LanePool) -> None:
        self._networks = networks
        self._pool = pool

    @property
    def network(self) -> Network:
        return self._networks[0]

    def start(self) -> None:
        self._networks[0].run()

    def run(self, frames: Sequence[Frame], write: Step, read: Step) -> None:
        if len(self._networks) == 1:
            for index, frame in enumerate(frames):
                self._run(write, read, 0, index, frame)
        else:
            self._pool.map(partial(self._run, write, read), range(len(frames)), frames)

    def _run(self, write: Step, read: Step, lane: int, index: int, frame: Frame) -> None:
        network = self._networks[lane]
        write(network, index, index + 1)
        try:
            network.run()
        except InferenceError as exc:
            exc.pts = frame.pts
            raise
        read(network, index, index + 1)

    def reset(self) -> None:
        for network in self._networks:
            network.set_states({})

    def close(self) -> None:
        for network in self._networks:
            network.close()


class BatchDriver(Driver):
    """Runs up to :attr:`size` frames at once on a GPU.

    A failed batch is retried once. After a second failure, the model is loaded again at half the
    size and without a CUDA graph, down to single frames, and finally on the CPU. Every step is
    reported. The first setting that works is kept.

    Args:
        make: Loads the model for a batch size; the second argument says whether to replay a CUDA
            graph, which must be captured by :meth:`start`.
        make_twin: Loads it on the CPU for single frames, with arrays where the others' are.
        batch: Initial frames per run.
        on_event: Receives retries, and the fallback to the CPU.

    Raises:
        BackendUnavailableError: The model does not load on the device.
    """

    def __init__(
        self,
        make: Callable[[int, bool], Network],
        make_twin: Callable[[], Network],
        *,
        batch: int,
        on_event: Callable[[Event], None],
    ) -> None:
        self.size = batch
        """Frames per run, which failures reduce."""
        self._make = make
        self._make_twin = make_twin
        self._on_event = on_event
        self._on_cpu = False
        self._graphs = True
        self._network = make(batch, True)

    @property
    def network(self) -> Network:
        return self._network

    def start(self) -> None:
        while True:
            try:
                self._network.run()
            except _FAULTS as exc:
                self._shrink(exc, None)
            else:
                return

    def run(self, frames: Sequence[Frame], write: Step, read: Step) -> None:
        start, retried = 0, False
        while start < len(frames):
            stop = min(start + self.size, len(frames))
            try:
                write(self._network, start, stop)
                self._network.run()
                read(self._network, start, stop)
            except _FAULTS as exc:
                if retried or self._on_cpu:
                    self._shrink(exc, frames[start])
                else:
                    message = f"{exc}; trying the batch again"
                    self._report("retry", message, frames[start])
                    retried = True
            else:
                start, retried = stop, False

    def _shrink(self, exc: Exception, frame: Frame | None) -> None:
        """Prepare the next attempt; raises if there is none left."""
        if self._on_cpu:
            pts = None if frame is None else frame.pts
            raise InferenceError(str(exc), stage="segment", pts=pts) from exc
        try:
            states: States = self._network.states()
        except _FAULTS:
            states = {}
        self._network.close()
        self._network = self._smaller(frame)
        self._network.set_states(states)

    def _smaller(self, frame: Frame | None) -> Network:
        while self.size > 1 or self._graphs:
            self.size = max(1, self.size // 2)
            self._graphs = False
            message = f"the model failed; loading it again, {self.size} at a time"
            self._report("retry", message, frame)
            try:
                return self._make(self.size, False)
            except (BackendUnavailableError, *_FAULTS):
                continue
        self._on_cpu = True
        self._report("fallback", "the model failed on the GPU; the CPU takes over", frame)
        return self._make_twin()

    def _report(self, kind: str, message: str, frame: Frame | None) -> None:
        where = {} if frame is None else {"frame": frame.index, "pts": frame.pts}
        self._on_event(Event(kind=kind, stage="segment", message=message, **where))

    def reset(self) -> None:
        self._network.set_states({})

    def close(self) -> None:
        self._network.close()


class RecoveringNetwork(WrappedNetwork):
    """Runs a network again after a failure, then its CPU twin in its place, for good.

    :attr:`inputs` and :attr:`outputs` are those of the network that runs: read them again after
    every run. The twin's arrays have the same shapes in the same memory.
    """

    def __init__(
        self,
        network: Network,
        make_twin: Callable[[], Network],
        *,
        stage: str,
        on_event: Callable[[Event], None],
    ) -> None:
        self._use(network)
        self._make_twin: Callable[[], Network] | None = make_twin
        self._stage = stage
        self._on_event = on_event

    def _use(self, network: Network) -> None:
        super().__init__(network)
        self.inputs, self.outputs = network.inputs, network.outputs

    def run(self) -> None:
        try:
            self._network.run()
        except InferenceError as exc:
            if self._make_twin is None:
                raise
            self._report("retry", f"{exc}; trying again")
            self._run_again(self._make_twin)

    def _run_again(self, make_twin: Callable[[], Network]) -> None:
        try:
            self._network.run()
        except InferenceError as exc:
            self._report("fallback", f"{exc}; the CPU takes over")
            failed = self._network
            self._use(make_twin())
            self._make_twin = None
            for name, array in failed.inputs.items():
                self.inputs[name][...] = array
            failed.close()
            self._network.run()

    def _report(self, kind: str, message: str) -> None:
        self._on_event(Event(kind=kind, stage=self._stage, message=message))
