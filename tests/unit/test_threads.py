"""Threads that take pieces of work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from bgsoft.threads import DaemonThread, LanePool, Threads, lower_priority


@pytest.fixture
def often() -> Iterator[None]:
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_take_so_many_pieces_at_a_time() -> None:
    go, running = threading.Event(), list[int]()

    def work(number: int) -> int:
        running.append(number)
        go.wait(5)
        if number == 3:
            raise ValueError("three")
        return number

    with Threads(2, "test") as threads:
        pieces = [threads.submit(work, number) for number in range(5)]
        time.sleep(0.02)
        assert len(running) <= 2
        go.set()
        assert [piece.result(5) for piece in (*pieces[:3], pieces[4])] == [0, 1, 2, 4]
        assert str(pieces[3].exception(5)) == "three"


def test_what_waits_is_cancelled_at_the_end() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go.wait(5)

    threads = Threads(1, "test")
    first = threads.submit(work)
    assert begun.wait(5)
    second = threads.submit(work)
    threading.Timer(0.05, go.set).start()
    threads.close()
    assert first.result() is True
    assert second.cancelled()
    threads.close()


def test_what_several_threads_begin_is_cancelled_at_the_end(often: None) -> None:
    """A part of a render's start submits other parts."""
    threads, go, pieces = Threads(1, "test"), threading.Event(), list[Future[bool]]()

    def begin() -> None:
        for _ in range(15):
            pieces.append(threads.submit(go.wait, 5))

    beginning = [threading.Thread(target=begin) for _ in range(6)]
    for thread in beginning:
        thread.start()
    for thread in beginning:
        thread.join()
    threading.Timer(0.05, go.set).start()
    threads.close()
    wait(pieces, 5)
    assert sum(not piece.cancelled() for piece in pieces) == 1


def test_lanes_take_what_there_is_in_turn() -> None:
    with LanePool(3) as pool:
        taken = pool.map(lambda lane, number, name: (lane, number, name), range(5), "abcde")
    assert taken == [(0, 0, "a"), (1, 1, "b"), (2, 2, "c"), (0, 3, "d"), (1, 4, "e")]
    assert LanePool().map(lambda lane, number: lane, []) == []


def test_the_first_failure_is_reported_once_those_next_to_it_have_ended() -> None:
    ended = list[int]()

    def work(_lane: int, number: int) -> None:
        if number in (1, 2):
            raise ValueError(str(number))
        time.sleep(0.02)
        ended.append(number)

    with LanePool(3) as pool, pytest.raises(ValueError, match="1"):
        pool.map(work, range(6))
    assert ended == [0]


@pytest.mark.skipif(sys.platform != "linux", reason="the policies are Linux's")
@pytest.mark.parametrize("policy", ["SCHED_BATCH", "SCHED_OTHER"])
def test_threads_give_way_where_a_process_only_computes(policy: str) -> None:
    found = list[int]()

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def work() -> None:
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
        before = niceness()
        lower_priority()
        after = niceness()
        started = threading.Thread(target=lambda: found.append(niceness() - after))
        started.start()
        started.join()
        found.append(after - before)

    here = niceness()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    # Threads that they start inherit it; 19 is the maximum.
    assert found == [0, min(10, 19 - here) if policy == "SCHED_BATCH" else 0]
    assert niceness() == here


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_join_that_is_interrupted_does_not_end_a_thread() -> None:
    """Up to Python 3.12, Ctrl-C does that to :class:`threading.Thread`."""

    def interrupt(*_: object) -> None:
        raise ZeroDivisionError

    go = threading.Event()
    thread = DaemonThread(go.wait, "waits")
    assert not thread.is_alive()
    thread.start()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(ZeroDivisionError):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            thread.join(60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert thread.is_alive()
    child = os.fork()
    if child == 0:
        thread.join(60)
        os._exit(thread.is_alive())
    assert os.waitpid(child, 0) == (child, 0)
    go.set()
    thread.join(60)
    assert not thread.is_alive()
