"""Parts of a start end together, fail in order, and are timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from bgsoft.errors import DecodeError, EncodeError, InferenceError, RenderCancelledError
from bgsoft.startup import StartupPool, logged, process_start_ns, span


class Made:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def failing(error: Exception, after: threading.Event | None = None) -> Callable[[], Made]:
    def make() -> Made:
        if after is not None:
            after.wait(5)
        raise error

    return make


def test_parts_are_made_next_to_each_other() -> None:
    both = threading.Barrier(3, timeout=5)
    with StartupPool() as pool:
        begun = [pool.submit(name, both.wait) for name in ("one", "other")]
        both.wait()
    assert sorted(part.result() for part in begun) in ([0, 1], [0, 2], [1, 2])


def test_the_part_begun_first_tells_its_error_however_late_it_comes() -> None:
    late = threading.Event()
    with pytest.raises(DecodeError, match="first"), StartupPool() as pool:
        pool.submit("decoder", failing(DecodeError("first"), late))
        pool.submit("stages", failing(InferenceError("second")))
        late.set()
        raise EncodeError("third")


def test_a_part_that_waits_no_more_says_nothing_of_why() -> None:
    stopped = threading.Event()

    def wait() -> None:
        stopped.wait(5)
        raise RenderCancelledError("interrupted")

    with pytest.raises(DecodeError, match="broken"), StartupPool(stopped.set) as pool:
        pool.submit("output", wait)
        pool.submit("decoder", failing(DecodeError("broken")))
    stopped.clear()
    with pytest.raises(EncodeError, match="third"), StartupPool(stopped.set) as pool:
        pool.submit("output", wait)
        raise EncodeError("third")


def test_the_body_tells_its_own_error_where_no_part_failed() -> None:
    made = Made()
    with pytest.raises(EncodeError), StartupPool() as pool:
        pool.submit("decoder", lambda: made)
        raise EncodeError("third")
    assert made.closed == 1


def test_a_part_may_begin_another_after_the_body_has_failed() -> None:
    failed, made = threading.Event(), Made()

    def make() -> None:
        failed.wait(5)
        time.sleep(0.02)
        pool.submit("inner", lambda: made)

    with pytest.raises(EncodeError), StartupPool() as pool:
        pool.submit("outer", make)
        failed.set()
        raise EncodeError("x")
    assert made.closed == 1


def test_an_error_taken_by_the_body_is_raised_once() -> None:
    with pytest.raises(InferenceError) as caught, StartupPool() as pool:
        pool.submit("stages", failing(InferenceError("x"))).result()
    assert caught.value.__context__ is None


def test_an_interruption_counts_more_than_a_failed_part() -> None:
    with pytest.raises(KeyboardInterrupt), StartupPool() as pool:
        pool.submit("stages", failing(InferenceError("x")))
        raise KeyboardInterrupt


def test_nothing_is_closed_where_all_went_well() -> None:
    made = Made()
    with StartupPool() as pool:
        part = pool.submit("decoder", lambda: made)
    assert part.result() is made
    assert made.closed == 0


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    with pytest.raises(EncodeError), StartupPool() as pool:
        for _ in range(20):
            pool.submit("slow", lambda: time.sleep(0.01))
        raise EncodeError("x")
    assert threading.active_count() == before


def test_spans_of_a_thread_and_of_its_parts_are_kept() -> None:
    with span("nobody asks"):
        pass
    with logged() as spans:
        with logged() as inner, StartupPool() as pool, span("body"):
            pool.submit("part", lambda: None)
        assert inner is spans
    assert {each.name for each in spans} == {"body", "part"}
    assert {each.thread for each in spans} > {threading.current_thread().name}
    assert all(each.started_ns <= each.ended_ns for each in spans)


def test_the_process_began_before_now_and_not_long_ago() -> None:
    age = (time.perf_counter_ns() - process_start_ns()) / 1e9
    assert abs(age - (time.clock_gettime(time.CLOCK_BOOTTIME) - _started())) < 0.1
    assert age > 0


def _started() -> float:
    import os
    from pathlib import Path

    fields = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
