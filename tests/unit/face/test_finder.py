"""Faces in a scripted world: who is found, and when; batches change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest

from bgsoft.errors import InferenceError
from bgsoft.face.base import Face
from bgsoft.face.detect import Detection
from bgsoft.face.finder import (
    CHECK_SHARE,
    CLEAR_SCORE,
    CLOSE_SCORE,
    HIDDEN_SCORE,
    KNOWN_SCORE,
    LIKELY_SCORE,
    SURE_SCORE,
    TURNED_SCORE,
)
from tests.marks import crossed
from tests.unit.face.world import (
    FACE,
    FORMAT,
    FRAME_MS,
    Place,
    Thing,
    Watch,
    box_around,
    off,
    still,
)

SIZES = 1, 5
"""Sizes of batches, and views of a run."""
SURELY = 0.9
CLOSE = CLOSE_SCORE - CHECK_SHARE * Thing.check
"""Evidence of closer views that is enough although the other detector sees nothing."""
HIDING: dict[str, Any] = {"hides": True, "every": 1}


def rightwards(step: float, first: int = 10) -> Callable[[int], Place]:
    """A face that rests until one frame and then moves on."""
    return lambda number: (200 + step * max(0, number - first), 500.0)


def plain(found: Sequence[Sequence[Face]]) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (*(f.id, f.score, f.box_xyxy, f.detected, f.age_frames), f.landmarks.tobytes())
            for f in faces
        ]
        for faces in found
    ]


def places(found: Sequence[Sequence[Face]]) -> list[list[tuple[Any, ...]]]:
    return [sorted((f.box_xyxy, f.score, f.detected) for f in faces) for faces in found]


def crossing(speed: float, meeting: int, y: float) -> Thing:
    return Thing(lambda number: (960 + speed * (number - meeting), y), whole=0.82)


SCENES: dict[str, tuple[Thing, ...]] = {
    "nobody": (),
    "rest": (still(500, 500),),
    "walk": (Thing(rightwards(0.02 * FACE)),),
    "run": (Thing(rightwards(0.2 * FACE)),),
    "cut": (still(500, 500, range(21)), still(545, 530, range(21, 100))),
    "come and go": (still(500, 500, range(9, 21)), still(800, 500, range(13, 40))),
    "pass": (crossing(15, 30, 467), crossing(-15, 30, 533)),
    "doubts": (still(500, 500, whole=0.4, close=0.1), still(900, 300, whole=0.4)),
    "lying": (still(500, 500, whole=0.0, half=0.0, turned=0.95),),
    "many": tuple(still(150 + 300.0 * index, 500) for index in range(6)),
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"hides": True},
    {"hides": True, "every": 1},
    {"by_landmarks": True},
)


@crossed(settings=SETTINGS, name=SCENES)
def test_who_is_found_does_not_depend_on_batches(name: str, settings: dict[str, Any]) -> None:
    one, *others = (plain(Watch(*SCENES[name], **settings).run(40, size)) for size in SIZES)
    assert others == [one] * len(others)


@crossed(settings=SETTINGS, name=SCENES)
def test_after_a_refresh_nothing_depends_on_earlier_frames(
    name: str, settings: dict[str, Any]
) -> None:
    """So a chunk has the same faces as the whole video."""
    for first in (14, 21):
        whole, part = (
            Watch(*SCENES[name], **settings),
            Watch(*SCENES[name], first=first, **settings),
        )
        whole.run(first)
        whole.finder.refresh()
        assert places(whole.run(12)) == places(part.run(12)), first


def test_a_refresh_keeps_the_ids() -> None:
    watch = Watch(still(500, 500), still(900, 500))
    watch.run(7)
    watch.finder.refresh()
    for number, faces in enumerate(watch.run(7)):
        assert {face.id: face.age_frames for face in faces} == {0: 7 + number, 1: 7 + number}


def test_reset_ends_tracks() -> None:
    watch = Watch(still(500, 500), hides=True)
    assert {face.id for faces in watch.run(16, 8) for face in faces} == {0}
    first = [(look.frame + 16, look.shown, look.quarters) for look in watch.world.looks]
    watch.world.looks.clear()
    watch.finder.reset()
    found = watch.run(16, 8)
    assert [[(face.id, face.age_frames) for face in faces] for faces in found] == [
        [(1, age)] for age in range(16)
    ]
    assert [(look.frame, look.shown, look.quarters) for look in watch.world.looks] == first


@pytest.mark.parametrize(
    ("settings", "every"),
    [({"every": 1}, 1), ({"every": 5}, 5), ({"seconds": 0.13}, 4), ({"most_frames": 3}, 3)],
    ids=str,
)
def test_a_face_that_rests_is_searched_for_at_intervals(
    settings: dict[str, Any], every: int
) -> None:
    watch = Watch(still(500, 500), **settings)
    for number, (face,) in enumerate(watch.run(41)):
        assert (face.id, face.age_frames) == (0, number)
        assert off(face, (500, 500)) == 0
    searched = watch.looked_at()
    # The second frame confirms the face.
    assert searched[:2] == [0, 1]
    assert {b - a for a, b in pairwise(searched[1:])} == {every}
    assert len(watch.world.looks) == len(searched)


@pytest.mark.parametrize("every", [1, 4, 8])
@pytest.mark.parametrize("others", [[], [still(1400, 500)]], ids=["alone", "with a face"])
def test_a_face_is_found_with_the_next_look(others: list[Thing], every: int) -> None:
    """It may appear in any frame, and stays found."""
    for first in range(8, 17):
        things = still(500, 500, range(first, 100)), *others
        watch = Watch(*things, every=every)
        found = watch.run(32)
        lengths = [len(faces) - len(others) for faces in found]
        known = lengths.index(1)
        assert known == min(n for n in watch.looked_at() if n >= first)
        assert first <= known < first + every
        assert lengths == [0] * known + [1] * (32 - known)


def test_at_few_frames_a_second_each_is_inspected() -> None:
    """A face may be visible for half a second only."""
    watch = Watch(still(500, 500), seconds=0.5 * FRAME_MS / 1000)
    watch.run(10)
    assert watch.looked_at() == list(range(10))


def test_faces_in_noise_are_found_at_half_scale() -> None:
    for first in range(8, 17):
        noisy = still(500, 500, range(first, 100), whole=0.0, turned=0.0)
        things = still(1400, 500), noisy
        watch = Watch(*things, hides=True, every=4)
        lengths = [len(faces) for faces in watch.run(40)]
        known = min(n for n in watch.looked_at("half") if n >= first)
        assert known < first + 8
        assert lengths == [1] * known + [2] * (40 - known)
    assert Watch(still(500, 500, whole=0.0)).run(16) == [[]] * 16


def test_what_the_detector_is_sure_of_is_a_face_whatever_was_expected() -> None:
    """Also where faces jump to each other's places."""
    rng = np.random.default_rng(5)
    spots = [(200.0 + 150 * column, 200.0 + 150 * row) for column in range(10) for row in range(5)]
    shown = [
        [spots[k] for k in rng.choice(len(spots), rng.integers(0, 6), replace=False)]
        for _ in range(120)
    ]

    def nth(row: int) -> Thing:
        jitter = rng.normal(0, 20, (120, 2))
        return Thing(
            lambda number: (
                tuple(np.add(shown[number][row], jitter[number]))
                if row < len(shown[number])
                else None
            )
        )

    things = [nth(row) for row in range(6)]
    for settings in ({"every": 1}, {"every": 1, "hides": True}):
        watch = Watch(*things, **settings)
        for number, faces in enumerate(watch.run(120)):
            wanted = sorted(box_around(place) for _, place in watch.world.seen(number))
            assert sorted(face.box_xyxy for face in faces if face.detected) == wanted


