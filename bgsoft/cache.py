"""The user's cache folder, and locks in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

CACHE_VARIABLE = "BGSOFT_CACHE"
"""Environment variable that moves the cache."""


def cache_root() -> Path:
    """Return the folder of cached files: ``$BGSOFT_CACHE``, or the user's own cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("bgsoft"))


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock, which the system releases when the process ends.

    Args:
        path: A file for the lock alone.
        on_wait: Called if another process holds it.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
