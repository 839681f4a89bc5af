"""Side effects of ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bgsoft.errors import ModelError
from bgsoft.infer.cpu import CpuNetwork

PROGRAM = """
import bgsoft.infer.cpu, time
from bgsoft.models.catalog import EMBEDDED
bgsoft.infer.cpu.CpuNetwork(EMBEDDED / "selfie_general.onnx", {"image": (1, 3, 256, 256)}).run()
time.sleep(1)
"""


def test_nothing_calls_home(tmp_path: Path) -> None:
    """Official builds leave an identifier and a database of events in the cache."""
    environment = {"HOME": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*"))


def test_a_damaged_model_is_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        CpuNetwork(path, {"x": (1, 3, 16, 16)})
    assert capfd.readouterr() == ("", "")
