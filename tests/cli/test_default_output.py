"""``bgsoft render IN`` without OUT: a new file next to IN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import FakeRender, Run


def name(run: Run, fake_render: FakeRender, path: Path, *flags: str) -> str:
    """Name of the output; it is next to the input."""
    outcome = run("render", path, *flags)
    assert outcome.code == 0, outcome.err
    output = fake_render.calls.pop()[0].output
    assert output.parent == path.parent
    return output.name


@pytest.mark.parametrize(
    ("file", "flags", "output"),
    [
        ("in.mp4", "", "in.soft.mp4"),
        ("in.MP4", "--preset studio", "in.studio.MP4"),
        ("in.mkv", "", "in.soft.mkv"),
        ("in.wmv", "", "in.soft.mkv"),
        ("in", "", "in.soft.mkv"),
        ("a.b c.mp4", "", "a.b c.soft.mp4"),
        ("in.mp4", "--preset cutout", "in.cutout.mov"),
        ("in.webm", "--preset cutout", "in.cutout.webm"),
        ("in.mp4", "--effect alpha", "in.alpha.mov"),
        ("in.mp4", "--effect alpha --codec vp9", "in.alpha.webm"),
        ("in.mp4", "--effect matte", "in.matte.mp4"),
        ("in.mp4", "--preset studio --strength 3", "in.studio.mp4"),
        ("in.mp4", "--preset studio --background green", "in.color.mp4"),
        ("in.mp4", "--effect bokeh", "in.bokeh.mp4"),
        ("in.mp4", "--codec prores", "in.soft.mov"),
        ("in.mp4", "--codec ffv1", "in.soft.mkv"),
        ("in.mp4", "--format webm", "in.soft.webm"),
        ("in.jpg", "", "in.soft.jpg"),
        ("in.jpg", "--preset cutout", "in.cutout.png"),
        ("in.webp", "--preset cutout", "in.cutout.webp"),
    ],
)
def test_name(
    run: Run, fake_render: FakeRender, tmp_path: Path, file: str, flags: str, output: str
) -> None:
    path = tmp_path / file
    path.touch()
    assert name(run, fake_render, path, *flags.split()) == output


def test_a_preset_file_gives_its_stem_and_its_codec(
    run: Run, fake_render: FakeRender, clip: Path, tmp_path: Path
) -> None:
    preset = tmp_path / "my look.toml"
    preset.write_text("[encode]\ncodec = 'prores'\n")
    assert name(run, fake_render, clip, "--preset", str(preset)) == "in.my look.mov"

    preset.write_text("[encode]\ncodec = 'hevc'\n[effect]\nkind = 'alpha'\n")
    assert name(run, fake_render, clip, "--preset", str(preset)) == "in.my look.mov"


def test_nothing_is_replaced(run: Run, fake_render: FakeRender, clip: Path) -> None:
    taken = clip.with_name("in.soft.mp4")
    taken.write_bytes(b"mine")
    outcome = run("render", clip)
    assert outcome.code == 5
    assert outcome.error_line == (
        f"cannot write {taken}: it exists; use --overwrite to replace it, or name another file"
        " as OUT"
    )
    assert not fake_render.calls
    assert name(run, fake_render, clip, "-y") == taken.name
    assert name(run, fake_render, clip, "--skip-existing") == taken.name


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("-", "it is a pipe; name a file as OUT, or - for stdout"),
        ("fifo", "it is a pipe"),
        (".", "it is a folder; name a video as OUT, or use bgsoft batch"),
        ("https://host/in.mp4", "cannot name an output for https://host/in.mp4: it is an address"),
        ("frames/%05d.png", "it stands for several pictures"),
        ("/dev/null", "it is not a regular file; name a file as OUT, or use bgsoft live"),
    ],
)
def test_what_is_not_one_file_needs_out(
    run: Run,
    fake_render: FakeRender,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    outcome = run("render", given)
    assert outcome.code == 2
    assert words in outcome.error_line
    assert not fake_render.calls
    assert [each.name for each in tmp_path.iterdir()] == ["fifo"]


def test_a_folder_that_is_not_writable(
    run: Run, fake_render: FakeRender, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        os, "access", lambda path, _mode: Path(path) != clip.parent
    )  # as if no root
    outcome = run("render", clip)
    assert not fake_render.calls
    assert outcome.code == 5
    assert "is not writable; name a file elsewhere as OUT" in outcome.error_line
