"""NVIDIA's Multi-Process Service, with a program in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bgsoft.cuda.mps import shared_gpus
from tests.processes import is_running, wait_until

_SERVICE = """#!/bin/sh
test "$1" = -f || exit 9
echo $$ > "{pid}"
echo "${{CUDA_VISIBLE_DEVICES-all}}" > "{seen}"
{start}
exec sleep 60
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a program that stands in for the service; its files are next to it."""
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr("bgsoft.cuda.mps.DEFAULT_PIPES", tmp_path / "none")
    monkeypatch.setattr("bgsoft.cuda.mps.PROGRAM_FOLDERS", ())
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _write(tmp_path, 'touch "$CUDA_MPS_PIPE_DIRECTORY/control"')
    return tmp_path


def _write(folder: Path, start: str) -> None:
    program = folder / "nvidia-cuda-mps-control"
    text = _SERVICE.format(pid=folder / "pid", seen=folder / "seen", start=start)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)


def _runs(folder: Path) -> bool:
    return is_running((folder / "pid").read_text(encoding="utf-8").strip())


def test_the_service_runs_inside_the_block_only(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    notices: list[str] = []
    with shared_gpus(notices.append) as variables:
        folder = Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
        assert (folder / "control").exists()
        assert _runs(service)
        assert (service / "seen").read_text(encoding="utf-8").strip() == "all"
    assert not _runs(service)
    assert not folder.exists()
    assert not notices


def test_nothing_in_the_current_folder_is_run(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (service / "ctypes.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(service)
    with shared_gpus(pytest.fail) as variables:
        assert variables


def test_the_users_own_service_is_used(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somewhere")
    with shared_gpus(pytest.fail) as variables:
        assert variables == {}
    assert not (service / "pid").exists()


@pytest.mark.parametrize("start", ["exit 3", None])
def test_what_cannot_run_is_reported_once(service: Path, start: str | None) -> None:
    if start is None:
        (service / "nvidia-cuda-mps-control").unlink()
    else:
        _write(service, start)
    notices: list[str] = []
    with shared_gpus(notices.append) as variables:
        assert variables == {}
    (notice,) = notices
    assert ("exit code 3" if start else "not installed") in notice


def test_the_service_ends_with_a_parent_that_is_killed(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(service))  # nobody is left to clear it
    program = (
        "import time; from bgsoft.cuda.mps import shared_gpus\n"
        "with shared_gpus(print): print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        assert _runs(service)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not _runs(service))
