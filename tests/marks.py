"""Marks for single cases of a parametrised test."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def slow(*values: object) -> Any:
    """A case that is left out unless slow tests are asked for; another is quicker."""
    return pytest.param(*values, marks=pytest.mark.slow)


def crossed(**values: Iterable[object]) -> pytest.MarkDecorator:
    """All combinations of some parameters, most of them slow.

    Fast are as many as the longest parameter has values: each value of each parameter is in one.
    """
    lists = [list(each) for each in values.values()]
    longest = max(map(len, lists))
    fast = {
        # Shifted after each turn, so that parameters of one length do not go together.
        tuple((turn + turn // len(each) * at) % len(each) for at, each in enumerate(lists))
        for turn in range(longest)
    }
    cases = []
    for places in product(*(range(len(each)) for each in lists)):
        given = [each[place] for each, place in zip(lists, places, strict=True)]
        cases.append(pytest.param(*given) if places in fast else slow(*given))
    return pytest.mark.parametrize(tuple(values), cases)
