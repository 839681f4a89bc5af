"""Following faces in batches, over a scripted world: which is which, and what is asked for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pytest

from bgsoft.errors import InferenceError
from bgsoft.face.detect import Detections
from bgsoft.face.networks import AskedView
from bgsoft.face.search import PATIENCE
from tests.unit.face_world import (
    ALWAYS,
    FACE,
    FRAME_MS,
    Place,
    Thing,
    Watch,
    World,
    centre,
    number_of,
    off,
    still,
)

SIZES = 1, 3, 8
"""Of batches."""
HELD = 2
"""Frames for which a face is reported that is not there any more."""


@pytest.mark.parametrize("size", SIZES)
def test_a_face_that_stays_takes_one_run_of_each_network_a_batch(size: int) -> None:
    watch = Watch(still(500, 500))
    for number, faces in enumerate(watch.run(20, size)):
        assert [(face.id, face.age_frames, face.detected) for face in faces] == [(0, number, True)]
        assert off(faces[0], (500, 500)) < 0.01
        assert faces[0].landmarks.shape == (468, 3)
    batches = len(watch.world.squares)
    assert batches == -(-20 // size)
    assert [looks for looks, _ in watch.looks] == [2] + [1] * (batches - 1)
    assert list(chain.from_iterable(watch.world.squares)) == list(range(20))
    near = [number for call in watch.world.views for number, is_near in call if is_near]
    assert near == list(range(20))


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_frame_is_searched_now_and_then(size: int) -> None:
    watch = Watch(still(500, 500), detect_every=8)
    watch.run(80, size)
    searched = {n for call in watch.world.views for n, near in call if not near}
    assert searched >= set(range(size))
    late = [7, *sorted(n for n in searched if n >= 8), 80]
    assert max(np.diff(late)) <= 8
    assert len(late) - 2 <= 80 // 8 + 1


def rightwards(first: int, last: int, step: float) -> Callable[[int], Place]:
    """At rest until one frame and from another on."""
    return lambda number: (200 + step * (min(max(number, first), last) - first), 500.0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("first", [0, *range(10, 18)])
@pytest.mark.parametrize("last", [40, 100])
def test_a_face_that_moves_keeps_its_id(size: int, first: int, last: int) -> None:
    where = rightwards(first, last, 0.15 * FACE)
    watch = Watch(Thing(where))
    for number, faces in enumerate(watch.run(90, size)):
        assert [(face.id, face.detected) for face in faces] == [(0, True)]
        assert off(faces[0], where(number)) < 0.05
    assert max(looks for looks, _ in watch.looks[1:]) == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_fast_face_is_looked_for_where_it_will_be(size: int) -> None:
    """In a batch it goes farther than what is shown of its surroundings."""
    where = rightwards(0, 100, 0.2 * FACE)
    for number, faces in enumerate(Watch(Thing(where)).run(75, size)):
        assert [(face.id, face.detected) for face in faces] == [(0, True)]
        assert off(faces[0], where(number)) < 0.05


@pytest.mark.parametrize("missed", range(16, 24))
def test_frames_in_which_the_detector_misses_a_moving_face_cost_nothing(
    missed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = rightwards(0, 100, 0.08 * FACE)
    watch, blind_in = Watch(Thing(where)), (missed, missed + 1)
    detect = World.detect

    def blind(world: World, asked: Sequence[AskedView], min_score: float) -> list[Detections]:
        seen = detect(world, asked, min_score)
        return [
            Detections.none() if number_of(frame, grid) in blind_in else found
            for found, (frame, grid, _) in zip(seen, asked, strict=True)
        ]

    monkeypatch.setattr(World, "detect", blind)
    for number, faces in enumerate(watch.run(48, 8)):
        assert [(face.id, face.detected) for face in faces] == [(0, number not in blind_in)]
        assert off(faces[0], where(number)) < 0.05


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frame", range(16, 24))
def test_a_face_may_jump_by_a_third(size: int, frame: int) -> None:
    def where(number: int) -> Place:
        return 500, (500 if number < frame else 500 + 0.35 * FACE)

    for number, faces in enumerate(Watch(Thing(where)).run(40, size)):
        assert [(face.id, face.detected) for face in faces] == [(0, True)]
        if number < frame:
            assert off(faces[0], where(number)) < 0.01


@pytest.mark.parametrize("frame", range(16, 24))
def test_who_is_a_face_farther_in_the_next_frame_is_another(frame: int) -> None:
    watch = Watch(still(500, 500, range(frame)), still(500, 610, range(frame, 100)))
    found = watch.run(48, 8)
    assert {face.id for face in found[frame - 1]} == {0}
    assert {face.id for faces in found[frame + HELD :] for face in faces} == {1}
    assert all(len(faces) == 1 for faces in found[32:])


@pytest.mark.parametrize("frame", [10, 11, 13, 14, 16, 17])
def test_who_is_missed_is_searched_in_the_next_batch(frame: int) -> None:
    """Soon after the last search, and although there is another to follow."""
    watch = Watch(
        still(1400, 500), still(500, 300, range(frame)), still(500, 800, range(frame, 100))
    )
    found = watch.run(30, 3)
    for faces in found[(frame // 3 + 1) * 3 :]:
        assert any(off(face, (500, 800)) < 0.01 for face in faces)


@pytest.mark.parametrize("size", [3, 8])
def test_the_first_face_is_found_in_the_frame_in_which_it_appears(size: int) -> None:
    for first in range(8, 16):
        watch = Watch(still(500, 500, range(first, 100)))
        assert [len(faces) for faces in watch.run(24, size)] == [0] * first + [1] * (24 - first)


@pytest.mark.parametrize("size", SIZES)
def test_a_further_face_is_found_with_the_next_search(size: int) -> None:
    for first in range(8, 25):
        watch = Watch(still(1400, 500), still(500, 500, range(first, 100)))
        found = watch.run(40, size)
        known = next(n for n, faces in enumerate(found) if len(faces) == 2)
        assert first <= known < first + 8
        for number, faces in enumerate(found):
            places = {face.id: centre(face) for face in faces}
            assert set(places) == ({0, 1} if number >= known else {0})
            assert places[0] == pytest.approx((1400, 500), abs=1)


def test_where_every_frame_is_searched_a_further_face_is_found_at_once() -> None:
    for first in range(8, 16):
        watch = Watch(still(1400, 500), still(500, 500, range(first, 100)), detect_every=1)
        assert [len(faces) for faces in watch.run(24, 8)] == [1] * first + [2] * (24 - first)


@pytest.mark.parametrize("size", SIZES)
def test_a_face_that_goes_is_held_for_two_frames_and_comes_back_as_another(size: int) -> None:
    for last in range(9, 18):
        watch = Watch(still(500, 500, range(last)), still(500, 500, range(30, 100)))
        found = watch.run(48, size)
        ids = [[face.id for face in faces] for faces in found]
        held = last + HELD
        assert ids == [[0]] * held + [[]] * (30 - held) + [[1]] * 18
        scores = [faces[0].score for faces in found[last - 1 : held]]
        assert scores == sorted(set(scores), reverse=True)
        assert not any(faces[0].detected for faces in found[last:held])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("last", range(40, 48))
def test_who_goes_is_not_taken_for_who_stands_beside(size: int, last: int) -> None:
    """The look from near shows the other, and their boxes share a quarter."""

    def comes(number: int) -> Place | None:
        return (min(200 + 10.0 * number, 500), 500) if number < last else None

    watch = Watch(still(560, 500, near=0.7), Thing(comes))
    for number, faces in enumerate(watch.run(60, size)):
        by_id = {face.id: face for face in faces}
        assert set(by_id) == ({0, 1} if number < last + HELD else {0})
        assert off(by_id[0], (560, 500)) < 0.01
        if number >= 35 and 1 in by_id:
            assert off(by_id[1], (500, 500)) < 0.1
            assert by_id[1].detected == (number < last)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("meeting", range(40, 48))
def test_who_walks_behind_another_is_lost_and_found(size: int, meeting: int) -> None:
    def front(number: int) -> Place:
        return 960 + 10.0 * (number - meeting), 500.0

    def back(number: int) -> Place:
        return 960 - 10.0 * (number - meeting), 520.0

    watch = Watch(Thing(front), Thing(back))
    ids = set()
    for number, faces in enumerate(watch.run(90, size)):
        by_id = {face.id: face for face in faces}
        assert len(by_id) <= 2
        assert off(by_id[0], front(number)) < 0.05
        away = abs(number - meeting) * 20 / FACE
        if away > 1 + 0.2 * 8:
            (other,) = set(by_id) - {0}
            assert off(by_id[other], back(number)) < 0.05
            ids.add(other)
    assert ids <= {1, 2}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("meeting", range(40, 48))
def test_who_passes_another_closely_stays_who_it_is(size: int, meeting: int) -> None:
    ways = [
        lambda number: (960 + 15.0 * (number - meeting), 467.0),
        lambda number: (960 - 15.0 * (number - meeting), 533.0),
    ]
    watch = Watch(Thing(ways[0], near=0.7), Thing(ways[1]))
    owners = None
    for number, faces in enumerate(watch.run(90, size)):
        order = {face.id: [off(face, where(number)) < 0.05 for where in ways] for face in faces}
        owners = owners or order
        assert order == owners
    assert owners is not None
    assert sorted(owners.values()) == [[False, True], [True, False]]


@pytest.mark.parametrize("size", SIZES)
def test_faces_side_by_side_stay_apart(size: int) -> None:
    """Each look from near shows both, and one is clearer than the other."""
    places = (500.0, 500.0), (500 + 1.1 * FACE, 500.0)
    watch = Watch(still(*places[0], near=0.7), still(*places[1], near=0.95))
    for faces in watch.run(40, size):
        by_id = {face.id: face for face in faces}
        assert set(by_id) == {0, 1}
        left, right = sorted(faces, key=lambda face: face.box_xyxy)
        assert off(left, places[0]) < 0.01
        assert off(right, places[1]) < 0.01
        assert left.detected
        assert right.detected
    assert max(looks for looks, _ in watch.looks[1:]) == 1


NO_FACES = {"from near": {"near": 0.1}, "for the landmarks": {"near": 0.6}}


def no_face(kind: str, frames: range = ALWAYS) -> Thing:
    return still(500, 500, frames, is_face=False, **NO_FACES[kind])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", NO_FACES)
@pytest.mark.parametrize("others", [[], [still(1400, 500)]], ids=["alone", "with a face"])
def test_what_is_no_face_is_tried_again_only_now_and_then(
    size: int, kind: str, others: list[Thing]
) -> None:
    watch = Watch(no_face(kind), *others)
    for faces in watch.run(100, size):
        assert len(faces) == len(others)
        assert all(off(face, (1400, 500)) < 0.01 for face in faces)
    looks = [looks for looks, searched in watch.looks if searched]
    assert len(looks) > 2 * PATIENCE
    assert looks == [1 if index % PATIENCE else 2 for index in range(len(looks))]
    for (_, searched), (call, *more) in zip(watch.looks, watch.batches, strict=True):
        if not searched:  # then only what is followed is looked at
            assert len(call) == len({number for number, _ in call}) * len(others)
            assert not more


@pytest.mark.parametrize("kind", NO_FACES)
def test_where_every_frame_is_searched_everything_is_tried(kind: str) -> None:
    watch = Watch(no_face(kind), detect_every=1)
    assert not any(watch.run(48, 8))
    assert watch.looks == [(2, True)] * 6


@pytest.mark.parametrize("kind", NO_FACES)
@pytest.mark.parametrize("near", [0.9, 0.7])
def test_a_face_where_none_was_is_found(kind: str, near: float) -> None:
    """In the next batch if it is clear, else when what is there is tried again."""
    watch = Watch(no_face(kind, range(12)), still(500, 500, range(12, 1000), near=near))
    lengths = [len(faces) for faces in watch.run(64, 8)]
    first = 16 if near == 0.9 else 8 * PATIENCE
    assert lengths == [0] * first + [1] * (64 - first)


def test_what_went_away_is_tried_at_once_when_it_is_back() -> None:
    watch = Watch(no_face("from near", range(8)), no_face("from near", range(16, 100)))
    assert not any(watch.run(40, 8))
    assert [looks for looks, _ in watch.looks] == [2, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("far", "near", "is_found"),
    [(0.35, 0.6, True), (0.25, 0.95, False), (0.95, 0.45, False)],
)
def test_scores_that_count(far: float, near: float, is_found: bool) -> None:
    watch = Watch(still(500, 500, far=far, near=near))
    assert [len(faces) for faces in watch.run(8, 8)] == [int(is_found)] * 8


@pytest.mark.parametrize("size", SIZES)
def test_no_more_faces_than_asked_for_and_the_clearest(size: int) -> None:
    places = [(200 + 300.0 * index, 500.0) for index in range(5)]
    scores = 0.6, 0.9, 0.7, 0.8, 0.5
    watch = Watch(
        *(still(*place, far=score) for place, score in zip(places, scores, strict=True)),
        max_faces=2,
    )
    for faces in watch.run(40, size):
        by_id = {face.id: face for face in faces}
        assert set(by_id) == {0, 1}
        assert off(by_id[0], places[1]) < 0.01
        assert off(by_id[1], places[3]) < 0.01


@pytest.mark.parametrize("kind", NO_FACES)
def test_what_is_no_face_keeps_none_out(kind: str) -> None:
    watch = Watch(no_face(kind), still(1400, 500, far=0.6), max_faces=1)
    assert [len(faces) for faces in watch.run(40, 8)] == [0] * 8 + [1] * 32


def test_no_more_than_a_few_suspects_are_looked_at() -> None:
    watch = Watch(*(still(150 + 300.0 * i, 500, near=0.1, is_face=False) for i in range(6)))
    assert not any(watch.run(80, 8))
    for call, *_ in watch.batches[1:]:
        assert 1 <= sum(near for _, near in call) <= 4


def test_reset_ends_tracks() -> None:
    watch = Watch(still(500, 500), small_faces=True)
    assert {face.id for faces in watch.run(16, 8) for face in faces} == {0}
    watch.together.reset()
    found = watch.run(16, 8)
    assert [[(face.id, face.age_frames) for face in faces] for faces in found] == [
        [(1, age)] for age in range(16)
    ]
    first, _, after, _ = watch.batches
    assert after == [[(number + 16, near) for number, near in call] for call in first]


@pytest.mark.parametrize("kind", NO_FACES)
def test_reset_forgets_what_was_no_face(kind: str) -> None:
    watch = Watch(no_face(kind))
    watch.run(16, 8)
    watch.together.reset()
    watch.run(16, 8)
    assert [looks for looks, _ in watch.looks] == [2, 1, 2, 1]


@pytest.mark.parametrize("network", ["detect", "landmarks"])
def test_a_fault_names_the_stage_and_the_first_frame(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(still(500, 500))
    watch.run(8, 8)

    def fail(*_: object) -> None:
        raise InferenceError("broken", stage="segment")

    monkeypatch.setattr(watch.world, network, fail)
    with pytest.raises(InferenceError, match="broken") as raised:
        watch.batch(8)
    assert (raised.value.stage, raised.value.pts) == ("face", 8 * FRAME_MS)


def test_an_empty_batch_asks_nothing_and_changes_nothing() -> None:
    watch = Watch(still(500, 500))
    assert watch.batch(0) == []
    assert not watch.world.views
    assert not watch.world.squares
    watch.run(8, 8)
    assert watch.batch(0) == []
    assert [[face.age_frames for face in faces] for faces in watch.run(2, 2)] == [[8], [9]]


def test_it_closes_its_networks() -> None:
    watch = Watch()
    with watch.together:
        assert not watch.world.closed
    assert watch.world.closed
