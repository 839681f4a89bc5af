"""How long the tests run that can run for longer: kills, hostile inputs, memory."""

from __future__ import annotations

from typing import NamedTuple


class Endurance(NamedTuple):
    size: float
    """How many times as long as by default."""
    seed: int
    """Seed of a test's random actions."""
    case: int | None
    """The hostile input to run alone."""

    def times(self, count: int) -> int:
        return max(1, round(count * self.size))
