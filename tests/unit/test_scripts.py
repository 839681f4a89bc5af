"""What scripts import from the package is there: they are run by hand, and by no other test."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_imports(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("bgsoft"):
            continue
        assert node.module is not None
        try:
            module = importlib.import_module(node.module)
        except ImportError as exc:
            if exc.name in ("cupy", "PyNvVideoCodec"):
                continue
            raise
        for name in node.names:
            assert hasattr(module, name.name) or importlib.import_module(
                f"{node.module}.{name.name}"
            ), f"{node.module} has no {name.name}"
