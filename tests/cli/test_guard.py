"""A library that crashes takes its own process down, not the command: real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.face_clips import SAMPLE
from tests.marks import slow
from tests.processes import run_python, wait_until

CRASHES = """
import os, signal, sys
import bgsoft.decode.cpu

def crash(*_arguments, **_options):
    {crash}

bgsoft.decode.cpu.CpuDecoder._decode = crash
sys.argv[0] = "bgsoft"
from bgsoft.cli.main import run
run()
"""


def run(crash: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONFAULTHANDLER": ""}  # it would write a report of its own
    return run_python("-c", CRASHES.format(crash=crash), *arguments, environment=own)


@pytest.mark.parametrize(
    ("crash", "code", "reason"),
    [
        ("os.abort()", 3, "crashed (SIGABRT)"),
        slow("os.kill(os.getpid(), signal.SIGSEGV)", 3, "crashed (SIGSEGV)"),
        slow("os.kill(os.getpid(), signal.SIGKILL)", 1, "was killed (SIGKILL"),
    ],
)
def test_a_crash_is_one_line(tmp_path: Path, crash: str, code: int, reason: str) -> None:
    out = tmp_path / "new" / "out.mp4"
    done = run(crash, "render", SAMPLE, out, "--matte-out", tmp_path / "matte.mkv", "-q")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"bgsoft: error: cannot render {SAMPLE}: its process {reason}")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_crash_in_a_sequence_leaves_no_folder(tmp_path: Path) -> None:
    done = run("os.abort()", "render", SAMPLE, tmp_path / "frames" / "%05d.png", "-q")
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


WAITS = """
import sys, time
import bgsoft.chunks.run

def wait(config, **_options):
    print("rendering", flush=True)
    time.sleep(60)

bgsoft.chunks.run.render_config = wait
sys.argv[0] = "bgsoft"
from bgsoft.cli.main import run
run()
"""


def test_killing_the_command_ends_its_child(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, "render", SAMPLE, tmp_path / "out.mp4", "-q"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "rendering\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.kill()
    process.wait(10)
    assert process.stdout.read() == ""  # the child's end is closed, too
    process.stdout.close()
    for _ in range(100):
        if not Path("/proc", children[0]).exists():
            return
        time.sleep(0.05)
    pytest.fail("the child lives on")


IN_TERMINAL = """
import fcntl, os, sys, termios, time
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import bgsoft.chunks.run

def refuse_to_stop(config, cancel, **_options):
    config.output.with_name(".out.mp4.00000000.part.mp4").touch()
    print("rendering", flush=True)
    cancel.wait()
    print("cancelled", flush=True)
    time.sleep(60)

bgsoft.chunks.run.render_config = refuse_to_stop
sys.argv[0] = "bgsoft"
from bgsoft.cli.main import run
run()
"""


def waits(pid: int, number: signal.Signals) -> bool:
    """Return whether a signal was sent to a process that has not received it yet."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (pending,) = re.findall(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)
    return bool(int(pending, 16) >> (number - 1) & 1)


def test_a_second_ctrl_c_in_a_terminal_stops_by_force(tmp_path: Path) -> None:
    terminal, end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, "render", SAMPLE, tmp_path / "out.mp4", "-q"],
        stdin=end,
        stdout=end,
        stderr=end,
    )
    os.close(end)
    shown = b""
    for awaited in (b"rendering", b"cancelled"):
        while awaited not in shown:
            shown += os.read(terminal, 4096)
        # A signal that comes while the last one waits is lost.
        wait_until(lambda: not waits(process.pid, signal.SIGINT))
        os.write(terminal, b"\x03")
    assert process.wait(60) == 130
    with suppress(OSError):  # nobody has the terminal open any more
        while True:
            shown += os.read(terminal, 4096)
    os.close(terminal)
    assert shown.endswith(b"stopped by force; an unfinished file may be left behind\r\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), slow(signal.SIGTERM, 143)])
def test_signals_reach_the_child(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bgsoft", "render", SAMPLE, tmp_path / "out.mp4", "--matte", "best"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(tmp_path.glob(".out*")):
        time.sleep(0.02)
    os.killpg(process.pid, number)  # as timeout and systemd do
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1].startswith("bgsoft: error: ")
    assert list(tmp_path.iterdir()) == []
