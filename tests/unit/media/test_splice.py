"""Other tracks follow the picture where a recording's clock restarts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from bgsoft.media.splice import SplicedClock

TICK = Fraction(1, 1000)
VIDEO, SOUND = 0, 1


@dataclass
class FakePacket:
    """The attributes of a packet that are read; PyAV's own cannot be given a stream number."""

    stream_index: int
    pts: int | None
    dts: int | None
    duration: int = 40
    time_base: Fraction = TICK


def packet(stream: int, milliseconds: int | None) -> Any:
    return FakePacket(stream, milliseconds, milliseconds)


def times(clock: SplicedClock, fed: list[tuple[int, int]]) -> list[int]:
    """Return the output times of sound in milliseconds, for (stream, time) in this order."""
    out: list[int] = []
    for stream, milliseconds in fed:
        fed_on = clock.feed(packet(stream, milliseconds))
        out += [p.pts for p in fed_on if p.stream_index == SOUND and p.pts is not None]
    out += [p.pts for p in clock.flush() if p.pts is not None]
    return out


def part(start: int, *, sound_first: bool = False) -> list[tuple[int, int]]:
    """A recording whose clock begins anywhere: sound 10 ms after each picture."""
    fed: list[tuple[int, int]] = []
    for offset in range(0, 5000, 40):
        pair = [(VIDEO, start + offset), (SOUND, start + offset + 10)]
        fed += reversed(pair) if sound_first else pair
    return fed


@pytest.mark.parametrize("sound_first", [False, True])
@pytest.mark.parametrize("restart", [0, 3000, 95_443_718])
def test_sound_follows_the_picture(restart: int, sound_first: bool) -> None:
    clock = SplicedClock(VIDEO, Fraction(1, 25))
    got = times(clock, [*part(10_000), *part(restart, sound_first=sound_first)])
    assert got == [10_010 + 40 * i for i in range(250)]


def test_late_sound_of_the_first_part_stays_in_it() -> None:
    clock = SplicedClock(VIDEO, Fraction(1, 25))
    first, second = part(10_000), part(2000)
    left_over = first.pop()
    second.insert(1, left_over)
    assert times(clock, [*first, *second]) == [10_010 + 40 * i for i in range(250)]


def test_jitter_and_real_gaps_are_left_alone() -> None:
    clock = SplicedClock(VIDEO, Fraction(1, 25))
    fed = [(VIDEO, 0), (SOUND, 0), (VIDEO, 80), (VIDEO, 40), (SOUND, 21), (VIDEO, 60_000)]
    fed += [(SOUND, 60_005), (VIDEO, 60_040)]
    assert times(clock, fed) == [0, 21, 60_005]


def test_packets_without_a_time_pass() -> None:
    clock = SplicedClock(VIDEO, Fraction(1, 25))
    nameless = packet(SOUND, None)
    assert clock.feed(nameless) == [nameless]


def test_sound_does_not_wait_for_ever() -> None:
    clock = SplicedClock(VIDEO, Fraction(1, 25))
    fed = [(VIDEO, 10_000), (SOUND, 10_000), *((SOUND, 20 * i) for i in range(600))]
    out = [p for stream, time in fed for p in clock.feed(packet(stream, time))]
    assert len(out) > 400
