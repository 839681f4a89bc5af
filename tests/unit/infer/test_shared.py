"""Models that several streams share."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.errors import InferenceError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.infer.base import GpuRun, Network, Wiring
from bgsoft.infer.drivers import BatchDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.shared import ModelUser, SharedModels, SharedNetwork
from bgsoft.models.catalog import resolve
from bgsoft.segment.families import wiring
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.threads import LanePool
from tests.pictures import random_frame
from tests.recurrent_model import recurrent_model

MAX_ITEMS = 2


class HostOrder:
    """The order of calls that are finished when they return."""

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def mark(self) -> None:
        """Return nothing: calls are finished when they return."""

    def after(self, mark: None) -> None:
        """Return at once: calls are finished when they return."""


class Doubling(Network):
    """y = 2x for a batch of so many."""

    provider = "none"

    def __init__(self) -> None:
        self.inputs = {"x": np.zeros((MAX_ITEMS, 3), np.float32)}
        self.outputs = {"y": np.zeros((MAX_ITEMS, 3), np.float32), "n": np.zeros(1, np.float32)}
        self.batches: list[list[float]] = []
        self.faults = 0
        self.closed = False
        self.hold = threading.Event()
        self.hold.set()

    def run(self) -> None:
        self.hold.wait()
        self.batches.append(self.inputs["x"][:, 0].tolist())
        if self.faults:
            self.faults -= 1
            raise InferenceError("the model failed")
        self.outputs["y"][...] = 2 * self.inputs["x"]

    def close(self) -> None:
        self.closed = True


class Bench:
    """Two users of one network, each with a part of it."""

    def __init__(self, *, turn_seconds: float = 0.25, deadline_seconds: float = 0.002) -> None:
        self.models = SharedModels(2, cores=1, turn_seconds=turn_seconds)
        self._deadline_seconds = deadline_seconds
        self.loaded: list[Doubling] = []
        self.users = [ModelUser(self.models) for _ in range(2)]
        self.parts = [self.join(user) for user in self.users]

    def join(self, user: ModelUser) -> Network:
        def load() -> SharedNetwork:
            self.loaded.append(Doubling())
            return SharedNetwork(
                self.loaded[-1], 1, HostOrder(), deadline_seconds=self._deadline_seconds
            )

        return self.models.join("key", user, load)

    def ask(self, at: int, value: float) -> float:
        part = self.parts[at]
        part.inputs["x"].fill(value)
        part.run()
        (made,) = set(part.outputs["y"].ravel().tolist())
        return float(made)

    def ask_beside(self, at: int, value: float) -> Callable[[], float | Exception]:
        """Ask in another thread; calling the result waits for the answer."""
        made: list[float | Exception] = []

        def ask() -> None:
            try:
                made.append(self.ask(at, value))
            except InferenceError as exc:
                made.append(exc)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()

        def wait() -> float | Exception:
            thread.join(30)
            return made[0]

        return wait

    def close(self) -> None:
        for part in self.parts:
            part.close()


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(**getattr(request, "param", {}))
    yield made
    made.close()


patient = pytest.mark.parametrize("bench", [{"deadline_seconds": 60.0}], indirect=True, ids=[""])


@patient
def test_who_is_at_work_at_the_same_time_is_run_at_once(bench: Bench) -> None:
    with bench.users[0].working(limited=False), bench.users[1].working(limited=False):
        first = bench.ask_beside(0, 3.0)
        time.sleep(0.02)
        assert bench.loaded[0].batches == []
        assert (bench.ask(1, 5.0), first()) == (10.0, 6.0)
    assert bench.loaded[0].batches == [[3.0, 5.0]]


@patient
def test_one_that_is_alone_at_work_does_not_wait(bench: Bench) -> None:
    with bench.users[0].working(limited=False):
        assert [bench.ask(0, 3.0), bench.ask(0, 4.0)] == [6.0, 8.0]
    assert len(bench.loaded[0].batches) == 2


@patient
def test_one_that_has_asked_in_this_frame_is_not_awaited(bench: Bench) -> None:
    with bench.users[0].working(limited=False):
        assert bench.ask(0, 1.0) == 2.0
        with bench.users[1].working(limited=False):
            assert bench.ask(1, 2.0) == 4.0


def test_one_that_hangs_at_work_holds_nobody(bench: Bench) -> None:
    with bench.users[1].working(limited=False), bench.users[0].working(limited=False):
        assert bench.ask(0, 3.0) == 6.0


def test_who_comes_during_a_run_is_in_the_next(bench: Bench) -> None:
    bench.parts += [bench.join(bench.users[0]), bench.join(bench.users[1])]
    network = bench.loaded[0]
    network.hold.clear()
    answers = [bench.ask_beside(0, 1.0)]
    while bench.parts[0]._shared._requests:  # type: ignore[attr-defined]
        time.sleep(0.001)
    answers += [bench.ask_beside(at, at + 1.0) for at in (1, 2, 3)]
    while len(bench.parts[0]._shared._requests) < 3:  # type: ignore[attr-defined]
        time.sleep(0.001)
    network.hold.set()
    assert [answer() for answer in answers] == [2.0, 4.0, 6.0, 8.0]
    assert len(network.batches) == 3  # one, two, and one that there was no room for


@patient
def test_all_users_of_a_failed_run_get_its_error_and_the_next_one_works(bench: Bench) -> None:
    bench.loaded[0].faults = 1
    with bench.users[0].working(limited=False), bench.users[1].working(limited=False):
        answers = [bench.ask_beside(0, 1.0), bench.ask_beside(1, 2.0)]
        assert [type(answer()) for answer in answers] == [InferenceError, InferenceError]
    assert bench.ask(1, 2.0) == 4.0


def test_it_is_loaded_once_and_closed_by_the_last(bench: Bench) -> None:
    assert len(bench.loaded) == 1
    bench.parts[0].close()
    bench.parts[0].close()
    assert bench.ask(1, 2.0) == 4.0
    bench.parts[1].close()
    assert bench.loaded[0].closed
    bench.parts = [bench.join(bench.users[0])]
    assert (len(bench.loaded), bench.ask(0, 2.0)) == (2, 4.0)


@pytest.mark.parametrize("bench", [{"turn_seconds": 60.0}], indirect=True, ids=[""])
def test_no_more_work_than_there_are_cores(bench: Bench) -> None:
    first, second = bench.users
    order: list[str] = []

    def work() -> None:
        with second.working(limited=True):
            order.append("second")

    with ExitStack() as stack:
        stack.enter_context(first.working(limited=True))
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.02)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("found", "bench"),
    [(True, {"turn_seconds": 60.0}), (False, {"turn_seconds": 0.01})],
    indirect=["bench"],
    ids=["found", "not found"],
)
def test_a_core_of_one_that_hangs_is_not_waited_for_long(bench: Bench, found: bool) -> None:
    """And not at all after a user has reported that it hangs."""
    began = time.monotonic()
    with bench.users[0].working(limited=True):
        if found:
            bench.users[0].leave()
        with bench.users[1].working(limited=True):
            assert time.monotonic() - began < 60


def test_two_segmenters_that_share_a_network_see_what_each_sees_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = NetworkLoader(resolve("selfie-general"))
    spec, size = loader.model.spec, FrameFormat(width=64, height=48)
    models = SharedModels(2)
    users = [ModelUser(models), ModelUser(models)]

    def network(batch: int) -> Network:
        (made,) = loader.on_cpu(wiring(spec, size, batch))
        return made

    def segmenter(made: Network) -> NetworkSegmenter:
        driver = BatchDriver(lambda *_: made, lambda: made, batch=1, on_event=lambda _: None)
        return NetworkSegmenter(spec, driver, size, LanePool())

    def masks(of: NetworkSegmenter, frames: list[Frame]) -> list[object]:
        reducer = Reducer(size, LanePool())
        return [of.masks([f], reducer.reduce([f]))[0].tolist() for f in frames]

    random = np.random.default_rng(3)
    clips = [[random_frame(size, random, at) for at in range(3)] for _ in users]
    alone = [masks(segmenter(network(1)), frames) for frames in clips]
    batch, runs = network(MAX_ITEMS), []
    monkeypatch.setattr(batch, "run", lambda run=batch.run: (runs.append(1), run()))
    shared = [
        segmenter(
            models.join(
                "key",
                user,
                lambda: SharedNetwork(batch, 1, HostOrder(), deadline_seconds=60.0),
            )
        )
        for user in users
    ]
    together = threading.Barrier(2)
    made: list[list[object]] = [[], []]

    def work(at: int) -> None:
        for frame in clips[at]:
            with users[at].working(limited=False):
                together.wait(30)
                made[at] += masks(shared[at], [frame])

    threads = [threading.Thread(target=work, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert made == alone
    assert made[0] != made[1]
    assert len(runs) == 3
    for each in shared:
        each.close()


class FakeDevice:
    """A device on which networks of the CPU run as if it were a GPU."""

    number = 0

    def make_current(self) -> None:
        """Do nothing: there is only one device."""

    def new_stream(self) -> None:
        """Return None: nothing is asynchronous."""


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool, int | None]]:
    made: list[tuple[int, bool, int | None]] = []

    def load(loader: NetworkLoader, wiring: Wiring, run: GpuRun) -> Network:
        (network,) = loader.on_cpu(wiring)
        made.append((next(iter(network.inputs.values())).shape[0], run.replays, run.largest_batch))
        return network

    cuda: Any = types.ModuleType("bgsoft.infer.cuda")
    cuda.StreamOrder = lambda *_: HostOrder()
    cuda.for_device = lambda network, *_: network
    monkeypatch.setitem(sys.modules, "bgsoft.infer.cuda", cuda)
    monkeypatch.setattr(NetworkLoader, "_alone_on_gpu", load)
    return made


def test_on_a_gpu_one_network_serves_all(on_host: list[tuple[int, bool, int | None]]) -> None:
    size, device = FrameFormat(width=64, height=48), FakeDevice()

    def networks(
        users: int, name: str = "selfie-general", *, graphs: bool = True, **more: Any
    ) -> list[Network]:
        models, run = SharedModels(users), GpuRun("cuda", cast(Any, device), None, graphs=graphs)
        made: list[Network] = []
        for _ in range(users):
            loader = NetworkLoader(resolve(name), user=ModelUser(models))
            made.append(loader.on_gpu(wiring(loader.model.spec, size, 1), run, **more))
        return made

    def loaded(*args: Any, **more: Any) -> list[tuple[int, bool, int | None]]:
        on_host.clear()
        for network in networks(*args, **more):
            assert next(iter(network.inputs.values())).shape[0] == 1
            network.run()
            network.close()
        return list(on_host)

    assert loaded(1) == [(1, True, None)]
    assert loaded(3) == [(3, False, 8)]
    assert loaded(9) == [(8, False, 8)]
    # After a fault each has one of its own.
    assert loaded(2, graphs=False, alone=True) == [(1, False, None)] * 2


def test_what_remembers_frames_is_not_shared(
    on_host: list[tuple[int, bool, int | None]], tmp_path: Path
) -> None:
    models = SharedModels(2)
    model = recurrent_model(tmp_path)
    made = []
    for user in (ModelUser(models), ModelUser(models)):
        loader = NetworkLoader(model, user=user)
        used = wiring(model.spec, FrameFormat(width=64, height=48), 1)
        assert used.loops
        made.append(loader.on_gpu(used, GpuRun("cuda", cast(Any, FakeDevice()), None)))
    assert [replays for _, replays, _ in on_host] == [False, False]
    assert made[0].inputs is not made[1].inputs
