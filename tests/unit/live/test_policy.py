"""Decisions while a stream runs, with scripted clocks."""

from __future__ import annotations

import threading

import pytest

from bgsoft.live.policy import (
    LADDER,
    Backoff,
    Deadline,
    Ladder,
    LagMeter,
    Newest,
    Quality,
    StreamClock,
    skip_at,
)


def test_the_newest_item_takes_the_place_of_what_nobody_took() -> None:
    ready = threading.Event()
    newest: Newest[int] = Newest(ready)
    assert newest.take() is None
    for item in range(5):
        newest.put(item)
    assert ready.is_set()
    assert (newest.take(), newest.dropped) == (4, 4)
    assert newest.take() is None
    newest.put(5)
    assert (newest.take(), newest.dropped) == (5, 4)
    newest.clear()
    newest.put(6)
    newest.clear()
    assert (newest.take(), newest.dropped) == (None, 5)


def test_waits_double_up_to_the_most_and_begin_again() -> None:
    backoff = Backoff(0.25, 5.0)
    assert [backoff.wait_seconds() for _ in range(7)] == [0.25, 0.5, 1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.wait_seconds() == 0.25


@pytest.mark.parametrize(
    ("lag", "before", "after"),
    [
        (0.0, "DEFAULT", "DEFAULT"),
        (0.09, "DEFAULT", "DEFAULT"),
        (0.11, "DEFAULT", "NONREF"),
        (0.09, "NONREF", "NONREF"),
        (0.03, "NONREF", "DEFAULT"),
        (0.6, "DEFAULT", "NONKEY"),
        (0.2, "NONKEY", "NONKEY"),
        (0.03, "NONKEY", "DEFAULT"),
    ],
)
def test_a_decoder_that_is_late_leaves_out_until_it_has_caught_up(
    lag: float, before: str, after: str
) -> None:
    assert skip_at(lag, before) == after


def test_a_late_picture_is_dropped_unless_there_was_none_for_long() -> None:
    deadline = Deadline()
    asked = [(0.0, 3.0), (0.1, 0.05), (0.2, 0.11), (0.9, 0.3), (1.05, 0.3), (1.2, 0.3), (1.3, 0.0)]
    allowed = [deadline.allows(now, lag) for now, lag in asked]
    assert allowed == [True, True, False, False, True, False, True]


def test_lag_is_what_a_reader_is_behind_its_best() -> None:
    lag = LagMeter()
    assert [round(lag.note(100 + t, 7 + t), 6) for t in (0.0, 0.04, 0.08)] == [0, 0, 0]
    assert lag.note(100.4, 7.1) == pytest.approx(0.3)
    # Clocks drift, so the smallest delay of ten seconds ago no longer counts.
    assert lag.note(110.5, 17.2) == pytest.approx(0.0)
    # The source's clock is set anew: that is no lag.
    assert lag.note(111.0, 500.0) == 0.0
    assert lag.note(111.5, 0.0) == 0.0


@pytest.mark.parametrize(
    ("waited", "lags"),
    [(0.03, [0, 0, 0]), (0.001, [0.25, 1.5, 0.5]), (0.015, [0.25, 1.5, 0.5])],
)
def test_who_waits_for_data_is_not_late(waited: float, lags: list[float]) -> None:
    """A network may get slower, a source's clock may step back, or run faster than the source.

    Waits that are a small part of the time between frames may be those for the interpreter.
    """
    sources = (
        lambda n: n / 25 - (0.25 if n >= 20 else 0),
        lambda n: n / 25 - (1.5 if n >= 20 else 0),
        lambda n: n / 50,
    )
    for time_of, expected in zip(sources, lags, strict=True):
        lag = LagMeter()
        seen = [lag.note(n / 25, time_of(n), waited) for n in range(26)]
        assert seen[-1] == pytest.approx(expected)


def test_times_are_the_sources_own_while_they_agree_with_ours() -> None:
    clock = StreamClock(1000)
    arrived = [50.0, 50.05, 50.07, 50.13]  # jitter
    assert [clock.stamp(9 + n / 25, at) for n, at in enumerate(arrived)] == [0, 40, 80, 120]


def test_times_count_from_the_first_picture_that_came() -> None:
    clock = StreamClock(1000)
    clock.begin(9.0, 50.0)
    assert [clock.stamp(9.48, 50.5), clock.stamp(9.52, 50.5)] == [480, 520]
    clock.begin(11.0, 52.0)
    assert clock.stamp(11.0, 52.0) == 2000


def test_a_clock_that_jumps_continues_by_ours_and_rises() -> None:
    clock = StreamClock(1000)
    stamps = [clock.stamp(seconds, at) for seconds, at in ((5.0, 0.0), (5.04, 0.04), (-90.0, 0.08))]
    stamps += [clock.stamp(seconds, at) for seconds, at in ((-89.96, 0.12), (1e9, 0.16))]
    assert stamps == [0, 40, 80, 120, 160]
    assert clock.stamp(1e9, 0.16) == 162  # the same time twice
    assert clock.stamp(float("nan"), 0.2) == 200
    assert clock.stamp(None, 3.0) == 3000
    assert clock.stamp(1e9 + 0.01, 3.01) == 3010


def check(ladder: Ladder, now: float, *, dropped: float, busy: float) -> int:
    """Return the level after a second at 30 frames, of which a share is dropped."""
    frames, lost, seconds = TOTALS.get(ladder, (0, 0, 0.0))
    TOTALS[ladder] = frames + 30, lost + round(30 * dropped), seconds + busy
    ladder.check(now, *TOTALS[ladder])
    return ladder.level


TOTALS: dict[Ladder, tuple[int, int, float]] = {}


def test_drops_step_quality_down_in_order_and_idleness_brings_it_back() -> None:
    ladder = Ladder(0.0)
    # Frames dropped while models load do not count.
    assert check(ladder, 1.0, dropped=1.0, busy=1.0) == 0
    for second, level in ((2.0, 1), (3.0, 2), (4.0, 3), (5.0, 4), (6.0, 4)):
        assert check(ladder, second, dropped=0.5, busy=1.0) == level
        assert ladder.quality == LADDER[level]
    # Quality does not rise while the machine is busy, even if nothing is dropped.
    assert all(check(ladder, 7.0 + n, dropped=0.0, busy=0.9) == 4 for n in range(20))
    levels = [check(ladder, 30.0 + n, dropped=0.0, busy=0.3) for n in range(25)]
    assert levels == [4] * 5 + [3] * 5 + [2] * 5 + [1] * 5 + [0] * 5
    assert LADDER[0] == Quality()


def test_a_step_up_that_was_too_much_is_tried_again_later() -> None:
    ladder = Ladder(0.0, LADDER[:2])
    check(ladder, 1.0, dropped=0.0, busy=0.1)
    now, waits = 1.0, []
    for _ in range(3):
        now += 1.0
        assert check(ladder, now, dropped=0.5, busy=1.0) == 1
        began = now
        while ladder.level:
            now += 1.0
            check(ladder, now, dropped=0.0, busy=0.1)
        waits.append(now - began)
    assert waits == [6.0, 11.0, 21.0]


def test_nothing_is_decided_within_a_second() -> None:
    ladder = Ladder(0.0)
    assert not ladder.check(0.9, 30, 30, 1.0)
    assert not ladder.check(1.0, 30, 30, 1.0)
    assert not ladder.check(1.5, 60, 60, 1.0)
    assert ladder.check(2.0, 60, 60, 1.0)
