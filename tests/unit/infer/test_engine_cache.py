"""Several processes want the same TensorRT engine; ONNX Runtime is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.marks import slow
from tests.processes import ROOT, wait_until

ENGINE = "whole engine"
_CHILD = """
import json, os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from bgsoft.infer import sessions
from bgsoft.infer.base import GpuModel

engine, marks, dies = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "dies"
done, told = [], []

def session(model, sess_options, providers, enable_fallback):
    name, options = providers[0]
    file = Path(options["trt_engine_cache_path"]) / "model.engine"
    if file.exists():
        assert file.read_text() == engine
        done.append("loaded")
    else:
        with file.open("w") as out:
            out.write(engine[:5])
            out.flush()
            (marks / f"building {os.getpid()}").touch()
            until = time.monotonic() + 60
            while not (marks / "go on").exists():
                assert time.monotonic() < until
                time.sleep(0.01)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            out.write(engine[5:])
        done.append("built")
    return SimpleNamespace(get_providers=lambda: [name])

def on_notice(text):
    told.append(text)
    (marks / f"told {os.getpid()}").touch()

sessions.ort.InferenceSession = session
sessions.missing_provider = lambda backend: None
sessions.preload_libraries = lambda: None
sessions.tensorrt_version = lambda: "0"
device = SimpleNamespace(number=0, name="stub", compute_capability="90")
model = GpuModel(
    path=Path("model.onnx"),
    shapes={"x": (1,)},
    backend="tensorrt",
    device=device,
    on_notice=on_notice,
)
sessions.open_session(model, 0)
print(json.dumps({"done": done, "told": told}))
"""
BUILDING = "building the TensorRT engine, once, about a minute"
WAITING = "another process is building the TensorRT engine: waiting for it"


def start(top: Path, *, dies: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, ENGINE, str(top), "dies" if dies else "lives"],
        env={**os.environ, "BGSOFT_CACHE": str(top / "cache")},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(top: Path, pattern: str, count: int) -> None:
    wait_until(lambda: len(list(top.glob(pattern))) >= count)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("dies", [slow(False), True])
def test_processes_that_want_one_engine_build_it_once(tmp_path: Path, dies: bool) -> None:
    """If the building process is killed, a waiting one builds it."""
    first = start(tmp_path, dies=dies)
    wait_for(tmp_path, "building *", 1)
    others = [start(tmp_path) for _ in range(2)]
    wait_for(tmp_path, "told *", 3)
    (tmp_path / "go on").touch()
    if dies:
        first.communicate(timeout=60)
        assert first.returncode == -signal.SIGKILL
    else:
        assert outcome(first) == {"done": ["built"], "told": [BUILDING]}
    loaded = {"done": ["loaded"], "told": [WAITING]}
    found = sorted(map(outcome, others), key=lambda each: each["done"])
    built = {"done": ["built"], "told": [WAITING, BUILDING]}
    assert found == ([built, loaded] if dies else [loaded, loaded])
    (engine,) = (tmp_path / "cache").rglob("*.engine")
    assert engine.read_text() == ENGINE
    assert not list((tmp_path / "cache").rglob("*.building"))
