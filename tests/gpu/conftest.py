"""The device that GPU tests run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def device() -> Any:
    """Device 0, or the error that there is none."""
    from bgsoft.errors import BackendUnavailableError

    try:
        from bgsoft.cuda.device import CudaDevice

        return CudaDevice(0)
    except (ImportError, BackendUnavailableError) as exc:
        return exc


class _Skipped(pytest.Module):
    """A module that is skipped as one: its cases need not be listed."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip(f"no GPU: {device()}", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Skip all modules where there is no GPU, unless each test shall say so by failing."""
    if os.environ.get("BGSOFT_REQUIRE_GPU") == "1" or not isinstance(device(), Exception):
        return None
    module: pytest.Module = _Skipped.from_parent(parent, path=module_path)
    return module


@pytest.fixture(scope="session")
def gpu() -> Any:
    """Device 0; tests are skipped where there is none."""
    found = device()
    if isinstance(found, Exception):
        pytest.skip(str(found))
    return found


@pytest.fixture
def stream(gpu: Any) -> Iterator[Any]:
    """The current one, as in a render."""
    made = gpu.new_stream()
    with gpu.use(made):
        yield made
