from __future__ import annotations

from pathlib import Path

import pytest

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
