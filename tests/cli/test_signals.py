"""Ctrl-C and SIGTERM, sent to a real process whose render waits to be cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bgsoft
from bgsoft.cli.main import main
from bgsoft.cli.signals import StopSignals
from bgsoft.errors import BackendUnavailableError, RenderCancelledError
from bgsoft.rendering.listener import Listener
from tests.face_clips import SAMPLE
from tests.marks import slow
from tests.processes import is_running, run_python, wait_until

PROGRAM = """
import sys, threading, types
from bgsoft.errors import RenderCancelledError

def render_whole(request, listener, **_):
    config = request.config
    print("rendering", flush=True)
    listener.cancel.wait()
    print("cancelled", flush=True)
    if "stubborn" in config.output.name:
        threading.Event().wait()
    raise RenderCancelledError("stop")

module = types.ModuleType("bgsoft.rendering.session")
module.render_whole = render_whole
sys.modules["bgsoft.rendering.session"] = module
from bgsoft.cli.main import main
sys.exit(main(["render", "in.mp4", sys.argv[1], "-q"]))
"""


def start(output: str, before: str = "", stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", before + PROGRAM, output],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
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
        slow(signal.SIGHUP, 143, "terminated"),
    ],
)
def test_a_signal_cancels_the_render(number: signal.Signals, code: int, word: str) -> None:
    process = start("out.mp4")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == "cancelled\n"
    assert err == f"bgsoft: error: {word}; no output was written\n"


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [slow(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_benchmark_that_is_stopped_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int, word: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bgsoft", "bench", str(SAMPLE), "--rounds", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    wait_until(lambda: list(tmp_path.glob("bgsoft-bench-*/settings.toml")))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    begun = wait_until(lambda: children.read_text().split())
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1] == f"bgsoft: error: {word}; no output was written"
    assert not list(tmp_path.iterdir())
    wait_until(lambda: not any(map(is_running, begun)))


def test_a_signal_after_the_output_is_there_changes_nothing(tmp_path: Path) -> None:
    program = (
        "import signal; from bgsoft.cli.console import Console; from bgsoft.cli.main import run\n"
        "class Late(Console):\n"
        "    def close(self):\n"
        "        signal.raise_signal(signal.SIGINT); super().close()\n"
        "import bgsoft.cli.console; bgsoft.cli.console.Console = Late\n"
        "import bgsoft.cli.signals as signals; end = signals.StopSignals.__exit__\n"
        "def late(*args):\n"
        "    end(*args); signal.raise_signal(signal.SIGINT)\n"
        "signals.StopSignals.__exit__ = late; run()"
    )
    made = tmp_path / "out.mkv"
    argv = ["render", str(SAMPLE), str(made), "-q", "--duration", "0.1", "--face", "off"]
    done = run_python("-c", program, *argv)
    assert (done.returncode, done.stderr, made.exists()) == (0, "", True)


def test_signals_of_programs_ask_to_stop_however_many_there_are() -> None:
    """``timeout`` signals a process and its group, which may be far apart on a busy machine."""
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.1)
        signal.raise_signal(signal.SIGINT)  # a second one must not end this process
    assert stop.cancel.is_set()
    assert stop.exit_code == 143


def test_a_signal_while_the_main_thread_is_in_the_event() -> None:
    with StopSignals() as stop:
        with stop.cancel._cond:  # type: ignore[attr-defined]  # as in wait()
            signal.raise_signal(signal.SIGTERM)
            assert stop.cancel.is_set()
        assert stop.cancel.wait(60)


def test_a_signal_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_new_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("bgsoft.cli.signals._thread.start_new_thread", start_new_thread)
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.cancel.wait(0)


def test_a_signal_that_is_switched_off_stays_off() -> None:
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = start("out.mp4", ignore)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


EARLY = """
import os, signal, sys

module = sys.argv.pop(1)

