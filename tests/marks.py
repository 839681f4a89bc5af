"""Marks for single cases of a parametrised test."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: object) -> Any:
    """A case that is left out unless slow tests are asked for; another is quicker."""
    return pytest.param(*values, marks=pytest.mark.slow)
