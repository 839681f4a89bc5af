"""Ctrl-C and SIGTERM, sent to a real process whose render waits to be cancelled."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, types
from bgsoft.errors import RenderCancelledError

def render(config, *, cancel, **_):
    print("rendering", flush=True)
    cancel.wait()
    print("cancelled", flush=True)
    if "stubborn" in config.output.name:
        cancel.clear()
        cancel.wait()
    raise RenderCancelledError("stop")

module = types.ModuleType("bgsoft.rendering")
module.render = render
sys.modules["bgsoft.rendering"] = module
from bgsoft.cli.main import main
sys.exit(main(["render", "in.mp4", sys.argv[1], "-q"]))
"""


def start(output: str, before: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", before + PROGRAM, output],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "rendering\n"
    return process


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 143, "terminated"),
    ],
)
def test_a_signal_cancels_the_render(number: signal.Signals, code: int, word: str) -> None:
    process = start("out.mp4")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == "cancelled\n"
    assert err == f"bgsoft: error: {word}; no output was written\n"


def test_a_second_signal_forces(tmp_path: Path) -> None:
    process = start("stubborn.mp4")
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cancelled\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines() == [
        "bgsoft: error: stopped by force; an unfinished file may be left behind"
    ]


def test_a_signal_that_is_switched_off_stays_off() -> None:
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = start("out.mp4", ignore)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