class Interrupting:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from bgsoft.cli.main import run
run()
"""


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("typer", ["render", str(SAMPLE)]),
        slow("bgsoft.settings.options", ["render", str(SAMPLE)]),
        ("bgsoft.rendering.session", ["render", str(SAMPLE)]),
        ("bgsoft.diagnose.doctor", ["doctor"]),
    ],
)
def test_an_interrupt_at_any_time_is_one_line(tmp_path: Path, module: str, argv: list[str]) -> None:
    argv += [str(tmp_path / "out.mp4"), "-q"] if argv[0] == "render" else []
    done = run_python("-c", EARLY, module, *argv, stdin=subprocess.DEVNULL)
    assert done.returncode == 130
    assert done.stderr == "bgsoft: error: interrupted; no output was written\n"
    assert not list(tmp_path.iterdir())


LOST = """
import os, signal, sys, weakref

number = int(sys.argv.pop(1))

class Thing: ...

def interrupt(_reference):
    os.kill(os.getpid(), number)
    for _ in range(1000):
        pass

class Interrupting:
    def find_spec(self, name, *_):
        if name == "bgsoft.diagnose.doctor":
            thing = Thing()
            self.watch = weakref.ref(thing, interrupt)

sys.meta_path.insert(0, Interrupting())
from bgsoft.cli.main import run
run()
"""


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "terminated"), slow(signal.SIGINT, 130, "interrupted")],
)
def test_a_signal_in_a_callback_is_not_lost(number: signal.Signals, code: int, word: str) -> None:
    """Python only prints an exception that is raised there."""
    done = run_python("-c", LOST, number, "doctor", stdin=subprocess.DEVNULL)
    assert done.returncode == code
    assert done.stderr == f"bgsoft: error: {word}; no output was written\n"


SECOND = """
import pathlib, signal, sys
import bgsoft.cli.app
from bgsoft.cli.main import run

def execute(argv, console):
    made = pathlib.Path(sys.argv[1])
    made.touch()
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.raise_signal(signal.SIGTERM)
        made.unlink()

bgsoft.cli.app.execute = execute
run()
"""


def test_a_second_signal_does_not_stop_the_removal_of_files(tmp_path: Path) -> None:
    done = run_python("-c", SECOND, str(tmp_path / "made"))
    assert done.returncode == 143
    assert done.stderr == "bgsoft: error: terminated; no output was written\n"
    assert list(tmp_path.iterdir()) == []


def test_pathlib_is_not_loaded_before_an_interrupt_is_one_line() -> None:
    """Until then, Ctrl-C prints a traceback."""
    program = "import sys, bgsoft.cli.main; print(*sys.modules)"
    package = {"PYTHONPATH": str(Path(bgsoft.__file__).parents[1])}  # without site, as it loads it
    modules = run_python("-S", "-c", program, environment=package).stdout.split()
    assert "bgsoft.cli.main" in modules
    assert "pathlib" not in modules


def test_an_interrupt_while_an_extension_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a module raises ImportError from it."""

    def interrupted(*_: object, **_settings: object) -> None:
        failed = ImportError("initialization failed")
        failed.__cause__ = KeyboardInterrupt()
        raise BackendUnavailableError("cannot load onnxruntime") from failed

    monkeypatch.setattr("bgsoft.rendering.preview.write_preview", interrupted)
    assert main(["preview", str(SAMPLE), str(tmp_path / "look.png")]) == 130
    assert capsys.readouterr().err == "bgsoft: error: interrupted; no output was written\n"


def test_a_signal_stops_a_search_for_faces_between_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception from Ctrl-C could leave the lock of an import held: the search never ended."""

    def search(_config: object, listener: Listener, _render: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert listener.cancel.wait(60)
        raise RenderCancelledError("cancelled")

    monkeypatch.setattr("bgsoft.rendering.tracks.search_faces", search)
    assert main(["faces", str(SAMPLE), str(tmp_path / "new" / "faces.jsonl")]) == 130
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "bgsoft: error: interrupted; no output was written"
    assert not list(tmp_path.iterdir())
