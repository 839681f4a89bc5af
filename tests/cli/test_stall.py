"""A render ends although one of its stages hangs, and leaves no files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.face_clips import SAMPLE
from tests.marks import slow

PROGRAM = """
import sys, threading
where, *argv = sys.argv[1:]

def hang(original):
    def body(self, *args):
        body.calls += 1
        if body.calls > 5:
            print("hanging", flush=True)
            threading.Event().wait()
        return original(self, *args)
    body.calls = 0
    return body

if where == "decode":
    from bgsoft.decode.cpu import CpuDecoder as Stage
    name = "_write"
elif where == "encode":
    from bgsoft.encode.cpu import CpuEncoder as Stage
    name = "encode"
else:
    from bgsoft.composite.compositor import PictureCompositor as Stage
    name = "_blend"
setattr(Stage, name, hang(getattr(Stage, name)))
sys.argv[1:] = argv
from bgsoft.cli.main import run
run()
"""


def start(where: str, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, where, "render", str(SAMPLE), *argv, "-q"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("where", ["decode", slow("composite")])
def test_the_stage_that_stands_still_is_named(tmp_path: Path, where: str) -> None:
    process = start(where, str(tmp_path / "new" / "out.mp4"), "--stall", "1")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == (f"bgsoft: error: {where}: stalled: no frame for 1 s; see --stall\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_does_not_wait_for_it(tmp_path: Path) -> None:
    process = start("encode", str(tmp_path / "out.mp4"), "--stall", "off")
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "bgsoft: error: interrupted; no output was written\n"
    assert list(tmp_path.iterdir()) == []
