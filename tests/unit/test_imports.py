"""Imports point one way: what is used by stages knows none of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "bgsoft"
STAGES = {"decode", "analysis", "segment", "face", "matte", "composite", "encode"}
ABOVE = {"pipeline", "stages", "rendering", "backends", "chunks", "jobs", "batch"} | {
    *("bench", "selftest", "cli"),
}


def imported(module: Path) -> set[str]:
    """Parts of the package that a module imports, at its top or later."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[1] for name in names if name and name.startswith("bgsoft.")}


@pytest.mark.parametrize(
    ("folder", "unknown"),
    [
        ("cuda", STAGES | ABOVE | {"infer", "media", "models"}),
        ("kernels", STAGES | ABOVE | {"infer", "media", "models", "cuda"}),
        ("infer", STAGES | ABOVE | {"media"}),
        ("media", STAGES | ABOVE | {"infer", "models", "cuda"}),
        ("pipeline", ABOVE - {"pipeline"}),
    ],
)
def test_a_floor_knows_nothing_of_those_above(folder: str, unknown: set[str]) -> None:
    for module in (PACKAGE / folder).glob("*.py"):
        assert not imported(module) & unknown, module.name


def test_one_render_knows_nothing_of_many() -> None:
    assert not imported(PACKAGE / "rendering.py") & {"chunks", "jobs", "batch", "cli"}
    for module in (PACKAGE / "jobs").glob("*.py"):
        assert not imported(module) & {"rendering", "chunks", "batch", "cli"}, module.name
    for module in (PACKAGE / "chunks").glob("*.py"):
        assert not imported(module) & {"batch", "cli"}, module.name
