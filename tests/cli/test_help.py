from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from bgsoft import __version__
from bgsoft.cli.app import program
from bgsoft.settings.options import BRIEF_WIDTH, OPTIONS
from tests.face_clips import SAMPLE
from tests.processes import run_python

from .conftest import Run

HEAVY = ("numpy", "cv2", "av", "onnxruntime", "rich", "requests", "platformdirs")


@pytest.mark.parametrize(
    "argv", [["--help"], ["render", "--help"], ["compare", "--help"], ["--version"]]
)
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    code = (
        "import sys; from bgsoft.cli.main import main; main(sys.argv[1:]);"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = run_python("-c", code, *argv, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_workers_start_before_what_they_alone_need_is_imported(tmp_path: Path) -> None:
    """A divided render starts its workers before it loads a heavy library itself."""
    code = (
        "import os, sys; from bgsoft.jobs.pool import Pool; from bgsoft.cli.main import main\n"
        "def start(_pool):\n"
        "    heavy = [m for m in ('numpy', 'cv2', 'onnxruntime') if m in sys.modules]\n"
        "    print('HEAVY', heavy, flush=True); os._exit(0)\n"
        "Pool.start = start; main(sys.argv[1:])"
    )
    argv = ["render", SAMPLE, tmp_path / "out.mp4", "--chunks", "2", "--encode", "cpu"]
    alone = {"CUDA_VISIBLE_DEVICES": ""}  # no MPS, which would be left behind
    done = run_python("-c", code, *argv, environment=alone, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_a_command_imports_no_other() -> None:
    code = (
        "import sys; from bgsoft.cli.main import main; main(['presets', 'list']);"
        "print([name for name in sys.modules if name in ('bgsoft.cli.render', 'bgsoft.cli.batch')])"
    )
    done = run_python("-c", code, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_program_help_names_commands_and_exit_codes(run: Run) -> None:
    outcome = run("--help")
    assert outcome.code == 0
    for word in ("render", "preview", "presets", "models", "doctor", "Exit codes: 0 ok"):
        assert word in outcome.out


def test_bare_program_prints_its_help(run: Run) -> None:
    outcome = run()
    assert outcome.code == 0
    assert outcome.out == run("--help").out


def test_render_help_is_grouped(run: Run) -> None:
    out = run("render", "--help").out
    titles = ["Arguments:", "Look:", "Model:", "Faces:", "Output:", "Other:"]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_help_names_the_defaults_of_the_command(run: Run, flag: str) -> None:
    """Of ``bgsoft faces``, which finds faces as where they are hidden."""
    text = " ".join(run("faces", flag).out.split())
    assert "[default: anonymize]" in text
    assert "guard]" not in text
    assert "--face-data" not in text


LONG = ("render", "batch", "live", "preview", "bench")
"""Commands that take a render's settings."""


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("command", LONG)
def test_help_fits_two_screens(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(command, "--help").out.splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= columns
    assert any("--help-all" in line for line in lines)


def flags_in(text: str) -> set[str]:
    """The flags that a help lists, without those that its sentences name."""
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("command", LONG)
def test_long_help_has_every_flag(run: Run, command: str) -> None:
    parser = typer.main.get_command(program([command, "doctor"])).commands[command]  # type: ignore[attr-defined]
    flags = {max(parameter.opts, key=len) for parameter in parser.params}
    flags = {flag for flag in flags if flag.startswith("--")} | {"--help"}
    everything = flags_in(run(command, "--help-all").out)
    assert everything == flags
    assert flags_in(run(command, "--help").out) < everything


def test_a_brief_is_one_line() -> None:
    """Except lists of choices, which may be longer."""
    for option in OPTIONS.values():
        if "{choices}" not in option.setting.brief:
            assert len(option.brief[1]) <= BRIEF_WIDTH, option.flag


@pytest.mark.parametrize(
    "command",
    [
        *("render", "preview", "bench", "compare", "doctor", "models", "presets"),
        *("models list", "models pull", "models path"),
        *("presets list", "presets show"),
    ],
)
def test_every_help_ends_with_examples(run: Run, command: str) -> None:
    outcome = run(*command.split(), "--help")
    assert outcome.code == 0
    lines = outcome.out.rstrip().splitlines()
    shown = lines[next(n for n, line in enumerate(lines) if line.strip() == "Examples:") + 1 :]
    assert shown
    for line in shown:
        assert line.strip().startswith(f"bgsoft {command}")


def test_version(run: Run) -> None:
    assert run("--version").out == f"bgsoft {__version__}\n"


def test_completion_script_is_printed(run: Run) -> None:
    asked = {"_BGSOFT_COMPLETE": "source_bash", "PATH": ""}
    done = run_python("-m", "bgsoft", "--help", environment=asked)
    assert "complete" in done.stdout
    assert "bgsoft" in done.stdout
