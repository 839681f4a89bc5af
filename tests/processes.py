"""Other processes and threads: running Python, and waiting for what they do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
"""Folder from which the package can be imported, installed or not."""
Value = TypeVar("Value")


def run_python(
    *arguments: object, environment: Mapping[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python with the package in its path; ``more`` goes to :func:`subprocess.run`."""
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    given |= {"env": env, "timeout": 120, "check": False, **more}
    return subprocess.run([sys.executable, *map(str, arguments)], **given)


def is_running(pid: int | str) -> bool:
    """Return whether a process exists, and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], Value]) -> Value:
    """Return a condition's value once it is true; fail after a minute."""
    until = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return value
