"""``bgsoft batch`` as a whole, over folders of small videos."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from bgsoft.batch.job import BatchJob
from bgsoft.batch.run import Summary
from bgsoft.batch.state import STATE_NAME
from bgsoft.cli.batch_run import BatchRun
from bgsoft.cli.batch_view import LiveBatchView, PlainBatchView
from bgsoft.cli.console import Console
from bgsoft.errors import OutputError
from bgsoft.report import Event
from bgsoft.settings.config import RenderConfig
from tests.endurance import Endurance
from tests.marks import slow
from tests.processes import wait_until
from tests.stills import colourful, load
from tests.synthetic import VideoSpec, regular_times, truncate, write_video
from tests.unit.batch.kill import batch_command, frames_of, kill_and_resume
from tests.unit.chunks.short_chunks import Here

from .conftest import Run
from .test_progress import snapshot

FRAMES = 12
QUICK = ("--face", "off", "--matte", "fast")


def make(path: Path, frames: int = FRAMES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_video(path, VideoSpec(times=regular_times(frames)))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files in a tree, and broken ones among them."""
    top = tmp_path_factory.mktemp("in")
    make(top / "a.mp4")
    make(top / "deep" / "er" / "b.mkv")
    (top / "empty.mp4").touch()
    truncate(make(top / "cut.mp4", 60), 0.4)
    (top / "text.mov").write_text("no video")
    (top / "readme.txt").write_text("not taken")
    make(top / "z.mp4")
    return top


