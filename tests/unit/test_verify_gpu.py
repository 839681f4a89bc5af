"""``scripts/verify_gpu.py`` where there is no GPU, and how it judges."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bgsoft import backends
from bgsoft.errors import BackendUnavailableError, VerificationError
from bgsoft.selftest import checks, parity
from bgsoft.selftest.checks import Checks, SkippedError

SCRIPT = Path(__file__).parents[2] / "scripts" / "verify_gpu.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["verify_gpu"] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


Main = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def main(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Main:
    """Runs the script on a machine without a GPU."""
    for module in (backends, checks):
        monkeypatch.setattr(module, "driver_problem", lambda _gpu: "no NVIDIA GPU found")

    def run(*argv: str) -> tuple[int, dict[str, Any]]:
        target = tmp_path / "result.json"
        monkeypatch.setattr(sys, "argv", ["verify_gpu.py", "--json", str(target), *argv])
        return script.main(), json.loads(target.read_text())

    return run


def test_without_a_gpu_the_cpu_rows_pass(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = main()
    rows = result["rows"]
    assert code == 0
    assert result["counts"]["FAIL"] == 0, capsys.readouterr().out
    for row in rows:
        on_cpu = row["group"] not in ("parity", "memory", "exit") and row["name"] != "GPU"
        words = set(row["name"].split())
        on_cpu = on_cpu and not words & {"nvdec", "cuda", "tensorrt", "nvenc"}
        assert row["status"] == ("pass" if on_cpu else "skip"), row
        if not on_cpu:
            assert row["detail"] == "no NVIDIA GPU found"
    assert len([row for row in rows if row["group"] == "combinations"]) == 24
    assert {row["group"] for row in rows} == {
        *("environment", "decode", "inference", "parity", "mattes"),
        *("encode", "combinations", "memory", "exit"),
    }


def test_a_gpu_can_be_required(main: Main) -> None:
    code, result = main("--require-gpu", "--only", "exit")
    assert code == 1
    assert result["counts"] == {"pass": 0, "FAIL": 0, "skip": 1}


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (BackendUnavailableError("it does not load"), "FAIL", "it does not load"),
        (VerificationError("too far"), "FAIL", "too far"),
        (SkippedError("no GPU"), "skip", "no GPU"),
        (RuntimeError("CUDA\n error 700"), "FAIL", "RuntimeError: CUDA error 700"),
    ],
)
def test_rows(script: ModuleType, error: Exception, status: str, detail: str) -> None:
    def check() -> str:
        raise error

    row = script.run_row("group", "name", check, False)
    assert (row.status, row.detail) == (status, detail)


def test_what_the_gpu_says_it_lacks_is_skipped(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    def encoder_caps(_gpu: int, codec: str) -> dict[str, int]:
        raise BackendUnavailableError(f"NVENC: none for {codec}")

    monkeypatch.setattr(checks, "encoder_caps", encoder_caps)
    monkeypatch.setattr(checks, "decoder_caps", lambda *_: {"supported": 0})
    monkeypatch.setattr(Checks, "need", lambda *_: None)
    _, result = main("--only", "encode", "decode")
    on_gpu = [row for row in result["rows"] if row["name"].startswith("nv")]
    assert {row["status"] for row in on_gpu} == {"skip"}
    assert "NVENC: none for h264" in {row["detail"] for row in on_gpu}
    assert "NVDEC: this GPU does not decode AV1 at 8 bits" in {row["detail"] for row in on_gpu}


def test_a_gpu_that_is_named_has_to_be_there(main: Main) -> None:
    with pytest.raises(SystemExit) as ended:
        main("--gpu", "5")
    assert ended.value.code == 4


def test_comparisons_are_judged_one_by_one(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU in place of the GPU: every row is there, and equal."""
    monkeypatch.setattr(Checks, "need", lambda *_: None)
    monkeypatch.setattr(Checks, "device", None)
    monkeypatch.setattr(parity, "CudaSide", lambda _device: parity.HostSide())
    code, result = main("--only", "parity")
    assert code == 0
    assert result["counts"]["pass"] == 2 * (4 + len(parity.EFFECTS))
