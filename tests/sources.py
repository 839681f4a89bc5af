"""The package's modules as syntax trees, parsed once for all tests that read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "bgsoft"


@cache
def tree(module: Path) -> ast.Module:
    """A module's syntax tree, which must not be changed."""
    return ast.parse(module.read_bytes())
