"""Repair of timestamps that are missing or do not rise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgsoft.decode.stream import TimedPicture, rising_pts


def run(
    stamps: list[int | None],
    durations: list[int] | None = None,
    dts: list[int | None] | None = None,
) -> list[TimedPicture[Any]]:
    pictures = [
        SimpleNamespace(
            number=index,
            pts=pts,
            dts=dts[index] if dts else None,
            duration=durations[index] if durations else 0,
        )
        for index, pts in enumerate(stamps)
    ]
    return list(rising_pts(cast(Any, pictures), frame_ticks=40, jump_ticks=1000, leap_ticks=20_000))


@pytest.mark.parametrize(
    ("given_pts", "want"),
    [
        ([0, 40, 80], [0, 40, 80]),
        ([-200, -160, 7, 8], [-200, -160, 7, 8]),
        ([0, None, 80], [0, 40, 80]),
        ([None, None, 80, 120], [0, 40, 80, 120]),
        ([None, None, 10], [-70, -30, 10]),
        ([None, None, None], [0, 40, 80]),
        ([0, 40, 40, 80], [0, 40, 60, 80]),
        ([0, 40, 30, 80], [0, 40, 60, 80]),
        ([5000, 5040, 0, 40, 80], [5000, 5040, 5080, 5120, 5160]),
        ([5000, 5040, 4100, 5080], [5000, 5040, 5060, 5080]),
        ([0, 40, 90_000, 90_040], [0, 40, 80, 120]),
        ([], []),
    ],
)
def test_repairs(given_pts: list[int | None], want: list[int]) -> None:
    got = run(given_pts)
    assert [timed.pts for timed in got] == want
    assert [timed.picture.number for timed in got] == list(range(len(want)))
    repaired = [pts != new for pts, new in zip(given_pts, want, strict=True)]
    assert [timed.repaired for timed in got] == repaired


def test_a_jump_is_reported_once() -> None:
    assert [s.jumped for s in run([5000, 5040, 0, 40])] == [False, False, True, False]


def test_own_duration_goes_before_the_nominal_one() -> None:
    assert [s.pts for s in run([0, None, None], durations=[10, 30, 30])] == [0, 10, 40]


def test_dts_is_second_best() -> None:
    got = run([None, None], dts=[100, 150])
    assert [(s.pts, s.repaired) for s in got] == [(100, True), (150, True)]


@given(st.lists(st.none() | st.integers(-5000, 5000), max_size=60))
def test_always_rises_and_keeps_every_item(stamps: list[int | None]) -> None:
    got = run(stamps)
    assert [timed.picture.number for timed in got] == list(range(len(stamps)))
    pts = [timed.pts for timed in got]
    assert pts == sorted(set(pts))