@pytest.mark.parametrize("step", [0.02, 0.15, 0.3])
@pytest.mark.parametrize("settings", [{}, {"hides": True}, {"by_landmarks": True}], ids=str)
def test_a_face_that_moves_keeps_its_id(step: float, settings: dict[str, Any]) -> None:
    where = rightwards(step * FACE, 0)
    for number, faces in enumerate(Watch(Thing(where), **settings).run(40, 8)):
        assert [face.id for face in faces] == [0]
        assert off(faces[0], where(number)) < 0.05


def test_a_face_that_moves_is_inspected_more_often() -> None:
    looks = []
    for step in (0.0, 0.1, 0.3):
        watch = Watch(Thing(rightwards(step * FACE, 0)), every=8)
        watch.run(40)
        looks.append(len(watch.looked_at()))
    assert looks == sorted(set(looks))
    assert looks[-1] == 40


def test_somebody_else_next_to_a_face_after_a_cut_is_another() -> None:
    ids = [[face.id for face in faces] for faces in Watch(*SCENES["cut"], every=1).run(40)]
    assert ids == [[0]] * 21 + [[1]] * 19


@pytest.mark.parametrize("meeting", range(40, 44))
def test_who_passes_another_closely_stays_who_it_is(meeting: int) -> None:
    things = crossing(15, meeting, 440), crossing(-15, meeting, 560)
    owners = None
    for number, faces in enumerate(Watch(*things).run(90, 8)):
        order = {
            face.id: [off(face, thing.where(number)) < 0.2 for thing in things] for face in faces
        }
        owners = owners or order
        assert order == owners
    assert owners is not None
    assert sorted(owners.values()) == [[False, True], [True, False]]


