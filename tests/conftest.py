"""Fixtures and rules for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where synthesised clips are kept for the whole session."""
    return tmp_path_factory.mktemp("clips")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """With BGSOFT_REQUIRE_GPU=1, a skipped GPU test is a failure, unless it wants a second GPU."""
    report = yield
    required = os.environ.get("BGSOFT_REQUIRE_GPU") == "1"
    marker = item.get_closest_marker("gpu")
    if required and report.skipped and marker and marker.kwargs.get("devices", 1) == 1:
        report.outcome = "failed"
        report.longrepr = f"skipped although BGSOFT_REQUIRE_GPU=1: {report.longrepr}"
    return report
