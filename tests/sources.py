"""The package's modules as syntax trees, parsed once for all tests that read them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "bgsoft"


@cache
def tree(module: Path) -> ast.Module:
    """A module's syntax tree, which must not be changed."""
    parsed = ast.parse(module.read_bytes())
    gc.freeze()  # later collections skip the nodes, a million in all
    return parsed