@pytest.mark.parametrize("gap", [1, 10, 24])
def test_a_face_has_its_id_again_after_less_than_a_second(gap: int) -> None:
    back = 20 + gap
    watch = Watch(still(500, 500, range(20)), still(500, 500, range(back, 100)), every=1)
    ids = [[face.id for face in faces] for faces in watch.run(back + 10)]
    assert all(faces == [0] for faces in (*ids[:20], *ids[back:]))
    assert ids[21:back] == [[]] * (back - 21)


def test_after_more_than_a_second_it_is_another() -> None:
    watch = Watch(still(500, 500, range(20)), still(500, 500, range(46, 100)), every=1)
    ids = [[face.id for face in faces] for faces in watch.run(60)]
    assert ids[46:] == [[1]] * 14


@pytest.mark.parametrize("hides", [False, True])
def test_scores_that_make_a_face(hides: bool) -> None:
    """Where faces are hidden, a closer view decides about doubtful scores."""

    def is_found(x: float = 500, **scores: float) -> bool:
        scores = {"half": 0.0, "turned": 0.0, "close": 0.0, **scores}
        found = [bool(faces) for faces in Watch(still(x, 500, **scores), hides=hides).run(2)]
        assert len(set(found)) == 1
        return found[0]

    sure = HIDDEN_SCORE if hides else SURE_SCORE
    assert is_found(whole=sure + 0.01)
    assert not is_found(whole=sure)
    assert is_found(whole=0.1, close=CLOSE - 0.01) == hides
    assert is_found(whole=0.5, close=CLOSE - 0.09) == hides
    assert not is_found(whole=0.1, close=CLOSE - 0.03)
    assert not is_found(whole=0.5, close=CLOSE - 0.11)
    assert is_found(whole=0.1, close=CLOSE_SCORE - 0.01, check=0.0) == hides
    assert not is_found(whole=0.1, close=CLOSE_SCORE - 0.03, check=0.0)
    assert not is_found(whole=0.04, close=0.95)
    assert is_found(whole=0.0, half=HIDDEN_SCORE + 0.01) == hides
    assert is_found(whole=0.0, turned=TURNED_SCORE + 0.01) == hides
    assert not is_found(whole=0.0, turned=TURNED_SCORE)
    # What an edge cuts has to be clearer, and so have large things.
    clear = HIDDEN_SCORE if hides else CLEAR_SCORE
    assert is_found(40, whole=clear + 0.01)
    assert not is_found(40, whole=clear)
    assert is_found(size=200, whole=clear + 0.01)
    assert not is_found(size=200, whole=clear)
    assert is_found(size=140, whole=sure + 0.01)


