"""Finding faces over a scripted world: who is found, and that batches make no difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from bgsoft.errors import InferenceError
from bgsoft.face.base import Face
from tests.marks import slow
from tests.unit.face.world import (
    FACE,
    FRAME_MS,
    Place,
    Thing,
    Watch,
    centre,
    off,
    still,
)

SIZES = 1, 3, 8
"""Of batches, and looks of a run."""
HELD = 2
"""Frames for which a face is reported that is not there any more."""


def rightwards(step: float, first: int = 10) -> Callable[[int], Place]:
    """At rest until one frame; then it moves on."""
    return lambda number: (200 + step * max(0, number - first), 500.0)


def plain(found: Sequence[Sequence[Face]]) -> list[list[tuple[Any, ...]]]:
    """All that is said of the faces, comparable."""
    return [
        [
            (*(f.id, f.score, f.box_xyxy, f.detected, f.age_frames), f.landmarks.tobytes())
            for f in faces
        ]
        for faces in found
    ]


def crossing(speed: float, meeting: int, y: float) -> Thing:
    return Thing(lambda number: (960 + speed * (number - meeting), y), near=0.7)


SCENES: dict[str, tuple[Thing, ...]] = {
    "nobody": (),
    "rest": (still(500, 500),),
    "walk": (Thing(rightwards(0.02 * FACE)),),
    "run": (Thing(rightwards(0.2 * FACE)),),
    "jump": (Thing(lambda number: (500, 500 if number < 20 else 535)),),
    "cut": (still(500, 500, range(21)), still(545, 530, range(21, 100))),
    "come and go": (still(500, 500, range(9, 21)), still(800, 500, range(13, 40))),
    "pass": (crossing(15, 30, 467), crossing(-15, 30, 533)),
    "no face": (still(500, 500, near=0.1), still(900, 300, near=0.6, is_face=False)),
    "dim": (Thing(rightwards(0.04 * FACE), is_face=False, near=0.8), still(900, 300)),
    "many": tuple(still(150 + 300.0 * index, 500) for index in range(6)),
}


@pytest.mark.parametrize(
    "settings",
    [{"by_landmarks": False}, {"trusts_detector": True}, slow({}), slow({"detect_every": 1})],
    ids=str,
)
@pytest.mark.parametrize("name", SCENES)
def test_who_is_found_does_not_depend_on_batches(name: str, settings: dict[str, int]) -> None:
    one, *others = (plain(Watch(*SCENES[name], **settings).run(48, size)) for size in SIZES)
    assert others == [one] * len(others)


@pytest.mark.parametrize(("size", "waits"), [(1, 48), (8, 6)])
def test_a_face_that_stays_takes_one_run_of_the_landmark_model_a_batch(
    size: int, waits: int
) -> None:
    watch = Watch(still(500, 500))
    for number, faces in enumerate(watch.run(48, size)):
        assert [(face.id, face.age_frames) for face in faces] == [(0, number)]
        assert off(faces[0], (500, 500)) < 0.01
    assert len(watch.world.squares) == waits


@pytest.mark.parametrize("step", [0.01, 0.05, 0.12, 0.2])
def test_a_face_that_moves_steadily_is_waited_for_once_or_twice_a_batch(step: float) -> None:
    """Where it will be looked at is guessed to the bit, but in the frames in which it sets out."""
    watch = Watch(Thing(rightwards(step * FACE)))
    watch.run(16, 8)
    watch.world.squares.clear()
    watch.world.views.clear()
    watch.run(64, 8)
    assert len(watch.world.squares) <= 2 * 8
    assert len(watch.world.views) <= 2 * 8


def test_looks_ahead_fill_a_run_and_end_with_the_batch() -> None:
    watch = Watch(still(500, 500), still(1400, 500))
    watch.batch(8)
    assert watch.world.squares == [[0, 1, 2, 3] * 2, [4, 5, 6, 7] * 2]
    watch.batch(3)
    assert max(number for call in watch.world.squares for number in call) == 10


def test_the_whole_frame_is_searched_now_and_then() -> None:
    watch = Watch(still(500, 500), detect_every=8)
    watch.run(80, 1)
    searched = sorted({n for call in watch.world.views for n, near in call if not near})
    assert max(b - a for a, b in pairwise(searched)) == 8
    assert len(searched) <= 80 // 8 + 3  # the second frame confirms the face


@pytest.mark.parametrize("step", [0.02, 0.15, 0.2])
def test_a_face_that_moves_keeps_its_id(step: float) -> None:
    where = rightwards(step * FACE)
    for number, faces in enumerate(Watch(Thing(where)).run(80, 8)):
        assert [face.id for face in faces] == [0]
        assert off(faces[0], where(number)) < 0.05


@pytest.mark.parametrize("frame", range(16, 24))
def test_who_is_a_face_farther_in_the_next_frame_is_another(frame: int) -> None:
    watch = Watch(still(500, 500, range(frame)), still(500, 610, range(frame, 100)))
    found = watch.run(48, 8)
    assert {face.id for face in found[frame - 1]} == {0}
    assert {face.id for faces in found[frame + HELD :] for face in faces} == {1}
    assert all(len(faces) == 1 for faces in found[32:])


def test_the_first_face_is_found_in_the_frame_in_which_it_appears() -> None:
    for first in range(8, 16):
        watch = Watch(still(500, 500, range(first, 100)))
        assert [len(faces) for faces in watch.run(24, 8)] == [0] * first + [1] * (24 - first)


@pytest.mark.parametrize("every", [1, 8])
def test_a_further_face_is_found_with_the_next_search(every: int) -> None:
    for first in range(8, 25):
        things = still(1400, 500), still(500, 500, range(first, 100))
        found = Watch(*things, detect_every=every).run(40, 8)
        known = next(n for n, faces in enumerate(found) if len(faces) == 2)
        assert first <= known < first + every
        for number, faces in enumerate(found):
            places = {face.id: centre(face) for face in faces}
            assert set(places) == ({0, 1} if number >= known else {0})
            assert places[0] == pytest.approx((1400, 500), abs=1)


def test_a_face_that_goes_is_held_for_two_frames_and_comes_back_as_another() -> None:
    for last in range(9, 18):
        watch = Watch(still(500, 500, range(last)), still(500, 500, range(30, 100)))
        found = watch.run(48, 8)
        ids = [[face.id for face in faces] for faces in found]
        held = last + HELD
        assert ids == [[0]] * held + [[]] * (30 - held) + [[1]] * 18
        scores = [faces[0].score for faces in found[last - 1 : held]]
        assert scores == sorted(set(scores), reverse=True)
        assert not any(faces[0].detected for faces in found[last:held])


@pytest.mark.parametrize("meeting", range(40, 48))
def test_who_passes_another_closely_stays_who_it_is(meeting: int) -> None:
    things = crossing(15, meeting, 467), crossing(-15, meeting, 533)
    owners = None
    for number, faces in enumerate(Watch(*things).run(90, 8)):
        order = {
            face.id: [off(face, thing.where(number)) < 0.05 for thing in things] for face in faces
        }
        owners = owners or order
        assert order == owners
    assert owners is not None
    assert sorted(owners.values()) == [[False, True], [True, False]]


NO_FACES = {"from near": {"near": 0.1}, "for the landmarks": {"near": 0.6}}


@pytest.mark.parametrize("kind", NO_FACES)
@pytest.mark.parametrize("others", [[], [still(1400, 500)]], ids=["alone", "with a face"])
def test_what_is_no_face_keeps_none_out(kind: str, others: list[Thing]) -> None:
    watch = Watch(still(500, 500, is_face=False, **NO_FACES[kind]), *others, max_faces=1)
    for faces in watch.run(60, 8)[12:]:
        assert len(faces) == len(others)
        assert all(off(face, (1400, 500)) < 0.01 for face in faces)


def test_a_face_where_none_was_is_found_at_once() -> None:
    things = still(500, 500, range(12), near=0.1), still(500, 500, range(12, 1000))
    lengths = [len(faces) for faces in Watch(*things).run(64, 8)]
    assert lengths == [0] * 12 + [1] * 52


@pytest.mark.parametrize(
    ("far", "near", "is_found"),
    [(0.35, 0.6, True), (0.25, 0.95, False), (0.95, 0.45, False)],
)
def test_scores_that_count(far: float, near: float, is_found: bool) -> None:
    watch = Watch(still(500, 500, far=far, near=near))
    assert [len(faces) for faces in watch.run(8, 8)] == [int(is_found)] * 8


def test_no_more_faces_than_asked_for_and_the_clearest() -> None:
    places = [(200 + 300.0 * index, 500.0) for index in range(5)]
    scores = 0.6, 0.9, 0.7, 0.8, 0.5
    things = (still(*place, far=score) for place, score in zip(places, scores, strict=True))
    for faces in Watch(*things, max_faces=2).run(40, 8):
        by_id = {face.id: face for face in faces}
        assert set(by_id) == {0, 1}
        assert off(by_id[0], places[1]) < 0.01
        assert off(by_id[1], places[3]) < 0.01


def test_reset_ends_tracks() -> None:
    watch = Watch(still(500, 500), small_faces=True)
    assert {face.id for faces in watch.run(16, 8) for face in faces} == {0}
    first = list(watch.world.views)
    watch.world.views.clear()
    watch.finder.reset()
    found = watch.run(16, 8)
    assert [[(face.id, face.age_frames) for face in faces] for faces in found] == [
        [(1, age)] for age in range(16)
    ]
    assert watch.world.views == [[(n + 16, near) for n, near in call] for call in first]


@pytest.mark.parametrize("network", ["detect", "landmarks"])
def test_a_fault_names_the_stage_and_the_frame(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(still(500, 500), detect_every=1)
    watch.run(8, 8)

    def fail(*_: object, **__: object) -> None:
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
    with watch.finder:
        assert not watch.world.closed
    assert watch.world.closed


def test_without_landmarks_a_face_that_the_detector_loses_is_followed_by_them() -> None:
    """As from the side; until the detector sees it again."""
    watch = Watch(
        still(500, 500, range(20)),
        still(500, 500, range(20, 60), far=0.1, near=0.4),
        still(500, 500, range(60, 80)),
        by_landmarks=False,
    )
    found = watch.run(80, 8)
    assert [[face.id for face in faces] for faces in found] == [[0]] * 80
    with_landmarks = [number for number, (face,) in enumerate(found) if face.has_landmarks]
    assert with_landmarks[0] in range(20, 25)
    assert with_landmarks == list(range(with_landmarks[0], 60))


def test_without_landmarks_they_say_what_a_doubtful_detection_shows() -> None:
    doubtful = Watch(still(500, 500, near=0.6), by_landmarks=False).run(8, 1)
    assert [[face.has_landmarks for face in faces] for faces in doubtful][:2] == [[True], [False]]
    assert Watch(still(500, 500, near=0.6, is_face=False), by_landmarks=False).run(8, 1) == [[]] * 8
    sure = Watch(still(500, 500), by_landmarks=False)
    sure.run(40, 8)
    assert sure.world.squares == []


def test_what_the_detector_is_sure_of_is_reported_without_landmarks() -> None:
    """As in the dark, or out of focus."""
    dim = Thing(rightwards(0.04 * FACE, 0), is_face=False)
    for number, (face,) in enumerate(Watch(dim, trusts_detector=True).run(40, 1)):
        assert (face.id, face.has_landmarks) == (0, False)
        assert off(face, (200 + 0.04 * FACE * number, 500)) < 0.1
    doubtful = still(500, 500, near=0.7, is_face=False)
    assert Watch(doubtful, trusts_detector=True).run(16, 1) == [[]] * 16
    assert Watch(dim).run(16, 1) == [[]] * 16


def test_a_face_that_only_the_detector_is_sure_of_for_a_while_may_be_another_after_it() -> None:
    watch = Watch(
        still(500, 500, range(20)),
        still(500, 500, range(20, 40), is_face=False),
        still(500, 500, range(40, 60)),
        trusts_detector=True,
    )
    *seen, first, second, third = watch.run(63, 8)
    assert [[face.id for face in faces] for faces in seen] == [[0]] * 40 + [[1]] * 20
    assert not any(face.has_landmarks for (face,) in seen[20 + HELD : 40])
    assert all(face.has_landmarks for (face,) in (*seen[: 20 + HELD], *seen[40:]))
    assert [len(first), len(second), len(third)] == [1, 1, 0]


def test_somebody_else_beside_it_after_a_cut_is_another_to_the_detector_alone() -> None:
    watch = Watch(
        still(500, 500, range(20), is_face=False),
        still(530, 520, range(20, 40), is_face=False),
        trusts_detector=True,
        detect_every=1,
    )
    ids = [[face.id for face in faces] for faces in watch.run(40, 8)]
    assert ids == [[0]] * 20 + [[1]] * 20


def test_without_landmarks_a_moving_face_is_looked_at_more_often() -> None:
    near = []
    for step in (0.0, 0.03, 0.1):
        watch = Watch(Thing(rightwards(step * FACE, 0)), by_landmarks=False)
        faces = watch.run(40, 1)
        assert all(off(each[0], (200 + step * FACE * n, 500)) < 0.1 for n, each in enumerate(faces))
        near.append(sum(is_near for call in watch.world.views for _, is_near in call))
    assert near == sorted(near)
    assert near[0] <= 16 < 38 <= near[2]
