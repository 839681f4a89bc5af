"""Tests run with other plugins of pytest than ours."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_configure


def test_pytest_may_have_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the cache has a folder for compiled modules."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    plugins = pytest.PytestPluginManager()
    config: Any = SimpleNamespace(
        option=SimpleNamespace(markexpr=""), args=[], pluginmanager=plugins
    )
    pytest_configure(config)
    assert "PYTHONPYCACHEPREFIX" not in os.environ
