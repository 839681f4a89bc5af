"""Drivers of networks: the rule for faults, and states that survive them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bgsoft.errors import BackendUnavailableError, InferenceError
from bgsoft.infer.base import Network, States, Wiring
from bgsoft.infer.drivers import BatchDriver, LanesDriver, RecoveringNetwork
from bgsoft.infer.loading import LoopingNetwork
from bgsoft.report import Event
from bgsoft.threads import LanePool
from tests.pictures import flat_frame, frame_format

FRAMES = [flat_frame(frame_format((8, 8)), 0, 128, 128) for _ in range(4)]
for number, each in enumerate(FRAMES):
    each.index, each.pts = number, 40 * number


class Summing(Network):
    """A network that returns the running sum of its input, and fails as often as scripted."""

    provider = "fake"

    def __init__(self, batch: int, faults: list[int]) -> None:
        self.inputs = {"x": np.zeros((batch, 1)), "before": np.zeros((batch, 1))}
        self.outputs = {"y": np.zeros((batch, 1)), "after": np.zeros((batch, 1))}
        self._faults = faults
        self.closed = False

    def run(self) -> None:
        if self._faults[0] > 0:
            self._faults[0] -= 1
            raise InferenceError("broken", stage="segment")
        self.outputs["y"][:] = self.outputs["after"][:] = self.inputs["x"] + self.inputs["before"]

    def close(self) -> None:
        self.closed = True


WIRING = Wiring(inputs={"x": (1, 1)}, outputs=("y",), loops={"after": "before"})


class Bench:
    def __init__(
        self,
        faults: int = 0,
        *,
        batch: int = 4,
        twin_faults: int = 0,
        refused: Sequence[int] = (),
        loops: bool = False,
    ) -> None:
        self.events: list[Event] = []
        self.sizes: list[int] = []
        self.faults_left = left = [faults]

        def wired(network: Network) -> Network:
            return LoopingNetwork(network, WIRING) if loops else network

        def make(size: int, graphs: bool) -> Network:
            assert graphs == (not self.sizes)
            self.sizes.append(size)
            if size in refused:
                raise BackendUnavailableError("no room")
            return wired(Summing(size, left))

        def make_twin() -> Network:
            self.sizes.append(-1)
            return wired(Summing(1, [twin_faults]))

        self.driver = BatchDriver(make, make_twin, batch=batch, on_event=self.events.append)

    def run(self, values: Sequence[float]) -> list[float]:
        results: dict[int, float] = {}

        def write(network: Network, start: int, stop: int) -> None:
            network.inputs["x"][: stop - start, 0] = values[start:stop]

        def read(network: Network, start: int, stop: int) -> None:
            results.update(zip(range(start, stop), network.outputs["y"][:, 0], strict=False))

        self.driver.run(FRAMES[: len(values)], write, read)
        return [results[index] for index in range(len(values))]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


VALUES = [1.0, 2.0, 3.0, 4.0]


def test_a_batch_is_one_run() -> None:
    bench = Bench()
    assert bench.run(VALUES) == VALUES
    assert bench.run(VALUES[:3]) == VALUES[:3]
    assert (bench.sizes, bench.events) == ([4], [])


def test_one_failure_is_retried() -> None:
    bench = Bench(faults=1)
    assert bench.run(VALUES) == VALUES
    assert (bench.sizes, bench.kinds) == ([4], ["retry"])


def test_repeated_failures_halve_the_batch_for_good() -> None:
    bench = Bench(faults=2)
    assert bench.run(VALUES) == VALUES
    assert (bench.sizes, bench.driver.size) == ([4, 2], 2)
    assert bench.run(VALUES) == VALUES


def test_at_last_the_cpu_takes_over() -> None:
    bench = Bench(faults=10**9)
    assert bench.run(VALUES) == VALUES
    assert bench.sizes == [4, 2, 1, -1]
    assert (bench.kinds[-1], bench.events[-1].frame) == ("fallback", 0)
    assert bench.run(VALUES) == VALUES
    assert bench.kinds.count("fallback") == 1


def test_a_size_that_does_not_load_is_passed_over() -> None:
    bench = Bench(faults=2, refused=[2])
    assert bench.run(VALUES) == VALUES
    assert bench.sizes == [4, 2, 1]


def test_when_the_cpu_fails_too_it_is_an_error_with_its_time() -> None:
    bench = Bench(faults=10**9, twin_faults=1)
    with pytest.raises(InferenceError) as caught:
        bench.run(VALUES)
    assert caught.value.pts == 0


def test_what_does_not_start_is_made_smaller() -> None:
    bench = Bench(faults=1)
    bench.driver.start()
    assert bench.sizes == [4, 2]
    assert bench.events[0].frame is None


@pytest.mark.parametrize("faults", [0, 1, 2, 10**9])
def test_states_survive_faults(faults: int) -> None:
    bench = Bench(batch=1, loops=True)
    assert [bench.run([value])[0] for value in (1.0, 2.0)] == [1.0, 3.0]
    bench.faults_left[0] = faults
    assert [bench.run([value])[0] for value in (4.0, 8.0)] == [7.0, 15.0]
    assert bench.sizes == {0: [1], 1: [1], 2: [1, 1], 10**9: [1, 1, -1]}[faults]
    bench.driver.reset()
    assert bench.run([1.0]) == [1.0]


def test_states_that_cannot_be_read_begin_again() -> None:
    class Lost(LoopingNetwork):
        def states(self) -> States:
            raise InferenceError("gone")

    driver = BatchDriver(
        lambda size, _graphs: Lost(Summing(size, [10**9]), WIRING),
        lambda: LoopingNetwork(Summing(1, [0]), WIRING),
        batch=1,
        on_event=lambda _event: None,
    )
    driver.start()
    assert driver.network.states() == {"before": np.zeros((1, 1))}


def test_looping_hides_what_stays() -> None:
    network = LoopingNetwork(Summing(1, [0]), WIRING)
    assert (list(network.inputs), list(network.outputs)) == (["x"], ["y"])


def test_lanes_name_the_frame_that_failed() -> None:
    networks = [Summing(1, [0]), Summing(1, [1])]
    pool = LanePool(2)
    driver = LanesDriver(networks, pool)

    def nothing(*_: Any) -> None:
        pass

    with pytest.raises(InferenceError) as caught:
        driver.run(FRAMES[:2], nothing, nothing)
    assert caught.value.pts == 40
    driver.close()
    pool.close()
    assert all(network.closed for network in networks)


class Doubling(Network):
    """A network that doubles its input, and fails in its scripted turns."""

    def __init__(self, device: str, faults: list[bool]) -> None:
        self.provider = device
        self.inputs = {"x": np.zeros(3)}
        self.outputs = {"y": np.zeros(3)}
        self.faults = faults
        self.closed = 0

    def run(self) -> None:
        if self.faults and self.faults.pop(0):
            raise InferenceError(f"{self.provider} is broken")
        self.outputs["y"][:] = 2 * self.inputs["x"]

    def close(self) -> None:
        self.closed += 1


def recovering(*faults: bool) -> tuple[RecoveringNetwork, Doubling, Doubling, list[Event]]:
    first, twin = Doubling("gpu", list(faults)), Doubling("cpu", [])
    events: list[Event] = []
    network = RecoveringNetwork(first, lambda: twin, stage="face", on_event=events.append)
    return network, first, twin, events


def doubled(network: RecoveringNetwork, value: float) -> list[float]:
    network.inputs["x"][:] = value
    network.run()
    return list(network.outputs["y"])


def test_what_works_is_left_alone() -> None:
    network, first, _, events = recovering()
    assert doubled(network, 2) == [4, 4, 4]
    assert (network.provider, events) == ("gpu", [])
    network.close()
    assert first.closed == 1


def test_one_fault_is_tried_again() -> None:
    network, _, _, events = recovering(False, True, False)
    assert [doubled(network, value)[0] for value in (1, 2, 3)] == [2, 4, 6]
    assert [(event.kind, event.stage) for event in events] == [("retry", "face")]
    assert network.provider == "gpu"


def test_two_faults_call_the_twin_for_good() -> None:
    network, first, twin, events = recovering(False, True, True)
    assert [doubled(network, value)[0] for value in (1, 2, 3)] == [2, 4, 6]
    assert [event.kind for event in events] == ["retry", "fallback"]
    assert all("gpu is broken" in event.message for event in events)
    assert network.provider == "cpu"
    assert first.closed == 1
    network.close()
    assert twin.closed == 1


def test_the_twin_fails_as_anything_does() -> None:
    network, _, twin, events = recovering(True, True)
    twin.faults = [False, True]
    doubled(network, 1)
    with pytest.raises(InferenceError, match="cpu is broken"):
        network.run()
    assert len(events) == 2
