"""A model on the CPU: one session, and buffers of its own for every frame of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bgsoft.errors import InferenceError
from bgsoft.frame import Frame
from bgsoft.infer.base import Driver, Network, Step
from bgsoft.workers import Workers

__all__ = ["LanesDriver"]


class LanesDriver(Driver):
    """Runs the frames of a batch side by side; what fails on the CPU has failed.

    Args:
        networks: One for each frame of a batch.
        workers: What runs them.
    """

    def __init__(self, networks: Sequence[Network], workers: Workers) -> None:
        self._networks = networks
        self._workers = workers

    @property
    def network(self) -> Network:
        return self._networks[0]

    def start(self) -> None:
        self._networks[0].run()

    def run(self, frames: Sequence[Frame], write: Step, read: Step) -> None:
        self._workers.map(partial(self._run, write, read), frames)

    def _run(self, write: Step, read: Step, lane: int, frame: Frame) -> None:
        network = self._networks[lane]
        write(network, lane, lane + 1)
        try:
            network.run()
        except InferenceError as exc:
            exc.pts = frame.pts
            raise
        read(network, lane, lane + 1)

    def reset(self) -> None:
        for network in self._networks:
            network.set_states({})

    def close(self) -> None:
        for network in self._networks:
            network.close()
