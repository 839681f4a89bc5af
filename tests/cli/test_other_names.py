"""Options of other programs are answered with the names of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from bgsoft.cli import app, other_names

from .conftest import Run


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("render in.mp4 out.mp4 --crf 20", "no such option: --crf; use --quality N"),
        ("render in.mp4 out.mp4 -crf 20", "no such option: -crf; use --quality N"),
        ("render in.mp4 out.mp4 --crf=20", "no such option: --crf; use --quality N"),
        ("render -i in.mp4 -o out.mp4", "no such option: -i; use IN and OUT without a flag"),
        ("render in.mp4 --output out.mp4", "--output; use IN and OUT without a flag"),
        ("render in.mp4 out.mp4 --bg sea.jpg", "--bg; use --background FILE|COLOR"),
        ("render in.mp4 out.mp4 --blur 9", "--blur; use --effect blur or bokeh, with --strength"),
        ("render in.mp4 out.mp4 --bitrate 4M", "--bitrate; use --encoder-option b=4M"),
        ("render in.mp4 out.mp4 -c:v libx265", "-c:v; use --codec NAME"),
        ("render in.mp4 out.mp4 -vcodec h264", "-vcodec; use --codec NAME"),
        ("render in.mp4 out.mp4 -ss 5", "-ss; use --start TIME"),
        ("render in.mp4 out.mp4 -preset slow", "-preset; use --speed PRESET for the encoder"),
        ("render in.mp4 out.mp4 --mask-expansion 3", "--mask-expansion; use --expand PCT"),
        ("render in.mp4 out.png --alpha-matting", "--alpha-matting; use --preset cutout"),
        ("render in.mp4 out.mp4 --codec libx265", "did you mean hevc?"),
        ("batch in out --workers 4", "--workers; use --jobs N"),
        ("batch in out -wn 4", "-wn; use --jobs N"),
        ("remove in.mp4", "no such command: remove; use bgsoft render IN --preset cutout"),
        ("blur in.mp4", "no such command: blur; use bgsoft render IN [OUT]"),
        ("convert in.mp4 out.mp4", "no such command: convert; use bgsoft render IN [OUT]"),
        ("in.mp4 out.mp4", "no such command: in.mp4; use bgsoft render IN [OUT]"),
        ("-i in.mp4", "no such option: -i; begin with a command: bgsoft render IN [OUT]"),
        ("help", "cannot run bgsoft: no such command: help; use bgsoft --help"),
        ("render", "cannot run bgsoft render: missing argument 'IN'"),
        ("render in.mp4 out.mp4 --qualty 20", "--qualty; did you mean --quality?"),
        ("render a.mp4 b.mp4 c.mp4", "for several files use bgsoft batch IN... OUT_DIR"),
    ],
)
def test_the_answer_has_our_name(run: Run, argv: str, words: str) -> None:
    outcome = run(*argv.split())
    assert outcome.code == 2
    assert words in outcome.error_line


def test_a_file_with_a_dash(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-x.mp4").touch()
    assert "to name the file, write ./-x.mp4" in run("render", "-x.mp4").error_line


@pytest.mark.parametrize("argv", ["compare a.mp4 b.mp4 --crf 20", "doctor --bg x"])
def test_no_flag_is_named_that_the_command_lacks(run: Run, argv: str) -> None:
    assert "; use" not in run(*argv.split()).error_line


def commands() -> dict[str, Any]:
    found: dict[str, Any] = typer.main.get_command(app.program()).commands  # type: ignore[attr-defined]
    return found


def test_every_answer_exists_and_no_name_is_ours() -> None:
    everything = commands()
    flags = {flag for each in everything.values() for p in each.params for flag in p.opts}
    render = {flag for parameter in everything["render"].params for flag in parameter.opts}
    for ours, theirs in other_names.FLAGS.items():
        named = {word.strip(",") for word in ours.split() if word.startswith("--")}
        assert named <= flags, ours
        assert not set(theirs) & render, ours
    for line, theirs in other_names.COMMANDS.items():
        first = line.split()[0]
        assert first in {*everything, "--help", "--version"}, line
        assert not set(theirs) & set(everything), line
    for table in (other_names.FLAGS, other_names.COMMANDS):
        names = [name for row in table.values() for name in row]
        assert len(names) == len(set(names))
