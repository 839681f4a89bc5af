"""Samples and what is said about them: rounds that cancel drift, medians, noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

MIN_NOISE = 0.03
"""Relative; machines differ by so much from one hour to the next, however steady the samples."""


def interleaved(
    items: Sequence[T], rounds: int, what: str, tell: Callable[[str], None]
) -> Iterator[tuple[bool, T]]:
    """Every item once a round, every other round backwards; a round to warm up goes before.

    A machine that slows down or speeds up meanwhile does so for all items alike, and no item
    always follows the same one.

    Yields:
        (whether the round counts, item).
    """
    for number in range(rounds + 1):
        tell(f"{what}: round {number} of {rounds}" if number else f"{what}: warm-up")
        for item in items[:: 1 if number % 2 == 0 else -1]:
            yield number > 0, item


def median(samples: Sequence[float]) -> float | None:
    """The middle value; None of nothing."""
    return statistics.median(samples) if samples else None


def percentile(samples: Sequence[float], share: float) -> float | None:
    """The smallest sample that at least ``share`` of all are not above; None of nothing."""
    if not samples:
        return None
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def noise(samples: Sequence[float]) -> float:
    """How much of a difference samples like these say nothing about, relative to their median.

    Half of what the middle half of them spans, or half of all where they are three or fewer: the
    spread of single samples rather than the error of their median, since what differs between two
    runs of a benchmark (other programs, temperature) moves all samples of a run together.
    """
    middle = median(samples)
    if not middle:
        return 0.0
    if len(samples) <= 3:
        return (max(samples) - min(samples)) / 2 / abs(middle)
    low, _, high = statistics.quantiles(samples, n=4)
    return (high - low) / 2 / abs(middle)
