from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from bgsoft.cli.console import Console, rich_console
from bgsoft.cli.main import main
from bgsoft.cli.progress import PlainView
from bgsoft.errors import DecodeError, OutputError
from bgsoft.report import Event, Phase, Progress
from bgsoft.settings.config import EffectConfig, EffectKind, MatteConfig, RenderConfig
from tests.outside import ffmpeg
from tests.processes import run_python

from .conftest import FakeRender, Run, make_report


def snapshot(frames: int, elapsed: float, total: int | None = 1000) -> Progress:
    return Progress(
        frames=frames,
        total=total,
        elapsed_seconds=elapsed,
        fps=25.0,
        eta_seconds=None if total is None else 3725.0,
        load={"decode": 0.5},
    )


def test_plain_output_is_one_line_a_file(run: Run, fake_render: FakeRender, clip: Path) -> None:
    outcome = run("render", clip, "out.mp4", "--expand", "0.5")
    assert outcome.out == ""
    assert outcome.err.splitlines() == [
        f"{clip}: notice: 4:2:2 converted to 4:2:0",
        "out.mp4: 100 frames in 2.0 s: 50.0 frames/s, 2.00 times real time",
    ]


def test_the_whole_summary(
    run: Run, fake_render: FakeRender, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    outcome = run("render", clip, "out.mp4", "--expand", "0.5", "--progress", "none")
    assert outcome.err.splitlines() == [
        "notice: 4:2:2 converted to 4:2:0",
        "out.mp4",
        "  100 frames in 2.0 s: 50.0 frames/s, 2.00 times real time",
        "  blur strength 2.5 % = 27 px, expand 0.5 % = 5.4 px",
        "  encoded as yuv420p",
        "  model selfie-general (licence Apache-2.0)",
        "  decode    cpu 3.00 ms/frame",
        "  audio 0: aac transcoded (no vorbis)",
    ]


def test_none_is_one_line_next_to_events(run: Run, fake_render: FakeRender, clip: Path) -> None:
    arguments = ("render", clip, "out.mp4", "--progress", "none")
    assert run(*arguments).err.splitlines() == [
        "notice: 4:2:2 converted to 4:2:0",
        "out.mp4: 100 frames in 2.0 s: 50.0 frames/s, 2.00 times real time",
    ]
    assert "  encoded as yuv420p" in run(*arguments, "-v").err.splitlines()


def test_quiet_prints_nothing(run: Run, fake_render: FakeRender, clip: Path) -> None:
    outcome = run("render", clip, "out.mp4", "-q")
    assert (outcome.out, outcome.err) == ("", "")


def test_verbose_prints_scene_cuts_and_why_no_better_backend_ran(
    run: Run, fake_render: FakeRender, clip: Path
) -> None:
    outcome = run("render", clip, "o.mp4", "-v")
    assert "scene-cut: new scene (frame 12)" in outcome.err
    assert "  decode    cpu 3.00 ms/frame  (nvdec: no GPU)" in outcome.err


def test_json_lines(run: Run, fake_render: FakeRender, clip: Path) -> None:
    outcome = run("render", clip, "out.mp4", "--progress", "json")
    objects = [json.loads(line) for line in outcome.out.splitlines()]
    assert [o["type"] for o in objects] == ["start", "event", "event", "event", "progress", "done"]
    assert objects[0]["input"] == str(clip)
    assert objects[4]["frames"] == 50
    assert objects[-1]["report"]["frames_encoded"] == 100
    assert outcome.err == ""


def test_json_error(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.error = OutputError("disk full")
    fake_render.error.add_note("the rest is in x.partial.jsonl")
    outcome = run("render", clip, "out.mp4", "--progress", "json")
    assert json.loads(outcome.out.splitlines()[-1]) == {
        "type": "error",
        "exit_code": 5,
        "message": "disk full",
        "notes": ["the rest is in x.partial.jsonl"],
    }
    assert outcome.error_line == "disk full"


def test_rich_output_ends_with_the_summary(run: Run, fake_render: FakeRender, clip: Path) -> None:
    outcome = run("render", clip, "out.mp4", "--progress", "rich")
    assert outcome.code == 0
    assert outcome.err.splitlines()[-1] == "  audio 0: aac transcoded (no vorbis)"


def test_rich_output_survives_a_failure(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.error = DecodeError("torn off")
    outcome = run("render", clip, "out.mp4", "--progress", "rich")
    assert outcome.code == 3
    assert outcome.err.splitlines()[-1] == "bgsoft: error: torn off"


def test_plain_lines_are_half_a_minute_apart(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView(Console())
    view.progress(snapshot(1, 0.5))
    view.progress(snapshot(100, 29.9))
    view.progress(snapshot(110, 31.5))
    view.progress(snapshot(150, 60.0))
    view.progress(snapshot(161, 62.0, total=None))
    shown = [line.split("  ")[0:2] for line in capsys.readouterr().err.splitlines()]
    assert shown == [[" 11%", "110/1000 frames"], ["161 frames", "25.0 frames/s"]]


def test_a_search_is_named_and_shows_no_events_yet(capsys: pytest.CaptureFixture[str]) -> None:
    """The render after it begins to count again."""
    view = PlainView(Console())
    view.event(Event(kind="notice", message="early"))
    search = partial(replace, phase=Phase.SEARCH)
    view.progress(search(snapshot(900, 95.0)))
    assert capsys.readouterr().err.startswith("finding the main people:   90%  900/1000 frames")
    view.progress(snapshot(300, 31.0))
    assert [line[:14] for line in capsys.readouterr().err.splitlines()] == [
        "notice: early",
        " 30%  300/1000",
    ]


def test_long_times_have_hours(capsys: pytest.CaptureFixture[str]) -> None:
    PlainView(Console()).progress(snapshot(200, 40.0))
    assert "1:02:05 left" in capsys.readouterr().err


def test_a_render_that_fails_at_once_prints_only_its_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = PlainView(Console())
    view.event(Event(kind="fallback", message="on the CPU"))
    view.progress(snapshot(0, 9.0))
    assert capsys.readouterr().err == ""
    view.progress(snapshot(1, 9.1))
    view.event(Event(kind="notice", message="later"))
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == ("fallback: on the CPU", "notice: later")


def test_events_that_nobody_reported_come_with_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = RenderConfig(
        input=Path("a.mp4"),
        output=Path("b.mp4"),
        effect=EffectConfig(kind=EffectKind.DIM, strength=40),
        matte=MatteConfig(feather_pct=2.0),
    )
    view = PlainView(Console(), lines=False, whole=True)
    view.event(Event(kind="repair", message="one"))
    view.done(
        make_report(
            config,
            concealed_frames=3,
            events=[Event(kind="repair", message="one"), Event(kind="fault", message="two")],
        )
    )
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["repair: one", "fault: two"]
    assert "  3 damaged frames were concealed" in lines
    assert "  dim strength 40 %, feather 2 % = 22 px" in lines


BROKEN_PIPE = """
import sys
from bgsoft.cli.console import Console
console = Console()
for number in range(20000):
    console.out(f"line {number}")
console.err("went on to the end")
console.close()
"""


def test_a_reader_that_goes_away_stops_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    done = run_python("-c", BROKEN_PIPE, stdout=write)
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == "went on to the end\n"


def test_a_terminal_that_goes_away_below_bars_stops_nothing() -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    console = Console()
    console.live = SimpleNamespace(print=gone)  # type: ignore[assignment]
    console.err("a notice")


def test_names_beyond_the_terminals_encoding() -> None:
    code = "from bgsoft.cli.console import Console; Console().err('\\u00e9\\udcff.mp4')"
    done = run_python("-c", code, environment={"PYTHONIOENCODING": "ascii:strict"})
    assert done.returncode == 0
    assert done.stderr == "\\xe9\\udcff.mp4\n"


def test_names_of_tags_and_files_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Notices repeat what strangers wrote into a file."""
    source, target = tmp_path / "a\nb.mkv", tmp_path / "a\nb.mp4"
    tag = ["-metadata", "a\x1b[2Jb=c"]
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.1", *tag, "-c:v", "ffv1", source)
    assert main(["render", str(source), str(target), "--metadata", "strip", "--face", "off"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("tag A\\x1b[2JB left out" in line for line in lines)
    assert all(line.startswith(f"{tmp_path}/a\\nb.m") for line in lines)


@pytest.mark.parametrize("plain", [True, False])
def test_no_color_means_no_styles_either(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    rich_console().print("[bold]bold[/bold] [dim red]dim[/dim red]")
    assert ("\x1b[" in capsys.readouterr().out) is not plain
