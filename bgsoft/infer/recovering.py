"""A network on a GPU that the CPU takes over from when it fails."""

from __future__ import annotations

from collections.abc import Callable

from bgsoft.errors import InferenceError
from bgsoft.frame import Array
from bgsoft.infer.base import Network
from bgsoft.report import Event

__all__ = ["RecoveringNetwork"]


class RecoveringNetwork(Network):
    """Runs a network; once more if that fails; and then another in its place, for good.

    :attr:`inputs` and :attr:`outputs` are those of whichever network runs: read them anew after
    every run.

    Args:
        network: The one to begin with; closed with it.
        make_twin: Makes the other, with arrays of the same shapes in the same memory.
        stage: Named in what is told.
        on_event: Told of the second attempt and of the change, each with its reason.
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
        self._network = network
        self.provider = network.provider
        self.device = network.device
        self.inputs: dict[str, Array] = network.inputs
        self.outputs: dict[str, Array] = network.outputs

    def run(self) -> None:
        """Run once; see :meth:`bgsoft.infer.base.Network.run`."""
        try:
            self._network.run()
        except InferenceError as exc:
            self._recover(exc)

    def _recover(self, exc: InferenceError) -> None:
        if self._make_twin is None:
            raise exc
        self._tell("retry", f"{exc}; trying again")
        try:
            self._network.run()
        except InferenceError as again:
            self._tell("fallback", f"{again}; the CPU takes over")
            failed = self._network
            self._use(self._make_twin())
            self._make_twin = None
            for name, array in failed.inputs.items():
                self.inputs[name][...] = array
            failed.close()
            self._network.run()

    def _tell(self, kind: str, message: str) -> None:
        self._on_event(Event(kind=kind, stage=self._stage, message=message))

    def close(self) -> None:
        """Free the network; safe to call twice."""
        self._network.close()
