"""Networks that stay loaded between renders."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from bgsoft.errors import DecodeError, InferenceError
from bgsoft.infer.base import Network
from bgsoft.infer.warm import LastingThread, WarmNetworks
from bgsoft.jobs.worker import must_restart


class _Loaded(Network):
    provider = "none"

    def __init__(self) -> None:
        self.inputs = {"x": np.zeros(1)}
        self.outputs = {"y": np.zeros(1)}
        self.resets = 0
        self.fails = self.closed = False

    def run(self) -> None:
        if self.fails:
            raise InferenceError("no")

    def set_states(self, states: object) -> None:
        self.resets += 1

    def close(self) -> None:
        self.closed = True


def test_a_closed_network_serves_the_next_render_from_the_start() -> None:
    warm, made = WarmNetworks(), _Loaded()
    first = warm.get("key", lambda: made)
    first.close()
    first.close()
    assert not made.closed
    second = warm.get("key", _Loaded)
    third = warm.get("key", _Loaded)
    assert second.inputs["x"] is made.inputs["x"]
    assert made.resets == 2
    assert third.inputs["x"] is not made.inputs["x"], "one network was given out twice"


def test_another_key_is_another_network() -> None:
    warm, made = WarmNetworks(), _Loaded()
    warm.get("one", lambda: made).close()
    assert warm.get("other", _Loaded).inputs["x"] is not made.inputs["x"]


def test_a_network_that_failed_is_not_used_again() -> None:
    warm, made = WarmNetworks(), _Loaded()
    network = warm.get("key", lambda: made)
    made.fails = True
    with pytest.raises(InferenceError):
        network.run()
    network.close()
    assert made.closed
    assert warm.get("key", _Loaded).inputs["x"] is not made.inputs["x"]


def test_the_longest_unused_is_freed() -> None:
    warm, made = WarmNetworks(max_idle=2), [_Loaded() for _ in range(3)]
    for number, network in enumerate(made):
        warm.get(number, lambda network=network: network).close()
    assert [network.closed for network in made] == [True, False, False]


def test_all_calls_run_in_one_thread_that_lasts() -> None:
    seen: list[int] = []
    calls = [LastingThread(lambda: seen.append(threading.get_ident()), "test") for _ in range(3)]
    for call in calls:
        assert not call.is_alive()
        call.start()
        call.join(10)
        assert not call.is_alive()
    assert len(set(seen)) == 1
    assert seen[0] == calls[0].ident != threading.get_ident()


def test_nothing_of_a_call_stays_when_it_has_ended() -> None:
    class Render:
        def run(self) -> None:
            pass

    render = Render()
    left, call = weakref.ref(render), LastingThread(render.run, "test")
    call.start()
    call.join(10)
    del render, call
    assert left() is None


def test_a_process_is_of_use_after_an_error_unless_a_call_is_stuck() -> None:
    ended, going = threading.Event(), threading.Event()
    call = LastingThread(lambda: (going.set(), ended.wait(60)), "bgsoft-picture")
    call.start()
    assert going.wait(10)
    assert must_restart(DecodeError("broken"))
    ended.set()
    call.join(10)
    assert not must_restart(DecodeError("broken"))