@pytest.mark.parametrize(
    ("hides", "score", "is_kept"),
    [(False, KNOWN_SCORE, True), (False, 0.2, False), (True, 0.2, True), (True, 0.04, False)],
)
def test_scores_that_continue_a_face(hides: bool, score: float, is_kept: bool) -> None:
    faint = {"whole": score, "half": 0.0, "turned": 0.0, "close": 0.0}
    things = still(500, 500, range(10)), still(500, 500, range(10, 40), **faint)
    found = Watch(*things, hides=hides).run(30)
    assert [[face.id for face in faces] for faces in found[20:]] == [[0] if is_kept else []] * 10


@pytest.mark.parametrize("hides", [False, True])
def test_doubts_are_viewed_closer_only_where_faces_are_hidden(hides: bool) -> None:
    watch = Watch(still(500, 500, whole=0.5, half=0.5, close=0.1), hides=hides, every=1)
    for _ in range(12):
        watch.batch(1)
        (doubts,) = watch.finder.doubts
        assert [each.box for each in doubts] == [box_around((500, 500))]
    assert bool(watch.world.close_looks) == hides
    assert watch.world.squares == []


def test_what_the_closer_view_confirms_is_hidden_and_not_in_doubt() -> None:
    faint = {"half": 0.0, "turned": 0.0}
    things = still(500, 500, whole=0.6, **faint), still(900, 300, whole=0.6, close=0.1, **faint)
    watch = Watch(*things, **HIDING)
    ((face,),) = watch.batch(1)
    assert face.box_xyxy == box_around((500, 500))
    ((doubt,),) = watch.finder.doubts
    assert doubt.box == box_around((900, 300))


@pytest.mark.parametrize(
    ("hides", "sightings", "goes_on"), [(True, 2, False), (True, 3, True), (False, 2, True)]
)
def test_where_faces_are_hidden_only_established_ones_go_on_without_a_closer_view(
    hides: bool, sightings: int, goes_on: bool
) -> None:
    faint = {"whole": KNOWN_SCORE + 0.1, "half": 0.0, "turned": 0.0, "close": 0.1}
    face, rest = still(500, 500, range(sightings)), still(500, 500, range(sightings, 9), **faint)
    found = Watch(face, rest, hides=hides, every=1).run(sightings + 1)
    assert [each.detected for each in found[-1]] == [goes_on]


def test_a_closer_view_is_enough_where_it_is_very_sure_or_shows_the_same_twice() -> None:
    for close, check, frames, is_proven in (
        (TURNED_SCORE + 0.01, -1.3, range(1), [True, True]),
        (TURNED_SCORE, -1.3, range(1), [False, False]),
        (CLOSE + 0.01, -1.3, range(2), [False, True]),
        (CLOSE, 0.01, range(1), [True, True]),
        (CLOSE, 0.0, range(2), [False, True]),
    ):
        faint = {"whole": 0.2, "half": 0.0, "turned": 0.0, "check": check}
        found = Watch(still(500, 500, frames, close=close, **faint), **HIDING).run(2)
        assert [face.is_proven for (face,) in found] == is_proven


def test_large_things_in_closer_views_count_once_they_are_seen_three_times_in_a_row() -> None:
    faint: dict[str, Any] = {"size": 200, "whole": KNOWN_SCORE + 0.1, "half": 0.0, "turned": 0.0}
    for close, check, parts, is_proven in (
        (CLOSE, 0.01, (range(4),), [True] * 4),
        (TURNED_SCORE + 0.01, -1.3, (range(4),), [False, False, True, True]),
        (CLOSE, 0.0, (range(4),), [False, False, True, True]),
        (CLOSE, -1.3, (range(2), range(3, 6)), [False, False, True, True]),
        (CLOSE, -1.3, (range(2), range(4, 6)), [False, False, False, False]),
    ):
        seen = [number for part in parts for number in part]
        things = (still(500, 500, part, close=close, check=check, **faint) for part in parts)
        found = Watch(*things, **HIDING).run(6)
        proven = {at: face.is_proven for at, faces in enumerate(found) for face in faces}
        assert [proven[at] for at in seen][:4] == is_proven


