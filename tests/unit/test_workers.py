"""Threads that take pieces of work."""

from __future__ import annotations

import threading

from bgsoft.workers import Threads


def test_threads_take_so_many_pieces_at_a_time() -> None:
    go, running, most = threading.Event(), [0], [0]

    def work(number: int) -> int:
        running[0] += 1
        most[0] = max(most[0], running[0])
        go.wait(5)
        running[0] -= 1
        if number == 3:
            raise ValueError("three")
        return number

    with Threads(2, "test") as threads:
        pieces = [threads.submit(work, number) for number in range(5)]
        go.set()
        assert [piece.result(5) for piece in (*pieces[:3], pieces[4])] == [0, 1, 2, 4]
        assert str(pieces[3].exception(5)) == "three"
    assert most[0] <= 2


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
