"""The device that GPU tests run on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def gpu() -> Any:
    """Device 0; tests are skipped where there is none."""
    pytest.importorskip("cupy", exc_type=ImportError)
    from bgsoft.cuda.device import CudaDevice
    from bgsoft.errors import BackendUnavailableError

    try:
        return CudaDevice(0)
    except BackendUnavailableError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def stream(gpu: Any) -> Iterator[Any]:
    """The current one, as in a render."""
    made = gpu.new_stream()
    with gpu.use(made):
        yield made