@pytest.mark.parametrize("first", range(4))
def test_a_large_face_that_only_one_turned_view_shows_is_hidden_beside_another(first: int) -> None:
    """Passes come every fourth frame, and show each turned view in every sixth pass only."""
    other = still(1500, 300, whole=SURELY, turned=0.0)
    vague = {"size": 200, "whole": 0.0, "half": 0.0, "turned": 0.6, "close": CLOSE}
    found = Watch(other, still(500, 500, range(first, 99), **vague), hides=True, seconds=0.13).run(
        40
    )
    assert any(face.is_proven for faces in found for face in faces if face.box_xyxy[0] < 900)


@pytest.mark.parametrize("view", ["whole", "half"])
@pytest.mark.parametrize(("x", "size"), [(500, 200), (40, FACE)])
def test_large_and_cut_things_that_closer_views_do_not_show_count_once_they_are_seen_three_times(
    x: int, size: float, view: str
) -> None:
    for score, frames, is_proven in (
        (TURNED_SCORE + 0.01, range(1), [True, True]),
        (TURNED_SCORE, range(1), [False, False]),
        (TURNED_SCORE, range(3), [False, False, True]),
        (HIDDEN_SCORE, range(3), []),
    ):
        scores = {"whole": 0.0, "half": 0.0, "turned": 0.0, "close": 0.0, view: score}
        found = Watch(still(x, 500, frames, size=size, **scores), **HIDING).run(3)
        assert [face.is_proven for faces in found for face in faces] == is_proven


def test_a_clear_thing_that_closer_views_do_not_show_does_not_replace_a_face_inside_it() -> None:
    face = still(500, 500, whole=0.5, close=0.8, check=0.5)
    around = still(560, 500, whole=TURNED_SCORE, close=0.0, size=300)
    (faces,) = Watch(face, around, **HIDING).run(1)
    assert [(face.box_xyxy, face.is_proven) for face in faces] == [
        (box_around((560, 500), 300), False),
        (box_around((500, 500)), True),
    ]


def test_an_established_face_that_grows_is_followed_with_its_size() -> None:
    """Its score is that of clear faces, not that of faces which are certain anywhere."""
    growing = [
        Thing(
            lambda at, n=n: (500, 500) if at == n else None, whole=0.86, half=0.86, size=100 + 3 * n
        )
        for n in range(60)
    ]
    found = Watch(*growing, **HIDING).run(60)
    for number, ((face,), thing) in enumerate(zip(found, growing, strict=True)):
        assert number < 10 or face.box_xyxy == box_around((500, 500), thing.size)


def test_a_faint_large_face_that_the_other_detector_knows_is_found() -> None:
    """Of those that are larger still, faint ones are not viewed closer."""
    faint = {"whole": 0.2, "half": 0.0, "turned": 0.0, "check": 1.0}
    ((face,),) = Watch(still(500, 500, size=140, **faint), **HIDING).run(1)
    assert face.is_proven


def test_the_other_detector_does_not_outvote_clear_closer_views() -> None:
    found = Watch(still(500, 500, whole=0.5, half=0.0, turned=0.0, check=-4.0), **HIDING).run(1)
    assert [face.is_proven for (face,) in found] == [True]


def test_a_second_closer_view_is_centred_on_what_the_first_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(still(500, 500, whole=0.5, half=0.0, turned=0.0), **HIDING)
    scores = {500: 0.7, 510: 0.83}
    centres: list[float] = []

    def closer(
        asked: Sequence[tuple[Any, Detection]], min_score: float, *, smoothed: bool = False
    ) -> list[list[Detection]]:
        centres.extend((left + right) / 2 for _, ((left, _, right, _), *_) in asked)
        return [
            [Detection((left + 10, top, right + 10, bottom), 0.0, scores[(left + right) / 2])]
            for _, ((left, top, right, bottom), *_) in asked
        ]

    monkeypatch.setattr(watch.world, "detect_close", closer)
    ((face,),) = watch.batch(1)
    assert centres == [500, 510]
    assert face.score == pytest.approx((0.7 + 0.83) / 2)
    assert (face.box_xyxy[0] + face.box_xyxy[2]) / 2 == 520