class OneByOne(Here):
    """An executor in this process that takes one task at a time."""

    @property
    def idle(self) -> int:
        return int(not self.is_busy)


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render in this process: starting another takes most of the time of a small batch."""
    monkeypatch.setattr(BatchRun, "_executor", lambda *_: OneByOne())


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_folder_with_broken_files_in_it(run: Run, source: Path, tmp_path: Path) -> None:
    target, report = tmp_path / "new" / "out", tmp_path / "report.json"
    outcome = run("batch", source, target, "--report", report, *QUICK)
    assert outcome.code == 1
    assert outcome.out == ""
    assert files(target) == [STATE_NAME, "a.mp4", "deep/er/b.mkv", "z.mp4"]
    for name in ("a.mp4", "deep/er/b.mkv", "z.mp4"):
        assert frames_of(target / name) == FRAMES
    lines = outcome.err.splitlines()
    assert len([line for line in lines if line.startswith("[")]) == 6
    assert [line.split(": ")[0] for line in lines[-4:-1]] == ["failed"] * 3
    assert lines[-1] == "bgsoft: error: 3 of 6 files failed"
    for name in ("empty.mp4", "cut.mp4", "text.mov"):
        assert sum(name in line for line in lines[-4:-1]) == 1
    told = json.loads(report.read_text())
    assert told["counts"] == {"waiting": 0, "running": 0, "done": 3, "skipped": 0, "failed": 3}
    assert told["frames"] == 3 * FRAMES
    states = {Path(each["input"]).name: each for each in told["files"]}
    assert states["a.mp4"]["report"]["frames_encoded"] == FRAMES
    assert states["empty.mp4"]["reason"].endswith("is empty (0 bytes)")

    (source / "text.mov").unlink()
    before = (target / "a.mp4").stat().st_mtime_ns
    again = run("batch", source, target, "--resume", "--progress", "json", "-j", "1", *QUICK)
    assert again.code == 1
    told = [json.loads(line) for line in again.out.splitlines()]
    assert [each["type"] for each in told[:2]] == ["notice", "begin"]
    assert told[0]["message"].endswith(": 1 .txt")
    assert told[1] == {"type": "begin", "files": 5, "settled": 3}
    assert [each["type"] for each in told].count("failed") == 2
    assert told[-1]["counts"]["done"] == 3
    assert (target / "a.mp4").stat().st_mtime_ns == before


@pytest.mark.usefixtures("_here")
def test_a_pipe_among_files_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "in" / "a.mp4")
    os.mkfifo(tmp_path / "in" / "b.mp4")
    outcome = run("batch", tmp_path / "in", tmp_path / "out", "--timeout", "20", *QUICK)
    assert outcome.code == 1
    assert (
        f"failed: cannot read {tmp_path / 'in' / 'b.mp4'}: a batch cannot read pipes" in outcome.err
    )
    assert files(tmp_path / "out") == [STATE_NAME, "a.mp4"]


@pytest.mark.usefixtures("_here")
def test_pictures_next_to_videos(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "in" / "a.mp4")
    for name in ("a.JPG", "sub/b.png", "cut.webp", "notes.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(colourful()).save(path, "PNG" if name == "notes.txt" else None)
    cut = tmp_path / "in" / "cut.webp"
    cut.write_bytes(cut.read_bytes()[:-20])
    target = tmp_path / "out"
    outcome = run("batch", tmp_path / "in", target, "--jobs", 1, "-q", *QUICK)
    assert outcome.code == 1
    assert files(target) == [STATE_NAME, "a.JPG", "a.mp4", "sub/b.png"]
    for name in ("a.JPG", "sub/b.png"):
        assert load(target / name).shape == colourful().shape
    again = run("batch", tmp_path / "in", target, "--resume", "--progress", "json", *QUICK)
    assert json.loads(again.out.splitlines()[1])["settled"] == 3
    cutouts = run("batch", tmp_path / "in", target, "-q", "--effect", "alpha", *QUICK)
    assert (cutouts.code, "JPEG: it cannot hold an alpha channel" in cutouts.err) == (2, True)


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("is_list", [False, True])
def test_outputs_that_match_are_no_inputs(run: Run, tmp_path: Path, is_list: bool) -> None:
    make(tmp_path / "in" / "a.mp4")
    target, listed = tmp_path / "in" / "out", tmp_path / "list.txt"
    sources = ["--from", listed] if is_list else [f"{tmp_path}/in/**/*.mp4"]
    command = ("batch", *sources, target, "--resume", "--jobs", 1, *QUICK)
    for name in ("a.mp4", "b.mp4"):
        made = make(tmp_path / "in" / name)
        listed.write_text(f"{made}\n{target / 'a.mp4'}\n" if target.exists() else f"{made}\n")
        outcome = run(*command)
        assert (outcome.code, files(target)[-1]) == (0, name), outcome.err
    assert files(target) == [STATE_NAME, "a.mp4", "b.mp4"]
    only = run("batch", f"{target}/*.mp4", target, "--name", "{stem}2.mp4", "--dry-run", *QUICK)
    assert "only outputs of this batch were found: name them to render them" in only.err
    named = run("batch", target / "a.mp4", target, "--name", "{stem}2.mp4", "--dry-run", *QUICK)
    assert "a2.mp4" in named.out


@pytest.mark.usefixtures("_here")
def test_warnings_are_printed_for_each_file(run: Run, tmp_path: Path) -> None:
    for name, frames in (("long", FRAMES), ("short", FRAMES // 2), ("tiny", FRAMES // 3)):
        make(tmp_path / "in" / f"{name}.mp4", frames)
    place = "0,0,16,16"
    outcome = run(
        *("batch", tmp_path / "in", tmp_path / "out", "--hide", f"{place}@0.3-"),
        *("--name", "{stem}.mkv", "--keep", place, "--jobs", 1, *QUICK),
    )
    assert outcome.code == 0
    unused = f".mp4: warning: --hide {place}@0.3- hides nothing"
    told = [line.partition(unused) for line in outcome.err.splitlines() if ": warning: " in line]
    assert [Path(name).name for name, *_ in told] == ["short", "tiny"]


@pytest.mark.usefixtures("_here")
def test_two_files_of_regions_for_a_video(run: Run, tmp_path: Path) -> None:
    """Neither is passed over without a word: it may hide something."""
    make(tmp_path / "in" / "a.mp4")
    own, other = tmp_path / "in" / "a.regions.toml", tmp_path / "other.regions.toml"
    for path in (own, other):
        path.write_text("[[region]]\naction = 'hide'\nbox = '0,0,16,16'\n")
    preset = tmp_path / "p.toml"
    preset.write_text(f"[regions]\nfile = '{other}'\n")
    command = ("batch", tmp_path / "in", tmp_path / "out", "--jobs", 1, "--preset", preset, *QUICK)
    outcome = run(*command)
    assert outcome.code == 2
    assert f"cannot use {own}: the settings name {other}; choose one with --regions" in outcome.err
    assert run(*command, "--regions", own).code == 0


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("kind", ["link", "loop", "folder", "pipe"])
def test_regions_that_cannot_be_read_fail_their_video(run: Run, tmp_path: Path, kind: str) -> None:
    """The output in which something is hidden stays."""
    output = tmp_path / "out" / "a.mp4"
    make(tmp_path / "in" / "a.mp4")
    regions = tmp_path / "in" / "a.regions.toml"
    regions.write_text("[[region]]\naction = 'hide'\nbox = '0,0,16,16'\n")
    command = ("batch", tmp_path / "in", tmp_path / "out", "--timeout", "20", *QUICK)
    assert run(*command).code == 0
    hidden = output.read_bytes()
    regions.unlink()
    ways: dict[str, Callable[[], object]] = {
        "link": lambda: regions.symlink_to("gone.toml"),
        "loop": lambda: regions.symlink_to(regions),
        "folder": regions.mkdir,
        "pipe": lambda: os.mkfifo(regions),
    }
    ways[kind]()
    outcome = run(*command, "--resume")
    assert outcome.code == 1
    assert str(regions) in outcome.err
    assert output.read_bytes() == hidden


@pytest.mark.usefixtures("_here")
def test_regions_that_lie_in_the_working_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "in" / "a.mp4")
    monkeypatch.chdir(tmp_path)
    text = "[[region]]\naction = 'drop'\nbox = '0,0,9,9'\n"
    for name in ("in.regions.toml", "mine.toml"):
        Path(name).write_text(text)
    Path("p.toml").write_text("[regions]\nfile = 'mine.toml'\n")
    assert run("batch", "in", "out", "--preset", "p.toml", *QUICK).code == 0


@pytest.mark.usefixtures("_here")
def test_render_flags_reach_every_file(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make(tmp_path / "in" / f"{name}.mp4")
    target = tmp_path / "out"
    outcome = run(
        *("batch", tmp_path / "in", target, "--name", "{index:02}-{stem}.mkv", "--duration", "0.2"),
        *("--matte-out", "{stem}-matte.mkv", "--codec", "ffv1", "--jobs", 1, "-q", *QUICK),
    )
    assert (outcome.code, outcome.err) == (0, "")
    names = ["01-a.mkv", "02-b.mkv", "a-matte.mkv", "b-matte.mkv"]
    assert files(target) == [STATE_NAME, *names]
    assert [frames_of(target / name) for name in names] == [5] * 4
    skipped = run(
        *("batch", tmp_path / "in", target, "--name", "{index:02}-{stem}.mkv"),
        *("-q", "--skip-existing", "--jobs", 1),
    )
    assert (skipped.code, skipped.err) == (0, "")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["{in}"], 2, "IN is missing"),
        (["--from", "/dev/null", "{out}"], 2, "list /dev/null is empty"),
        (["{in}/gone", "{out}"], 3, "no such file or folder"),
        (["{in}/nothing", "{out}"], 3, "no video or picture in"),
        (["{in}", "{out}", "--preset", "nonesuch"], 2, "unknown preset"),
        (["{in}", "{out}", "--name", "{{stem}}/%05d.png"], 2, "cannot write sequences"),
        (["{in}", "{out}", "--fps", "30"], 2, "cannot use --fps"),
        (["{in}", "{out}", "--gpu", "one"], 2, "--gpu must be numbers"),
        (["{in}", "{out}", "--gpu", "0,0"], 2, "each GPU once"),
        (["{in}", "{out}", "--timeout", "-1"], 2, "--timeout"),
        (["{in}", "{out}", "--name", "same.mp4"], 2, "is also that of"),
        (["{in}", "{out}", "--name", "{{stem}}.xyz"], 2, "is not a container"),
        (["{in}", "{out}", "--name", "{{index:{{stem}}}}.mp4"], 2, "it is malformed"),
        (["{in}", "{out}", "--name", "{{stem:_<255}}.mp4"], 2, "name too long"),
        (["{in}", "{in}"], 2, "would replace its input"),
        (["{in}", "{out}", "--skip-existing", "-y"], 2, "cannot combine"),
        (["{in}", "{out}", "--skip-existing", "--background", "{in}/no.png"], 2, "does not exist"),
        (["{in}", "{out}", "--background", "{in}/a.mp4"], 2, "--background"),
        (["{in}", "{out}", "--background", "nocolor"], 2, "nocolor"),
        (["{in}", "{out}", "--regions", "{in}/no.toml"], 2, "No such file"),
        (["{in}", "{out}", "--faces", "{in}/no.jsonl"], 2, "No such file"),
        (["{in}", "{out}", "--model", "nonesuch"], 2, "unknown model"),
        (["{in}", "{out}", "--model", "{in}/a.onnx"], 2, "No such file"),
        (["{in}", "{out}", "--model", "rvm-mobilenetv3"], 4, "bgsoft models pull"),
        (["{in}", "{out}", "--infer", "cpu", "--require-gpu"], 4, "--require-gpu"),
        (["{in}", "{out}", "--infer", "cpu", "--precision", "fp16"], 4, "fp16"),
        (["{in}", "{out}", "--encode", "cpu", "--preset", "cutout"], 2, "alpha"),
        (["{in}", "{out}", "--encode", "cpu", "--speed", "bogus"], 2, "--speed"),
        (["{in}", "{out}", "--face-data", "{{stem}}.txt"], 2, "--face-data"),
        (["{in}", "{out}", "--name", ""], 2, "--name must not be empty"),
        (["{in}", "{out}", "--exclude", "*.mp4"], 3, "excluded"),
        (["{in}", "{out}", "--settle", "3"], 2, "--settle needs --watch"),
        (["{in}", "{out}", "--watch", "--settle", "0"], 2, "--settle must be"),
        (["{in}", "{out}", "--watch", "--dry-run"], 2, "cannot combine --dry-run and --watch"),
        (
            ["{in}", "{out}", "--dry-run", "--report", "r.json"],
            2,
            "cannot combine --dry-run and --report",
        ),
        (["{in}/a.mp4", "{out}", "--watch"], 2, "no input is a folder"),
        (["{in}", "{in}/a.mp4/out"], 5, "cannot create folder"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(
    run: Run, tmp_path: Path, argv: list[str], code: int, words: str
) -> None:
    source = tmp_path / "in"
    (source / "nothing").mkdir(parents=True)
    for name in ("a.mp4", "b.mp4"):
        (source / name).write_bytes(b"x")
    outcome = run(
        "batch", *(each.format(**{"in": source, "out": tmp_path / "out"}) for each in argv)
    )
    assert outcome.code == code
    assert words in outcome.error_line
    assert files(tmp_path) == ["in/a.mp4", "in/b.mp4"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
def test_what_changes_between_two_runs(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        make(source / name)
    picture = tmp_path / "behind.png"
    cv2.imwrite(str(picture), np.zeros((8, 8, 3), np.uint8))
    command: list[object] = [
        *("batch", source, target, "--background", picture, "--matte-out", "{stem}.mkv"),
        *("--resume", "--face-data", "{stem}.jsonl", "--face", "off", "--duration", "0.2"),
    ]
    assert run(*command).code == 0
    assert files(target) == [
        STATE_NAME,
        *(f"{stem}.{ending}" for stem in "abc" for ending in ("jsonl", "mkv", "mp4")),
    ]

    def planned(*more: object) -> list[str]:
        before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
        outcome = run(*command, *more, "--dry-run", "--progress", "json")
        assert outcome.code in (0, 5)
        assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
        plans = [json.loads(line) for line in outcome.out.splitlines()]
        return [f"{plan['action']} {Path(plan['reason']).name}" for plan in plans]

    assert planned() == ["skip done already"] * 3
    make(source / "a.mp4", 7)
    truncate(target / "b.mkv", 0.5)
    (target / "c.jsonl").unlink()
    assert planned("--exclude", "c.*") == [
        "render its input has changed",
        "render b.mkv is cut off",
    ]
    outcome = run(*command, "--progress", "plain")
    assert outcome.code == 0
    assert outcome.err.splitlines()[-1].startswith("3 files rendered, 15 frames")
    assert planned() == ["skip done already"] * 3
    cv2.imwrite(str(picture), np.zeros((8, 9, 3), np.uint8))
    assert planned() == ["render the background has changed"] * 3
    (target / "b.mkv").write_bytes(b"somebody else's")
    refused = run(*command)
    assert refused.code == 5
    assert "b.mkv was changed or replaced by somebody else" in refused.error_line
    assert planned()[1].startswith("refuse b.mkv")
    assert run(*command, "-y").code == 0
    assert planned() == ["skip done already"] * 3


def test_what_would_be_rendered(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "in" / "a.mp4")
    make(tmp_path / "in" / "b.mp4")
    outcome = run("batch", tmp_path / "in", tmp_path / "out", "--dry-run")
    lines = outcome.out.splitlines()
    assert (outcome.code, len(lines)) == (0, 2)
    assert lines[0] == f"render  {tmp_path}/in/a.mp4 -> {tmp_path}/out/a.mp4: new"
    assert outcome.err == "2 files: 2 to render, 0 to skip\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [b"in \xff/broken.mp4", b"in/broken \xff.mp4"])
@pytest.mark.usefixtures("_here")
def test_broken_files_whose_names_are_no_utf8(run: Run, tmp_path: Path, name: bytes) -> None:
    broken = tmp_path / os.fsdecode(name)
    make(broken.with_name("good.mp4"))
    broken.write_bytes(b"no video")
    report = tmp_path / "report.json"
    outcome = run("batch", broken.parent, tmp_path / "out", *QUICK, "--report", report)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == "bgsoft: error: 1 of 2 files failed"
    assert files(tmp_path / "out") == [STATE_NAME, "good.mp4"]
    states = {entry["state"]: entry["reason"] for entry in json.loads(report.read_bytes())["files"]}
    assert str(broken) in states["failed"]
    outcome = run("batch", broken.parent, tmp_path / "out", *QUICK, "--resume", "--dry-run")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["render", "skip"]


@pytest.mark.usefixtures("_here")
def test_files_that_are_passed_over_are_named(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "in" / "a.mp4")
    for other in ("b.xyz", "c.xyz", "d.psd"):
        (tmp_path / "in" / other).write_bytes(b"x")
    said = "3 files ignored, not named like videos or pictures: 2 .xyz, 1 .psd"
    for flags in (["--dry-run"], QUICK):
        outcome = run("batch", tmp_path / "in", tmp_path / "out", *flags)
        assert outcome.code == 0
        assert outcome.err.splitlines().count(said) == 1
    (tmp_path / "in" / "a.mp4").unlink()
    outcome = run("batch", tmp_path / "in", tmp_path / "out2", *QUICK)
    assert (outcome.code, said in outcome.error_line) == (3, True)


@pytest.mark.usefixtures("_here")
def test_names_that_hold_line_ends_stay_on_one_line(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "in" / "a\nb.mp4")
    (tmp_path / "in" / "c\nd\x1b[31m.mp4").write_bytes(b"no video")
    outcome = run("batch", tmp_path / "in", tmp_path / "out", "--jobs", 1, *QUICK)
    assert outcome.code == 1
    lines = [
        line for line in outcome.err.splitlines() if line.startswith(("[", "failed", "1 file"))
    ]
    assert len(lines) == 4
    assert "a\\nb.mp4: 12 frames" in lines[0]
    assert "c\\nd\\x1b[31m.mp4" in lines[1]
    assert lines[2].startswith("1 file rendered")
    assert "c\\nd\\x1b[31m.mp4" in lines[3]


def test_an_event_is_printed_once_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainBatchView(Console())
    view.begin(2, 0)
    jobs = [
        BatchJob(RenderConfig(input=Path(f"{name}.mp4"), output=Path(f"{name}.mkv")), number)
        for number, name in enumerate("ab")
    ]
    for kind in ("fallback", "repair", "repair", "notice"):
        for job in jobs:
            view.event(job, Event(kind=kind, message=f"a {kind}"))
    view.failed(jobs[0], OutputError("disk full"), None)
    view.event(jobs[0], Event(kind="repair", message="a repair"))  # it is rendered again
    assert capsys.readouterr().err.splitlines() == [
        "fallback: a fallback",
        "a.mp4: repair: a repair",
        "b.mp4: repair: a repair",
        "[1/2] failed: a.mp4: disk full",
        "a.mp4: repair: a repair",
    ]


def test_what_runs_is_drawn_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    console = Console()
    view = LiveBatchView(console)
    view.begin(2, 0)
    jobs = [
        BatchJob(RenderConfig(input=Path(f"{name}.mp4"), output=Path(f"{name}.mkv")), number)
        for number, name in enumerate(("a\nb", "c"))
    ]
    for job in jobs:
        view.started(job, "pid 1")
    view.progress(jobs[1], snapshot(3, 0.1, total=9))
    view.tick()
    assert console.live is not None
    with console.live.capture() as captured:
        console.live.print(view.bars)
    drawn = captured.get()
    assert "2 running" in drawn
    assert "a\\nb.mp4" in drawn
    assert "3/9 frames" in drawn
    view.failed(jobs[0], OutputError("disk full"), None)
    view.tick()
    with console.live.capture() as captured:
        console.live.print(view.bars)
    assert "1 running, 0 waiting, 1 failed" in captured.get()
    view.end(Summary(1.0, []))
    assert console.live is None
    assert "a\\nb.mp4: disk full" in capsys.readouterr().err


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    make(tmp_path / "in" / "0.mp4")
    for number in range(1, 4):
        make(tmp_path / "in" / f"{number}.mp4", 3000)
    command = batch_command(tmp_path / "in", tmp_path / "out", "--jobs", "2")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until((tmp_path / "out" / "0.mp4").exists)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_soon_and_leaves_what_resume_needs(
    running: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    """The signal goes to the whole process group, as Ctrl-C sends it."""
    os.killpg(running.pid, number) if number is signal.SIGINT else running.send_signal(number)
    _, err = running.communicate(timeout=60)
    word, code = ("interrupted", 130) if number is signal.SIGINT else ("terminated", 143)
    assert running.returncode == code
    assert err == f"bgsoft: error: {word}; 3 of 4 files are left; continue with --resume\n"
    assert files(tmp_path / "out") == [STATE_NAME, "0.mp4"]


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_try(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    (command,) = _children(running.pid)  # a batch goes on in a child process
    children = _children(int(command))
    assert len(children) == 2
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    time.sleep(0.5)
    os.killpg(running.pid, signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    again = subprocess.run(
        [*batch_command(tmp_path / "in", tmp_path / "out"), "--duration", "0.2"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert again.returncode == 0
    for number in range(4):  # the one that was done, too: by other settings
        assert frames_of(tmp_path / "out" / f"{number}.mp4") == 5
    assert len(files(tmp_path / "out")) == 5


def test_a_file_that_takes_too_long_is_given_up(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "in" / "long.mp4", 500)
    outcome = run("batch", tmp_path / "in", tmp_path / "out", "--timeout", "0.1")
    assert outcome.code == 1
    assert "it was not finished after 0.1 s" in outcome.err
    assert files(tmp_path / "out") == [STATE_NAME]


@pytest.mark.slow
def test_killed_at_random_it_ends_with_every_file_whole(
    tmp_path: Path, endurance: Endurance
) -> None:
    left, seed = endurance.times(4), endurance.seed
    while left > 0:
        # A batch that ends before it was killed so often is followed by another.
        source, target = tmp_path / str(seed) / "in", tmp_path / str(seed) / "out"
        for number in range(6):
            make(source / f"d{number % 2}" / f"{number}.mp4", 250)
        killed = kill_and_resume(source, target, 250, kills=left, longest_seconds=2.0, seed=seed)
        assert killed > 0
        left, seed = left - killed, seed + 1


@contextmanager
def watching(source: Path, target: Path, *flags: str) -> Iterator[list[bytes]]:
    """Watch a folder during a ``with`` block; yields a list for the text on stderr."""
    pytest.importorskip("watchfiles")
    command = [sys.executable, "-m", "bgsoft", "batch", str(source), str(target), "--watch", "-q"]
    err: list[bytes] = []
    process = subprocess.Popen([*command, *flags], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield err
    finally:
        process.send_signal(signal.SIGINT)
        err.append(process.communicate(timeout=60)[1])
    assert process.returncode == 130


@pytest.mark.slow
def test_watching_takes_what_is_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    first = make(source / "first.mp4")
    with watching(source, target) as err:
        wait_until((target / "first.mp4").exists)
        data = first.read_bytes()
        with (source / "second.mp4").open("wb") as file:
            for at in range(0, len(data), len(data) // 4):
                file.write(data[at : at + len(data) // 4])
                file.flush()
                time.sleep(1.0)
        (tmp_path / "moved.mp4").write_bytes(data)
        (source / "sub").mkdir()
        (tmp_path / "moved.mp4").rename(source / "sub" / "moved.mp4")
        wait_until((target / "second.mp4").exists)
        wait_until((target / "sub" / "moved.mp4").exists)
    assert err == [b"bgsoft: error: interrupted; 3 of 3 files are done\n"]
    assert files(target) == [STATE_NAME, "first.mp4", "second.mp4", "sub/moved.mp4"]
    assert frames_of(target / "second.mp4") == FRAMES


@pytest.mark.slow
@pytest.mark.parametrize("folder", [b"in", b"in \xff"])
def test_watching_continues_over_names_that_are_no_utf8(tmp_path: Path, folder: bytes) -> None:
    source, target = tmp_path / os.fsdecode(folder), tmp_path / "out"
    make(source / "first.mp4")
    with watching(source, target, "--settle", "0.3") as err:
        wait_until((target / "first.mp4").exists)
        (source / os.fsdecode(b"caf\xe9.mp4")).write_bytes(b"no video")
        make(source / os.fsdecode(b"deep \xfe") / "b.mp4")
        wait_until((target / os.fsdecode(b"deep \xfe") / "b.mp4").exists)
        make(source / "last.mp4")
        wait_until((target / "last.mp4").exists)
    assert b"Traceback" not in err[0]
    assert b"interrupted; 1 of 4 files failed" in err[0]


@pytest.mark.slow
def test_a_watched_file_that_grows_on_is_rendered_again(tmp_path: Path) -> None:
    """The copy pauses for longer than the wait, so an incomplete file is rendered first."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    data = make(tmp_path / "whole.ts", 60).read_bytes()
    path = source / "a.ts"
    path.write_bytes(data[: len(data) // 2])
    with watching(source, target, "--settle", "0.3"):
        # The receipt is gone once the result is kept: a later change does not remove it.
        wait_until(lambda: (target / "a.ts").exists() and not list(target.glob("*.made")))
        half = frames_of(target / "a.ts")
        assert half < 60
        with path.open("ab") as file:
            file.write(data[len(data) // 2 :])
        wait_until(lambda: frames_of(target / "a.ts") != half)
    assert frames_of(target / "a.ts") == 60


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("in/a.mp4", ["--resume", "-y"]),
        slow("out/a.mp4", ["-y"]),
        ("out/.bgsoft-batch.sqlite", ["--resume", "-y"]),
        slow("notes.txt", ["--resume"]),
        ("notes.txt", ["-y"]),
        slow("in/a.mp4", ["--resume"]),
        slow("in/a.mp4", ["-y"]),
        slow("out/a.mp4", ["--resume"]),
        slow("out/a.mp4", ["--resume", "-y"]),
        slow("out/.bgsoft-batch.sqlite", ["--resume"]),
        slow("out/.bgsoft-batch.sqlite", ["-y"]),
        slow("notes.txt", ["--resume", "-y"]),
    ],
)
@pytest.mark.usefixtures("_here")
def test_the_report_replaces_nothing_but_a_report(
    run: Run, tmp_path: Path, name: str, flags: list[str]
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    make(source / "a.mp4")
    first = tmp_path / "report.json"
    assert run("batch", source, target, "--report", first, *QUICK).code == 0
    (tmp_path / "notes.txt").write_text("precious")
    before = (tmp_path / name).read_bytes()
    outcome = run("batch", source, target, "--report", tmp_path / name, *flags, *QUICK)
    if name == "notes.txt" and "-y" in flags:
        assert outcome.code == 0
    else:
        assert outcome.code == 5
        assert (tmp_path / name).read_bytes() == before
    assert run("batch", source, target, "--report", first, "--resume", *QUICK).code == 0


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_here")
def test_the_report_may_be_a_pipe(run: Run, tmp_path: Path) -> None:
    source, pipe = tmp_path / "in", tmp_path / "pipe"
    source.mkdir()
    make(source / "a.mp4")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run("batch", source, tmp_path / "out", "--resume", "--report", pipe, *QUICK).code == 0
    assert json.loads(os.read(reader, 1 << 20))["counts"]["done"] == 1
    os.close(reader)
