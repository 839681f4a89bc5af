"""A few hostile inputs of each kind; ``scripts/fuzz_inputs.py`` runs thousands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.case import OUTPUT, Case, render
from tests.hostile.judge import MAKERS, Judge, frames, lost
from tests.synthetic import truncate

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_inputs.py"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    before = dict(os.environ)
    with Judge(tmp_path_factory.mktemp("hostile")) as made:
        yield made
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("maker", [maker.__name__ for maker in MAKERS])
def test_hostile_input(judge: Judge, maker: str, number: int) -> None:
    verdict = judge.judge(number, maker)
    assert not verdict.problems, verdict


def test_a_frame_that_is_missing_is_noticed(judge: Judge) -> None:
    """By the judge, that is."""
    folder = judge.stock.ones.parent
    clip = next(clip for clip in judge.stock.clips if clip.name == "h264.mkv")
    (folder / "out").mkdir()
    whole = Case(what="whole", run=render(judge.stock, folder, clip), source=clip)
    assert whole.run() == 0
    assert len(frames(clip)) == 6
    assert lost(clip, folder) == []
    other = next(clip for clip in judge.stock.clips if clip.name == "ffv1.mkv")
    assert "are not those of the input" in lost(other, folder)[0]
    truncate(folder / OUTPUT, 0.7)
    assert "6 frames of the input" in lost(clip, folder)[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thousands() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