@pytest.mark.parametrize(
    ("thing", "views"),
    [
        ({"whole": 0.35, "close": 0.3}, 1),  # hardly anything there: not turned
        ({"whole": 0.5, "close": 0.3}, 7),
        ({"whole": 0.5, "close": 0.5}, 7),
        ({"whole": 0.2, "close": 0.5}, 7),
        ({"whole": 0.2, "close": 0.5, "size": 200}, 0),  # large and faint
        ({"whole": 0.4, "close": 0.5, "size": 200}, 7),
    ],
    ids=str,
)
def test_places_that_may_be_a_face_are_viewed_closer_and_turned(
    thing: dict[str, float], views: int
) -> None:
    watch = Watch(still(500, 500, half=0.0, turned=0.0, **thing), **HIDING)
    watch.batch(1)
    assert len(watch.world.close_looks) == views


@pytest.mark.parametrize("hides", [False, True])
def test_a_small_face_that_only_the_smoothed_view_shows_is_found(hides: bool) -> None:
    """As in noise; what is large or cut by an edge is not smoothed."""
    scores = {"whole": 0.2, "half": 0.0, "turned": 0.0, "close": 0.1, "smoothed": CLOSE + 0.01}
    for x, size, is_proven in ((500, FACE, [False, True]), (500, 170, []), (40, FACE, [])):
        watch = Watch(still(x, 500, size=size, **scores), hides=hides, every=1)
        found = [face.is_proven for faces in watch.run(2) for face in faces]
        assert found == (is_proven if hides else [])
    for faint in ({"smoothed": CLOSE - 0.05}, {"whole": 0.09, "smoothed": SURELY}):
        watch = Watch(still(500, 500, **{**scores, **faint}), hides=hides, every=1)
        assert watch.run(2) == [[], []]


def test_what_the_closer_view_confirms_is_not_smoothed() -> None:
    watch = Watch(still(500, 500, whole=0.5, half=0.0, turned=0.0), **HIDING)
    watch.run(3)
    assert watch.world.close_looks
    assert not watch.world.smoothed_looks


def test_turned_views_come_before_the_smoothed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoothed view alone needs a second sighting."""
    watch = Watch(still(500, 500, whole=0.5, half=0.0, turned=0.0), **HIDING)

    def closer(
        asked: Sequence[tuple[Any, Detection]], min_score: float, *, smoothed: bool = False
    ) -> list[list[Detection]]:
        scores = [0.8 if smoothed else 0.95 if each.angle == 1.57 else 0.45 for _, each in asked]
        return [
            [each._replace(score=score)] for (_, each), score in zip(asked, scores, strict=True)
        ]

    monkeypatch.setattr(watch.world, "detect_close", closer)
    ((face,),) = watch.batch(1)
    assert (face.angle, face.is_proven) == (1.57, True)


def test_a_thousand_faint_detections_in_a_view_are_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count, looks in ((1000, 1000), (1001, 0)):
        watch = Watch(**HIDING)
        places = [(20 + 30 * (at % 50), 20 + 30 * (at // 50)) for at in range(count)]
        faint = [Detection((x, y, x + 20, y + 20), 0.0, 0.1) for x, y in places]
        clear = Detection((1700, 900, 1800, 1000), 0.0, SURELY)
        monkeypatch.setattr(
            watch.world,
            "detect",
            lambda canvas, asked, min_score, faint=faint, clear=clear: (
                [[clear, *faint]] * len(asked)
            ),
        )
        ((face,),) = watch.batch(1)
        assert face.box_xyxy == clear.box
        assert len(watch.world.close_looks) == looks
        whole = (0, 0, FORMAT.width, FORMAT.height)
        (doubts,) = watch.finder.doubts
        likely = [each.box for each in doubts if each.score >= LIKELY_SCORE]
        assert likely == [whole] * (not looks)


def test_where_a_face_is_expected_a_closer_view_is_enough() -> None:
    nowhere_else = {"whole": 0.0, "half": 0.0, "turned": 0.0}
    things = still(500, 500, range(5)), still(500, 500, range(5, 100), **nowhere_else)
    found = Watch(*things, **HIDING).run(40)
    assert [[(face.id, face.detected) for face in faces] for faces in found] == [[(0, True)]] * 40
    assert Watch(*things, every=1).run(40)[20:] == [[]] * 20


def test_a_face_that_only_a_fine_view_shows_is_found_every_two_seconds() -> None:
    small = {"whole": 0.0, "half": 0.0, "turned": 0.0, "fine": 0.9}
    things = still(1400, 500), still(500, 500, range(20, 1000), **small)
    watch = Watch(*things, hides=True)
    found = watch.run(120)
    first, second, third = watch.looked_at("fine")
    assert (first, second) == (0, 53)  # 2 s, and then the next frame that is searched
    assert third - second >= 50
    assert [len(faces) for faces in found] == [1] * second + [2] * (120 - second)
    watch.world.looks.clear()
    watch.finder.reset()
    watch.run(3)
    assert watch.looked_at("fine") == [120]


@pytest.mark.parametrize("at", [0.5, -1.57, 2.6])
def test_the_best_of_the_turned_closer_views_counts(
    at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view shows the face at its own angle: the clearest one is the face's."""
    watch = Watch(still(500, 500, whole=0.5, half=0.0, turned=0.0), **HIDING)

    def closer(
        asked: Sequence[tuple[Any, Detection]], min_score: float, *, smoothed: bool = False
    ) -> list[list[Detection]]:
        return [
            [each._replace(score=0.9 - 0.1 * abs(each.angle - at) if each.angle else 0.5)]
            for _, each in asked
        ]

    monkeypatch.setattr(watch.world, "detect_close", closer)
    ((face,),) = watch.batch(1)
    assert (face.score, face.angle) == (0.9, at)


