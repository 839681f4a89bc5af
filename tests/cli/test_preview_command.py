from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.marks import slow
from tests.synthetic import VideoSpec, regular_times, write_video

from .conftest import Run


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = VideoSpec(times=regular_times(20))
    return write_video(tmp_path_factory.mktemp("clip") / "in.mp4", spec)


def test_preview(run: Run, clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.png"
    outcome = run("preview", clip, out, "--at", "0:00.2", "--strength", "4")
    assert outcome.code == 0
    assert "source | matte | result at 0.200 s, 96x72 each" in outcome.err
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["in.mp4", "p.png", "--at", "99"], 2),
        (["in.mp4", "p.png", "--at", "soon"], 2),
        (["in.mp4", "p.png", "--at", "-1"], 2),
        (["in.mp4", "p.png", "--preset", "sotf"], 2),
        (["in.mp4", "p.jpg"], 2),
        (["in.mp4", "in.mp4/p.png"], 5),
        (["gone.mp4", "none/p.png"], 3),
        (["in.mp4", "p.png", "--port", "8001"], 2),
        (["in.mp4", "p.png", "--report", "r.json"], 2),
        (["in.mp4", "--draw-faces"], 2),
        (["in.mp4", "-y"], 2),
        (["in.mp4", "--at", "99"], 2),
        (["in.mp4", "--at", "-1"], 2),
        (["in.mp4", "--regions", "in.txt"], 2),
        (["in.mp4", "--regions", "gone/in.mp4/r.toml", "--report", "gone.json"], 2),
        (["in.mp4", "--regions", "in.mp4/r.toml"], 5),
        (["gone.mp4"], 3),
        (["."], 3),
        (["-"], 3),
    ],
)
def test_failures_are_one_line(
    run: Run,
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    code: int,
) -> None:
    monkeypatch.chdir(clip.parent)
    outcome = run("preview", *argv)
    assert outcome.code == code
    assert outcome.error_line
    assert [path.name for path in clip.parent.iterdir()] == ["in.mp4"]


def test_a_file_of_another_kind_is_not_edited(run: Run, clip: Path, tmp_path: Path) -> None:
    preset = tmp_path / "preset.toml"
    preset.write_text("[effect]\nstrength = 2\n")
    outcome = run("preview", clip, "--regions", preset)
    assert outcome.code == 2
    assert "unknown key effect" in outcome.error_line
    preset.write_text('[regions]\nfile = "r.toml"\n')
    outcome = run("preview", clip, "--preset", preset)
    assert outcome.code == 2
    named = tmp_path / "r.toml"
    text = f"the settings name {named}; name the file to edit with --regions"
    assert outcome.error_line.endswith(text)


@pytest.mark.parametrize("stop", [slow(signal.SIGINT), signal.SIGTERM])
def test_the_page_is_served_until_a_signal(clip: Path, tmp_path: Path, stop: int) -> None:
    file = tmp_path / "r.toml"
    flags = ["--regions", str(file), "--anonymize-style", "solid"]
    command = [sys.executable, "-m", "bgsoft", "preview", str(clip), *flags]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stderr is not None
        found = re.search(r"open (http://127\.0\.0\.1:\d+/)(\S+) in", process.stderr.readline())
        assert found is not None
        with urllib.request.urlopen(f"{found[1]}state{found[2]}", timeout=20) as answer:
            state = json.loads(answer.read())
        process.send_signal(stop)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    assert (state["name"], len(state["times"]), state["file"]) == (clip.name, 20, str(file))
    assert not file.exists()
