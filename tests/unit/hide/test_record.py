"""The record of what was hidden."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from bgsoft.hide.plan import Rectangle
from bgsoft.hide.record import KEY_FRAMES, HiddenPlace, HiddenRecord, join_runs
from bgsoft.report import HiddenRun
from tests.pictures import frame_format, random_frame

FORMAT = frame_format((320, 180))
FRAME = random_frame(FORMAT, np.random.default_rng(1))
Places = dict[int, list[HiddenPlace]]


def face(left: int, top: int = 40) -> HiddenPlace:
    return HiddenPlace(Rectangle(left, top, left + 40, top + 50))


def record(places: Places, frames: Sequence[int]) -> list[HiddenRun]:
    made = HiddenRecord("network")
    for index in frames:
        made.add(replace(FRAME, index=index, pts=index), places.get(index, []))
    return made.runs


def ends(runs: Sequence[HiddenRun]) -> list[tuple[int, int]]:
    return [(run.first_frame, run.last_frame) for run in runs]


def test_a_moving_place_has_a_box_in_its_first_its_last_and_each_key_frame() -> None:
    frames = range(7, 3 * KEY_FRAMES + 5)
    (run,) = join_runs([record({n: [face(n)] for n in frames}, frames)])
    listed = [7, KEY_FRAMES, 2 * KEY_FRAMES, 3 * KEY_FRAMES, frames[-1]]
    assert run.boxes == [(n, n, 40, n + 40, 90) for n in listed]
    assert (run.first_s, run.last_s) == (
        pytest.approx(float(7 * FRAME.time_base), abs=1e-6),
        pytest.approx(float(frames[-1] * FRAME.time_base), abs=1e-6),
    )


def test_boxes_of_a_place_that_rests_are_left_out() -> None:
    frames = range(10 * KEY_FRAMES)
    (run,) = join_runs([record({n: [face(30)] for n in frames}, frames)])
    assert [box[0] for box in run.boxes] == [0, frames[-1]]
    (once,) = join_runs([record({4: [face(30)]}, range(9))])
    assert once.boxes == [(4, 30, 40, 70, 90)]


def test_a_gap_or_a_jump_begins_another_run() -> None:
    places = {n: [face(30)] for n in range(20) if n != 9}
    places |= {n: [face(200)] for n in range(20, 25)}
    runs = join_runs([record(places, range(30))])
    assert ends(runs) == [(0, 8), (10, 19), (20, 24)]


def test_regions_continue_by_name_and_faces_by_place() -> None:
    places: Places = {}
    for n in range(8):
        faces = [face(40 + n), face(200 - n)]
        regions = [HiddenPlace(Rectangle(30 * n, 0, 30 * n + 10, 10), "region 1 of r.toml")]
        places[n] = (faces if n % 2 else faces[::-1]) + regions
    runs = join_runs([record(places, range(8))])
    assert ends(runs) == [(0, 7)] * 3
    assert {(run.boxes[0][1], run.boxes[-1][1]) for run in runs} == {(40, 47), (200, 193), (0, 210)}


def test_boxes_end_at_the_edge_of_the_frame() -> None:
    (run,) = join_runs([record({0: [HiddenPlace(Rectangle(-8, 150, 500, 190))]}, range(1))])
    assert run.boxes == [(0, 0, 150, 320, 180)]


@pytest.mark.parametrize("at", [1, 29, 30, 31, 45, 60, 99])
def test_parts_of_a_video_are_joined_to_what_a_whole_record_says(at: int) -> None:
    rng = np.random.default_rng(at)
    left, places = 100, {}
    for n in range(100):
        left = min(max(left + int(rng.integers(-3, 4)) * (n % 40 > 20), 0), 250)
        region = HiddenPlace(Rectangle(n, 0, n + 10, 10), "--hide")
        gone = 50 <= n < 55
        places[n] = [*([] if gone else [face(left)]), *([region] if n > 20 else []), face(10, 120)]
    whole = join_runs([record(places, range(100))])
    parts = [record(places, range(at)), record(places, range(at, 100))]
    assert join_runs(deepcopy(parts)) == whole
    assert len(whole) == 4
