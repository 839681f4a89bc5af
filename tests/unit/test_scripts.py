"""Names that scripts import from the package and from one another exist."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "scripts"
SCRIPTS = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_imports(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module.partition(".")[0] not in ("bgsoft", "quality"):
            continue
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
