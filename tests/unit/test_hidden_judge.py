"""The judge and the truth of ``scripts/measure_hidden.py``, on drawn faces."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.synthetic import write_frames

SCRIPTS = Path(__file__).parents[2] / "scripts"
SIZE = WIDTH, HEIGHT = 160, 96
FACE = (80.0, 48.0, 15.0, 20.0)
"""Centre, half the width, half the height."""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture
def judging(_path: None) -> Any:
    return importlib.import_module("hidden.judge")


@pytest.fixture
def drawing(_path: None) -> Any:
    return importlib.import_module("hidden.drawn")


def frame_with(drawing: Any, *ovals: tuple[float, ...]) -> Any:
    frame = drawing.Drawn(np.full((HEIGHT, WIDTH, 3), 128, np.uint8))
    for number, oval in enumerate(ovals, 1):
        frame.add(drawing.Oval(*oval), number)
    return frame


def hiding(*boxes: tuple[int, int, int, int]) -> Any:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    for left, top, right, bottom in boxes:
        mask[top:bottom, left:right] = True
    return mask


@pytest.mark.parametrize(
    ("box", "share"),
    [((60, 20, 100, 76), 1.0), ((60, 20, 80, 76), 0.5), ((60, 20, 100, 48), 0.5)],
    ids=["all", "left half", "upper half"],
)
def test_the_hidden_share_of_a_face(
    judging: Any, drawing: Any, box: tuple[int, int, int, int], share: float
) -> None:
    truth = judging.Truth.of(frame_with(drawing, FACE))
    verdict = judging.judge(truth, hiding(box))
    assert verdict.shares[1] == pytest.approx(share, abs=0.03)
    assert verdict.false_px == 0
    assert verdict.open == ([] if share == 1 else [1])
    assert verdict.hidden_px == (box[2] - box[0]) * (box[3] - box[1])
    assert verdict.face_px == pytest.approx(np.pi * FACE[2] * FACE[3], rel=0.02)


def test_a_face_that_is_not_hidden_is_open_and_what_is_hidden_elsewhere_is_false(
    judging: Any, drawing: Any
) -> None:
    truth = judging.Truth.of(frame_with(drawing, FACE))
    verdict = judging.judge(truth, hiding((5, 5, 25, 35)))
    assert verdict.shares == {1: 0.0}
    assert verdict.false_px == 20 * 30
    tally = judging.Tally()
    tally.add("scene", [verdict], 0, false=True)
    counts = json.loads(json.dumps(tally.as_json()))
    assert (counts["hidden_px"], counts["faces"], counts["hidden_pct"]) == (600, 1, 0)
    assert counts["area_ratio"] == pytest.approx(600 / (np.pi * FACE[2] * FACE[3]), rel=0.02)
    doubtful = frame_with(drawing)
    doubtful.ovals[0] = [drawing.Oval(15, 20, 8, 8)]
    verdict = judging.judge(judging.Truth.of(doubtful), hiding((5, 5, 25, 35)))
    assert (verdict.shares, verdict.false_px) == ({}, 0)


def test_of_a_face_that_is_cut_or_covered_the_visible_part_counts(
    judging: Any, drawing: Any
) -> None:
    cut = judging.Truth.of(frame_with(drawing, (3.0, 48.0, 15.0, 20.0)))
    assert judging.judge(cut, hiding((0, 20, 20, 76))).shares == {1: 1.0}
    gone = judging.Truth.of(frame_with(drawing, (-8.0, 48.0, 15.0, 20.0)))
    assert judging.judge(gone, hiding()).shares == {}
    covered = frame_with(drawing, FACE)
    covered.cover(60, 20, 79, 76, 40)
    truth = judging.Truth.of(covered)
    assert judging.judge(truth, hiding((60, 20, 80, 76))).shares[1] < 0.05
    assert judging.judge(truth, hiding((80, 20, 100, 76))).shares[1] > 0.95


def test_runs_of_open_frames_and_people_who_may_be_shown(judging: Any) -> None:
    judged = [
        judging.Verdict({1: share, 2: other}, false_px)
        for share, other, false_px in ((0.1, 1, 0), (0.69, 1, 9), (0.7, 0, 0), (0.2, 1, 0))
    ]
    tally = judging.Tally()
    tally.add("scene", judged, 0, false=False)
    counts = tally.frames, tally.faces, tally.hidden, tally.longest_open, tally.false_frames
    assert counts == (4, 8, 4, 2, 1)
    one_shown = judging.Tally()
    one_shown.add("scene", judged, 1, false=False)
    assert (one_shown.faces, one_shown.hidden, one_shown.longest_open) == (4, 3, 1)
    assert one_shown.failed == ["scene"]


def write(path: Path, pictures: Sequence[Any]) -> Path:
    """Write (HEIGHT * 3 / 2, WIDTH) planes without loss."""
    return write_frames(path, pictures, "yuv420p", rate=30)


def blackened(planes: Any) -> None:
    planes[20:76, 60:100] = 16


def reddened(planes: Any) -> None:
    rows = planes[HEIGHT + HEIGHT // 4 :].reshape(HEIGHT // 2, WIDTH // 2)
    rows[10:38, 30:50] += 40


@pytest.mark.parametrize("change", [blackened, reddened])
def test_pixels_that_changed_are_read_from_the_videos(
    judging: Any, drawing: Any, tmp_path: Path, change: Callable[[Any], None]
) -> None:
    source = np.full((HEIGHT * 3 // 2, WIDTH), 90, np.uint8)
    source[30:60:6, 70:90:4] = 16
    grain = source + np.random.default_rng(1).integers(0, 5, source.shape).astype(np.uint8)
    hidden = source.copy()
    change(hidden)
    truths = [judging.Truth.of(frame_with(drawing, FACE))] * 3

    def read(name: str, frames: Sequence[Any]) -> list[Any]:
        return list(judging.shown(write(tmp_path / name, frames)))

    before = read("source.mkv", [source] * 3)
    after = read("output.mkv", [hidden, source, grain])
    shares = [verdict.shares[1] for verdict in judging.verdicts(before, after, truths)]
    assert shares == [1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="shorter"):
        judging.verdicts(before, read("short.mkv", [hidden] * 2), truths)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("angle", [0.0, 35.0, 150.0, 270.0])
@pytest.mark.parametrize("height", [18.0, 60.0])
def test_the_truth_is_where_the_face_is_put(
    drawing: Any, height: float, angle: float, mirrored: bool
) -> None:
    picture = np.zeros((120, 100, 3), np.uint8)
    oval = drawing.Oval(52.5, 56.5, 22.5, 34.5)
    cv2.ellipse(picture, (52, 56), (22, 34), 0, 0, 360, (255, 255, 255), -1)
    patch = drawing.Patch(picture, np.ones((120, 100), np.float32), oval)
    frame = drawing.Drawn(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    frame.paste(patch, 7, 70.0, 50.0, height, angle)
    frame = frame.mirrored() if mirrored else frame
    white, labelled = frame.picture[..., 0] > 127, frame.labels == 7
    shared = np.count_nonzero(white & labelled) / np.count_nonzero(white | labelled)
    assert shared > (0.88 if height < 30 else 0.95)
    assert frame.ovals[7][0].area == pytest.approx(np.count_nonzero(white), rel=0.05)
    larger = frame.resized(2 * WIDTH, 2 * HEIGHT)
    again = larger.picture[..., 0] > 127, larger.labels == 7
    shared = np.count_nonzero(again[0] & again[1]) / np.count_nonzero(again[0] | again[1])
    assert shared > (0.88 if height < 30 else 0.95)


def test_who_stands_in_front_covers_the_face_behind(drawing: Any) -> None:
    oval = drawing.Oval(20.0, 20.0, 10.0, 12.0)
    grey = np.full((40, 40, 3), 90, np.uint8)
    patch = drawing.Patch(grey, np.ones((40, 40), np.float32), oval)
    frame = drawing.Drawn(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    frame.paste(patch, 1, 60.0, 50.0, 24.0)
    frame.paste(patch, 2, 80.0, 50.0, 24.0)
    behind = np.argwhere(frame.labels == 1)
    assert 0 < len(behind) < 0.6 * oval.area
    assert behind[:, 1].max() < 61
    assert np.count_nonzero(frame.labels == 2) == pytest.approx(oval.area, rel=0.03)


def test_another_size_changes_neither_what_is_covered_nor_who_is_in_doubt(drawing: Any) -> None:
    frame = frame_with(drawing, FACE)
    frame.ovals[0] = frame.ovals[1]
    frame.cover(60, 48, 100, 80, 0)
    larger = frame.resized(2 * WIDTH, 2 * HEIGHT)
    assert np.array_equal(larger.labels, frame.labels.repeat(2, axis=0).repeat(2, axis=1))
    assert larger.ovals == {n: [drawing.Oval(160, 96, 30, 40)] for n in (0, 1)}
