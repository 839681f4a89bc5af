from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bgsoft.compare.compare import compare
from bgsoft.compare.result import Comparison
from bgsoft.errors import BackendUnavailableError
from tests.marks import slow
from tests.processes import run_python
from tests.synthetic import VideoSpec, regular_times, write_video

from .conftest import Run

SPEC = VideoSpec(times=regular_times(8), options={"crf": "10"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clips")
    write_video(path / "a.mp4", SPEC)
    write_video(path / "b.mp4", replace(SPEC, options={"crf": "40"}))
    write_video(path / "small.mp4", replace(SPEC, width=64))
    write_video(path / "short.mp4", replace(SPEC, times=regular_times(5)))
    return path


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_report_on_stdout(run: Run) -> None:
    outcome = run("compare", "a.mp4", "b.mp4", "--no-vmaf")
    assert outcome.code == 0
    assert outcome.err == ""
    assert "Pictures: 8 frames, 96x72, 8 bit" in outcome.out
    assert "no VMAF: not asked for (--no-vmaf)" in outcome.out
    assert re.search(r"pass +frame count +8 each$", outcome.out, re.MULTILINE)


def test_identical_files(run: Run) -> None:
    outcome = run("compare", "a.mp4", "a.mp4", "--no-vmaf", "--strict", "--min-psnr", "100")
    assert outcome.code == 0
    assert re.search(r"PSNR Y .* identical in every frame$", outcome.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["b.mp4", "--min-psnr", "60"], "PSNR (Y) is "),
        (["b.mp4", "--min-ssim", "0.9999"], "SSIM (Y) is "),
        (["short.mp4", "--strict"], "checks failed: frame count"),
        (["small.mp4"], "A is 96x72 and B 64x72"),
    ],
)
def test_missed_limits_end_with_1(run: Run, argv: list[str], words: str) -> None:
    outcome = run("compare", "a.mp4", *argv, "--no-vmaf")
    assert outcome.code == 1
    assert words in outcome.err.splitlines()[-1]
    assert "Checks:" in outcome.out


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["b.mp4", "--min-vmaf", "120"], 2, "--min-vmaf must be between 0 and 100"),
        (["b.mp4", "--min-vmaf", "much"], 2, "not a valid float"),
        (["b.mp4", "--min-vmaf", "nan"], 2, "--min-vmaf must be between 0 and 100"),
        (["b.mp4", "--mask-region", "forground"], 2, "did you mean foreground"),
        (["b.mp4", "--mask", "small.mp4"], 2, "cannot use the mask: it is 64x72"),
        (["b.mp4", "--min-vmaf", "1", "--no-vmaf"], 2, "cannot combine --min-vmaf and --no-vmaf"),
        (["b.mp4", "--plot", "p.pdf"], 2, ".png or .svg"),
        (["gone.mp4"], 3, "gone.mp4: it does not exist"),
        (["b.mp4", "--json", "b.mp4/r.json"], 5, "is not a folder"),
        (["b.mp4", "--json", "b.mp4"], 5, "it is the same file as b.mp4"),
        (
            ["b.mp4", "--json", "small.mp4"],
            5,
            "small.mp4: it exists; use --overwrite to replace it",
        ),
        (["b.mp4", "-y"], 2, "cannot use --overwrite"),
        (["b.mp4", "--json", "-", "-y"], 2, "cannot use --overwrite"),
        (["b.mp4", "--plot", "."], 2, ".png or .svg"),
        (["b.mp4", "--mask-region", "background"], 2, "it needs --mask"),
    ],
)
def test_failures_are_one_line(
    run: Run, folder: Path, argv: list[str], code: int, words: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    outcome = run("compare", "a.mp4", *argv)
    assert outcome.code == code
    assert words in outcome.error_line
    assert sorted(path.name for path in folder.iterdir()) == before


def test_files_that_exist_are_replaced_with_overwrite_only(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    old.write_text("mine")
    arguments = ("compare", "a.mp4", "b.mp4", "--no-vmaf", "--json", old)
    assert (run(*arguments).code, old.read_text()) == (5, "mine")
    assert run(*arguments, "-y").code == 0
    assert "pictures" in json.loads(old.read_text())


def test_a_file_that_appears_meanwhile_is_kept(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.json"

    def late(*args: Any, **options: Any) -> Comparison:
        path.write_text("mine")
        return compare(*args, **options)

    monkeypatch.setattr("bgsoft.compare.compare.compare", late)
    assert run("compare", "a.mp4", "b.mp4", "--json", path).code == 5
    assert path.read_text() == "mine"


def test_min_vmaf_without_libvmaf_ends_with_4(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> None:
        raise BackendUnavailableError("no ffmpeg found: pip install '.[quality]'")

    monkeypatch.setattr("bgsoft.compare.compare.find_ffmpeg", nothing)
    outcome = run("compare", "a.mp4", "b.mp4", "--min-vmaf", "50")
    assert outcome.code == 4
    assert "pip install '.[quality]'" in outcome.error_line
    outcome = run("compare", "a.mp4", "b.mp4")
    assert outcome.code == 0
    assert "no VMAF: no ffmpeg found: pip install '.[quality]'" in outcome.out


ODD_NAMES = [
    "-y.mp4",
    slow("pipe:0.mp4"),
    slow("%03d.mp4"),
    'it\'s [a]; "film", \\ 50:50=x.mp4',
    "фильм 🎬.mp4",
    slow("<script>.mp4"),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for copy in ("a.mp4", name):
        shutil.copy(folder / "a.mp4", tmp_path / copy)
    plot = () if name.isascii() and "<" not in name else ("--plot", "p.svg")
    files = ("--json", "r.json", *plot, "a.mp4", f"./{name}")
    outcome = run("compare", "--strict", "--no-vmaf", *files)
    assert outcome.code == 0, outcome.err
    found = json.loads(Path("r.json").read_text())
    assert Path(found["b"]).name == name
    assert found["pictures"]["frames"] == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["a.mp4", name, "r.json", *plot[1:]]
    )


def test_stdin_is_left_to_the_caller(folder: Path) -> None:
    code = (
        "import sys; from bgsoft.cli.main import main; main(sys.argv[1:]);"
        "sys.stderr.write(sys.stdin.read())"
    )
    clips = [str(folder / name) for name in ("a.mp4", "b.mp4")]
    done = run_python("-c", code, "compare", *clips, input="next.mp4", check=True)
    assert done.stderr == "next.mp4"
