"""A model on a GPU: a batch in one run, with the rule for faults.

A batch that fails is retried once; if it fails again, the model is loaded anew at half the size and
without a CUDA graph, and so on down to single frames, and at last as the CPU twin. Every step is
reported. What works is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bgsoft.errors import BackendUnavailableError, InferenceError
from bgsoft.frame import Frame
from bgsoft.infer.base import Driver, Network, States, Step
from bgsoft.report import Event

__all__ = ["BatchDriver"]

FAULTS = (InferenceError, MemoryError)
"""What a smaller batch, or the CPU, may survive. CuPy's own error of memory is a MemoryError."""


class BatchDriver(Driver):
    """Runs up to :attr:`size` frames at once.

    Args:
        make: Loads the model for a batch size; the second argument says whether it may replay a
            CUDA graph, which only works if it is captured by :meth:`start`.
        make_twin: Loads it on the CPU for single frames, its arrays where the others' are.
        batch: Frames per run to begin with.
        on_event: Told of retries and of the CPU taking over.

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
        """Frames per run now; smaller than at first after faults."""
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
            except FAULTS as exc:
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
            except FAULTS as exc:
                if retried or self._on_cpu:
                    self._shrink(exc, frames[start])
                else:
                    message = f"the model failed ({exc}); trying the batch again"
                    self._tell("retry", message, frames[start])
                    retried = True
            else:
                start, retried = stop, False

    def _shrink(self, exc: Exception, frame: Frame | None) -> None:
        """Make the next attempt one that can work; raises where there is none left."""
        if self._on_cpu:
            pts = None if frame is None else frame.pts
            raise InferenceError(str(exc), stage="segment", pts=pts) from exc
        try:
            states: States = self._network.states()
        except FAULTS:
            states = {}
        self._network.close()
        self._network = self._smaller(frame)
        self._network.set_states(states)

    def _smaller(self, frame: Frame | None) -> Network:
        while self.size > 1 or self._graphs:
            self.size = max(1, self.size // 2)
            self._graphs = False
            message = f"the model failed; loading it again, {self.size} at a time"
            self._tell("retry", message, frame)
            try:
                return self._make(self.size, False)
            except (BackendUnavailableError, *FAULTS):
                continue
        self._on_cpu = True
        self._tell("fallback", "the model failed on the GPU; the CPU takes over", frame)
        return self._make_twin()

    def _tell(self, kind: str, message: str, frame: Frame | None) -> None:
        where = {} if frame is None else {"frame": frame.index, "pts": frame.pts}
        self._on_event(Event(kind=kind, stage="segment", message=message, **where))

    def reset(self) -> None:
        self._network.set_states({})

    def close(self) -> None:
        self._network.close()
