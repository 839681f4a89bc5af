"""A network that fails: once more, then its twin, each told of."""

from __future__ import annotations

import numpy as np
import pytest

from bgsoft.errors import InferenceError
from bgsoft.infer.recovering import RecoveringNetwork
from bgsoft.report import Event


class Doubling:
    """Doubles its input, or fails where its turn says so."""

    provider = "none"

    def __init__(self, device: str, faults: list[bool]) -> None:
        self.device = device
        self.inputs = {"x": np.zeros(3)}
        self.outputs = {"y": np.zeros(3)}
        self.faults = faults
        self.closed = 0

    def run(self) -> None:
        if self.faults and self.faults.pop(0):
            raise InferenceError(f"{self.device} is broken")
        self.outputs["y"][:] = 2 * self.inputs["x"]

    def close(self) -> None:
        self.closed += 1


def recovering(*faults: bool) -> tuple[RecoveringNetwork, Doubling, Doubling, list[Event]]:
    first, twin = Doubling("gpu", list(faults)), Doubling("cpu", [])
    events: list[Event] = []
    network = RecoveringNetwork(first, lambda: twin, stage="face", on_event=events.append)
    return network, first, twin, events


def run(network: RecoveringNetwork, value: float) -> list[float]:
    network.inputs["x"][:] = value
    network.run()
    return list(network.outputs["y"])


def test_what_works_is_left_alone() -> None:
    network, first, _, events = recovering()
    assert run(network, 2) == [4, 4, 4]
    assert (network.device, events) == ("gpu", [])
    network.close()
    assert first.closed == 1


def test_one_fault_is_tried_again() -> None:
    network, _, _, events = recovering(False, True, False)
    assert [run(network, value)[0] for value in (1, 2, 3)] == [2, 4, 6]
    assert [(event.kind, event.stage) for event in events] == [("retry", "face")]
    assert network.device == "gpu"


def test_two_faults_call_the_twin_for_good() -> None:
    network, first, twin, events = recovering(False, True, True)
    assert [run(network, value)[0] for value in (1, 2, 3)] == [2, 4, 6]
    assert [event.kind for event in events] == ["retry", "fallback"]
    assert all("gpu is broken" in event.message for event in events)
    assert network.device == "cpu"
    assert first.closed == 1
    network.close()
    assert twin.closed == 1


def test_the_twin_fails_as_anything_does() -> None:
    network, _, twin, events = recovering(True, True)
    twin.faults = [False, True]
    run(network, 1)
    with pytest.raises(InferenceError, match="cpu is broken"):
        network.run()
    assert len(events) == 2