def test_all_views_are_due_while_a_face_is_missing_unless_one_closer_view_made_it() -> None:
    for close, views in ((CLOSE_SCORE + 0.01, set()), (TURNED_SCORE + 0.01, {1, 2, 3})):
        gone = still(500, 500, range(1), whole=0.2, half=0.0, turned=0.0, close=close)
        watch = Watch(still(1400, 500), gone, **HIDING)
        watch.run(4)
        assert {look.quarters for look in watch.world.looks if look.frame == 3} - {0} == views


def test_a_fast_face_of_closer_views_is_one_face() -> None:
    faint = {"whole": 0.2, "half": 0.0, "turned": 0.0, "close": CLOSE + 0.01}
    fast = Thing(lambda number: (500 + 1.5 * FACE * number, 500), **faint)
    found = Watch(fast, **HIDING).run(3)
    assert [[face.id for face in faces if face.detected] for faces in found] == [[0]] * 3


def test_frames_are_turned_by_all_quarters_until_a_face_is_known_and_then_by_one() -> None:
    watch = Watch(still(500, 500), **HIDING)
    watch.run(12)
    turns = [
        [k.quarters for k in watch.world.looks if k.frame == n and k.quarters] for n in range(12)
    ]
    assert turns[0] == [1, 2, 3]
    assert [len(each) for each in turns[1:]] == [0, 1] * 5 + [0]
    for at in range(1, 7):
        assert sorted(chain(*turns[at : at + 6])) == [1, 2, 3]
    assert watch.looked_at("half") == [0, *range(1, 12, 2)]
    nobody = Watch(**HIDING)
    nobody.run(4)
    assert sum(look.shown == "turned" for look in nobody.world.looks) == 12
    shown = Watch(still(500, 500), every=1)
    shown.run(4)
    assert {look.shown for look in shown.world.looks} == {"whole"}


def test_what_the_mirrored_border_shows_is_no_face() -> None:
    """Only a fifth of the face is inside the frame."""
    for inside, is_found in ((0.15, False), (0.25, True)):
        for x, y in ((inside, None), (None, inside)):
            place = tuple(500.0 if part is None else FACE * (part - 0.5) for part in (x, y))
            far = tuple(
                500.0 if part is None else side - FACE * (part - 0.5)
                for part, side in ((x, 1920), (y, 1080))
            )
            for at in (place, far):
                assert [len(f) for f in Watch(still(*at)).run(3)] == [int(is_found)] * 3


