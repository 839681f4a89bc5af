"""Imports point one way: packages form no circle, and lower ones import no higher ones."""

from __future__ import annotations

import ast
import functools
import graphlib
from pathlib import Path

import pytest

from tests.sources import PACKAGE, tree

STAGES = {"decode", "analysis", "segment", "face", "matte", "composite", "encode"}
ABOVE = {"pipeline", "rendering", "chunks", "batch", "bench", "diagnose", "cli"}
LAZY: dict[tuple[str, str], str] = {}
"""(importing package, imported one) → why the circle that it makes is all right; none is now."""


@functools.cache
def import_nodes(module: Path) -> list[ast.ImportFrom]:
    """The imports of a module, at its top or later, in functions and for types only too."""
    return [node for node in ast.walk(tree(module)) if isinstance(node, ast.ImportFrom)]


def imported(module: Path) -> set[str]:
    nodes = import_nodes(module)
    names = [node.module for node in nodes if node.module and node.module.startswith("bgsoft.")]
    names += [f".{name.name}" for node in nodes if node.module == "bgsoft" for name in node.names]
    return {name.split(".")[1] for name in names}


def test_no_circle_between_packages() -> None:
    uses: dict[str, set[str]] = {}
    for module in PACKAGE.rglob("*.py"):
        package = module.relative_to(PACKAGE).with_suffix("").parts[0]
        found = imported(module) - {package, "__version__"}
        uses.setdefault(package, set()).update(
            name for name in found if (package, name) not in LAZY
        )
    graphlib.TopologicalSorter(uses).prepare()  # CycleError names the circle


def imported_modules(module: Path) -> set[str]:
    """Names of the modules of the package that a module imports, and of what it takes from them."""
    found = {(node.module or "", name.name) for node in import_nodes(module) for name in node.names}
    return {text for source, name in found for text in (source, f"{source}.{name}")}


def test_no_circle_between_modules() -> None:
    names = {
        ".".join(module.relative_to(PACKAGE.parent).with_suffix("").parts): module
        for module in PACKAGE.rglob("*.py")
    }
    uses = {name: imported_modules(module) & names.keys() for name, module in names.items()}
    graphlib.TopologicalSorter(uses).prepare()  # CycleError names the circle


@pytest.mark.parametrize(
    ("folder", "unknown"),
    [
        ("cuda", STAGES | ABOVE | {"infer", "media", "models"}),
        ("ops", STAGES | ABOVE | {"infer", "media", "models", "cuda"}),
        ("infer", STAGES | ABOVE | {"media"}),
        ("hide", STAGES | ABOVE | {"infer", "models"}),
        ("media", STAGES | ABOVE | {"infer", "models", "cuda"}),
        ("settings", STAGES | ABOVE | {"infer", "media", "models", "cuda"}),
        ("pipeline", ABOVE - {"pipeline"}),
    ],
)
def test_a_floor_knows_nothing_of_those_above(folder: str, unknown: set[str]) -> None:
    for module in (PACKAGE / folder).glob("*.py"):
        assert not imported(module) & unknown, module.name


def test_dataclasses_and_named_tuples_are_those_of_records() -> None:
    """Those of the standard library take milliseconds to create, in every process."""
    for module in PACKAGE.rglob("*.py"):
        names = {(node.module, name.name) for node in import_nodes(module) for name in node.names}
        slow = names & {("dataclasses", "dataclass"), ("typing", "NamedTuple")}
        # The build runs build.py where nothing else of the package can be imported.
        assert not slow or module.name in ("records.py", "build.py"), module.name
