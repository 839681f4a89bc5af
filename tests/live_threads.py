"""Threads of live streams end soon after the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

_NAMES = ("bgsoft-capture", "bgsoft-picture", "bgsoft-sink", "bgsoft-close")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Fail if a thread is left after the longest time that a read may take."""
    yield
    until = time.monotonic() + 30
    while left := [each.name for each in threading.enumerate() if each.name.startswith(_NAMES)]:
        assert time.monotonic() < until, left
        time.sleep(0.02)
