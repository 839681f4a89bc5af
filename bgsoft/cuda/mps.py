"""NVIDIA's Multi-Process Service, with which several processes use a GPU at the same time.

Without it they take turns: eight renders on an H100 made 684 frames/s in total, and 1,239 with the
service. It needs no privileges and does not affect other programs: clients find it through their
environment. See https://docs.nvidia.com/deploy/mps/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTROL = "nvidia-cuda-mps-control"
PROGRAM_FOLDERS = (Path("/usr/local/nvidia/bin"), Path("/usr/lib/wsl/lib"))
"""Folders of the driver's programs in containers."""
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPES = Path("/tmp/nvidia-mps")
_START_SECONDS, _END_SECONDS = 5.0, 5.0
_NOTICE = "the GPU's processes take turns, as NVIDIA's MPS cannot run: {}"
_DIES_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
"""prctl(PR_SET_PDEATHSIG, SIGTERM), which survives exec; the parent may have ended before."""


@contextmanager
def shared_gpus(on_notice: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """Run the service during the block; ``on_notice`` receives the reason if it cannot run.

    Yields:
        Environment variables that processes need before they use CUDA; empty if the user runs the
        service already, or it cannot run.
    """
    if _PIPES in os.environ or (DEFAULT_PIPES / "control").exists():
        yield {}
        return
    folders = [*os.get_exec_path(), *map(str, PROGRAM_FOLDERS)]
    path = shutil.which(_CONTROL, path=os.pathsep.join(folders))
    if path is None:
        on_notice(_NOTICE.format("it is not installed"))
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="bgsoft-mps-", ignore_cleanup_errors=True) as name:
        variables = {_PIPES: name, _LOGS: name}
        daemon = _start(path, variables)
        try:
            problem = _wait(daemon, Path(name, "control"))
            if problem:
                on_notice(_NOTICE.format(problem))
            yield {} if problem else variables
        finally:
            daemon.terminate()
            try:
                daemon.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _start(path: str, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **variables}
    # The service sees all GPUs, and each client chooses among them. If both were limited, the
    # client would count among those that the service sees.
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    # Without the folder's ctypes.py, and without searching installed packages.
    own = [sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT, str(os.getpid())]
    return subprocess.Popen(
        [*own, path, "-f"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not end it before its clients
    )


def _wait(daemon: subprocess.Popen[bytes], socket: Path) -> str:
    """Wait until clients can connect; return an error's text, or empty."""
    until = time.monotonic() + _START_SECONDS
    while not socket.exists():
        code = daemon.poll()
        if code is not None:
            return f"it ended with exit code {code}"
        if time.monotonic() > until:
            return f"it did not start within {_START_SECONDS:g} s"
        time.sleep(0.005)
    return ""
