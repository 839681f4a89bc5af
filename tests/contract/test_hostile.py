"""Hostile inputs: a few of each kind, and thousands by seed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.endurance import Endurance
from tests.hostile.case import OUTPUT, Case, render
from tests.hostile.judge import MAKERS, Judge, frames, lost
from tests.hostile.pool import judge_all
from tests.marks import slow
from tests.synthetic import truncate


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    before = dict(os.environ)
    with Judge(tmp_path_factory.mktemp("hostile")) as made:
        yield made
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("number", [1, slow(2)])
@pytest.mark.parametrize("maker", [maker.__name__ for maker in MAKERS])
def test_hostile_input(judge: Judge, maker: str, number: int) -> None:
    verdict = judge.judge(number, maker)
    assert not verdict.problems, verdict


def test_a_frame_that_is_missing_is_noticed(judge: Judge) -> None:
    """The judge of the hostile cases notices it."""
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
def test_hostile_inputs_by_seed(endurance: Endurance) -> None:
    numbers = range(endurance.times(2000)) if endurance.case is None else [endurance.case]
    verdicts = list(judge_all(numbers, endurance.seed))
    assert len(verdicts) == len(numbers)
    assert not [verdict for verdict in verdicts if verdict.problems]
