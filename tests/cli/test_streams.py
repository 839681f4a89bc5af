"""Standard streams: those that the caller has closed, and results that go to stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from bgsoft.cli.main import main
from tests.marks import crossed
from tests.outside import shown_by_ffmpeg
from tests.processes import ROOT, run_python
from tests.synthetic import VideoSpec, regular_times, write_video

from .conftest import Run

PROGRAM = """
import os, sys
from bgsoft.cli.main import main
code = main(["presets", "list"])
new = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(2, b"printed by a library")
sys.exit(code if new > 2 else 99)
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_files_never_take_the_place_of_a_closed_stream(tmp_path: Path, closed: str) -> None:
    media = tmp_path / "media.bin"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", PROGRAM, str(media)]
    result = subprocess.run(command, timeout=60, capture_output=True, check=False)
    assert result.returncode == (5 if ">&-" in closed.split() else 0)
    assert media.read_bytes() == b""


def bgsoft(
    *argv: object, cwd: Path, to: IO[str] | int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "bgsoft", *argv, cwd=cwd, stdout=to)


def test_results_go_to_stdout_alone_where_that_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = write_video(tmp_path / "in.mp4", VideoSpec(times=regular_times(4)))
    look = ("--effect", "dim", "--face", "off", "--matte", "fast", "-y")
    monkeypatch.chdir(tmp_path)
    for argv in (
        ("render", clip, "out.mp4", *look, "--report", "-"),
        ("batch", clip, "out/", *look, "--report", "-"),
        ("compare", clip, clip, "--no-vmaf", "--json", "-"),
    ):
        assert main([*map(str, argv)]) == 0
        assert isinstance(json.loads(capfd.readouterr().out), dict)
        assert not list(tmp_path.rglob("-"))


@crossed(
    case=[
        ("presets list > /dev/full", "disk full"),
        ("render --help > /dev/full", "disk full"),
        ("models list >&-", "Bad file descriptor"),
        ("--version | true", ""),
        ("models list | true", ""),
    ],
    unbuffered=["", "1"],
)
def test_a_stdout_that_cannot_be_written_is_one_line_and_exit_code_5(
    case: tuple[str, str], unbuffered: str
) -> None:
    argv, reason = case
    command, _, reader = argv.partition("|")
    done = subprocess.run(
        ["sh", "-c", f"({sys.executable} -m bgsoft {command}; echo $? >&2) | {reader or 'cat'}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    *said, code = (line for line in done.stderr.splitlines() if not line.startswith("Your own"))
    if reason:
        assert (said, code) == ([f"bgsoft: error: cannot write stdout: {reason}"], "5")
    else:  # typer ends with 1 where the reader of what it prints has gone
        assert (said, code in ("0", "1")) == ([], True)


def test_no_render_is_lost_with_its_messages(tmp_path: Path) -> None:
    clip = write_video(tmp_path / "in.mp4", VideoSpec(times=regular_times(4)))
    look = ("--effect", "dim", "--face", "off", "--matte", "fast")
    with Path("/dev/full").open("w") as full:
        done = bgsoft("render", clip, "out.mp4", *look, "--progress", "json", cwd=tmp_path, to=full)
    assert (done.returncode, done.stderr) == (5, "bgsoft: error: cannot write stdout: disk full\n")
    assert len(shown_by_ffmpeg(tmp_path / "out.mp4")) == 4


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("render in.mp4 out.mp4 --face-data -", "cannot write --face-data to stdout"),
        ("render in.mp4 out.mp4 --trace -", "cannot write --trace to stdout"),
        ("render in.mp4 out.mp4 --matte-out -", "cannot write --matte-out to stdout"),
        ("render in.mp4 - --report -", "cannot combine"),
        ("render in.mp4 - --progress json", "cannot combine"),
        ("render in.mp4 - --skip-existing", "needs a file as OUT"),
        ("render in.mp4 - --format mp4", "MP4 cannot be written to a pipe"),
        ("batch in.mp4 out/ --face-data -", "cannot write --face-data to stdout"),
        ("render in.mp4 out.mp4 --report - --progress json", "cannot combine"),
        ("batch in.mp4 out/ --report - --progress json", "cannot combine"),
    ],
)
def test_what_cannot_go_to_stdout_is_wrong_usage(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.mp4").write_bytes(b"")
    outcome = run(*argv.split())
    assert outcome.code == 2
    assert words in outcome.error_line
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]


@pytest.mark.timeout(60)
def test_a_start_that_fails_does_not_wait_for_a_pipes_reader(tmp_path: Path) -> None:
    clip = write_video(tmp_path / "in.mp4", VideoSpec(times=regular_times(4)))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    look = ("--format", "nut", "--background", "bad.jpg", "--face", "off", "--matte", "fast")
    done = bgsoft("render", clip, "pipe", *look, cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.jpg" in done.stderr
    assert done.stderr.count("\n") == 1