def test_a_face_that_goes_is_shown_until_the_second_look_without_it() -> None:
    watch = Watch(still(500, 500, range(20)), every=1)
    found = watch.run(40)
    assert [len(faces) for faces in found] == [1] * 21 + [0] * 19
    assert not found[20][0].detected
    assert found[20][0].score == pytest.approx(SURELY / 2)


def test_views_of_a_batch_are_shown_together() -> None:
    watch = Watch(still(500, 500), every=1)
    watch.run(32, 8)
    assert watch.world.runs == 4
    assert [look.frame for look in watch.world.looks] == list(range(32))


def test_a_run_takes_the_frames_that_are_due_next() -> None:
    watch = Watch(still(500, 500), every=4)
    watch.run(8, 8)
    watch.world.looks.clear()
    watch.world.runs = 0
    watch.run(16, 8)
    frames = [look.frame for look in watch.world.looks]
    assert (watch.world.runs, frames) == (2, [*range(frames[0], frames[0] + 16, 4)])


@pytest.mark.parametrize("by_landmarks", [False, True])
def test_landmarks_are_made_where_they_are_asked_for(by_landmarks: bool) -> None:
    watch = Watch(still(500, 500), still(900, 300, is_face=False), by_landmarks=by_landmarks)
    for faces in watch.run(12, 4):
        assert [face.has_landmarks for face in faces] == [by_landmarks, False]
    assert watch.world.squares == [n for n in range(12) for _ in range(2)] * by_landmarks
    watch.world.squares.clear()
    (frame,), (grid,) = watch.frames(1)
    (faces,) = watch.finder.find([frame], [grid])
    if not by_landmarks:
        (close,) = watch.finder.close_up(frame, grid, faces)
        assert (close.id, close.has_landmarks) == (0, True)
        assert watch.world.squares == [12, 12]


@pytest.mark.parametrize("network", ["detect", "detect_close", "landmarks"])
def test_a_fault_names_the_stage_and_the_frame(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(still(500, 500), still(900, 500, whole=0.5), by_landmarks=True, **HIDING)
    watch.finder.find(*watch.frames(8))
    watch.finder.reset()

    def fail(*_: object, **__: object) -> None:
        raise InferenceError("broken", stage="segment")

    monkeypatch.setattr(watch.world, network, fail)
    with pytest.raises(InferenceError, match="broken") as raised:
        watch.finder.find(*watch.frames(1))
    assert (raised.value.stage, raised.value.pts) == ("face", 8 * FRAME_MS)


def test_a_fault_of_a_close_up_names_the_stage_and_the_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise InferenceError("broken", stage="segment")

    watch = Watch(still(500, 500), first=9)
    monkeypatch.setattr(watch.world, "landmarks", fail)
    (frame,), (grid,) = watch.frames(1)
    with pytest.raises(InferenceError, match="broken") as raised:
        watch.finder.close_up(frame, grid, [])
    assert (raised.value.stage, raised.value.pts) == ("face", 9 * FRAME_MS)


def test_a_close_up_leaves_landmarks_of_later_frames_as_they_are() -> None:
    """A batch's size is chance, and its faces are found before its mattes are inspected."""
    found = []
    for is_asked in (False, True):
        watch = Watch(Thing(rightwards(4, 0)), by_landmarks=True)
        (frame, *frames), (grid, *grids) = watch.frames(6)
        (faces, *_) = watch.finder.find([frame, *frames], [grid, *grids])
        if is_asked:
            assert watch.finder.close_up(frame, grid, faces) == []
        found.append(plain(watch.run(3)))
    assert found[0] == found[1]


def test_an_empty_batch_asks_nothing_and_changes_nothing() -> None:
    watch = Watch(still(500, 500))
    assert watch.batch(0) == []
    assert not watch.world.looks
    watch.run(8, 8)
    assert watch.batch(0) == []
    assert [[face.age_frames for face in faces] for faces in watch.run(2, 2)] == [[8], [9]]


def test_it_closes_its_networks() -> None:
    watch = Watch()
    with watch.finder:
        assert not watch.world.closed
    assert watch.world.closed
