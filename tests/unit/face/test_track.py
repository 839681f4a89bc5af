"""Following faces: births, deaths, ids and expected places."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bgsoft.face.base import Face, hiding_ellipse
from bgsoft.face.detect import Detection
from bgsoft.face.track import LARGE_SIGHTINGS, MIN_AGREEMENT, FaceTracker
from tests.unit.face.shapes import seen

RATE = 30


class Scene:
    def __init__(self) -> None:
        self.tracker = FaceTracker()
        self.time = 0.0

    def step(self, found: Sequence[Detection] | None, passed: float = 1 / RATE) -> list[Face]:
        """Return the faces of the next frame; None: a frame without inspection."""
        self.time += passed
        self.tracker.advance(self.time)
        if found is not None:
            self.tracker.update(zip(found, self.tracker.match(found), strict=True))
        return self.tracker.faces()

    def settle(self, *places: tuple[float, float], frames: int = 5) -> None:
        for _ in range(frames):
            self.step(seen(*places))


def shape_size(face: Face) -> float:
    left, _, right, _ = face.box_xyxy
    return right - left


def centre(face: Face) -> tuple[float, float]:
    left, top, right, bottom = face.box_xyxy
    return (left + right) / 2, (top + bottom) / 2


def test_a_detection_is_a_face_at_once_and_is_where_it_was_seen() -> None:
    scene = Scene()
    for at in range(4):
        (face,) = scene.step(seen((200 + 7 * at, 200)))
        assert (face.id, face.age_frames, face.detected) == (0, at, True)
        assert centre(face) == (200 + 7 * at, 200)


def test_a_doubtful_detection_moves_a_face_and_keeps_its_size_and_angle() -> None:
    scene = Scene()
    scene.settle((200, 200))
    (sure,) = scene.step(seen((200, 200)))
    (doubt,) = seen((208, 204), size=1.3 * shape_size(sure))
    (face,) = scene.step([doubt._replace(is_sure=False, angle=1.0, score=0.2)])
    assert centre(face) == (208, 204)
    assert shape_size(face) == pytest.approx(shape_size(sure))
    assert (face.id, face.angle, face.score) == (0, sure.angle, 0.2)
    assert hiding_ellipse(face).across == pytest.approx(1.3 * hiding_ellipse(sure).across)
    (face,) = scene.step(seen((208, 204), size=shape_size(sure)))
    assert hiding_ellipse(face).across == pytest.approx(hiding_ellipse(sure).across)


def test_the_largest_face_comes_first() -> None:
    faces = Scene().step([*seen((200, 200), size=50), *seen((600, 200), size=90)])
    assert [centre(face)[0] for face in faces] == [600, 200]


def test_a_face_that_is_not_seen_is_shown_once_more_with_half_its_score() -> None:
    scene = Scene()
    scene.settle((200, 200))
    (face,) = scene.step([])
    assert (face.id, face.detected, face.score) == (0, False, pytest.approx(0.45))
    assert scene.step([]) == []


def test_frames_that_are_not_inspected_say_nothing_about_a_face() -> None:
    scene = Scene()
    scene.settle((200, 200))
    for _ in range(12):
        (face,) = scene.step(None)
        assert (face.id, face.detected, face.score) == (0, False, 0.9)
    assert not scene.tracker.is_restless


@pytest.mark.parametrize("way", [(0, 0), (50, 0)])
@pytest.mark.parametrize("seconds", [0.1, 0.5, 0.9])
def test_a_face_that_comes_back_within_a_second_is_the_same(
    seconds: float, way: tuple[int, int]
) -> None:
    scene = Scene()
    scene.settle((200, 200))
    while scene.time < 5 / RATE + seconds - 1 / RATE:
        scene.step([])
    (face,) = scene.step(seen((200 + way[0], 200 + way[1])))
    assert (face.id, face.detected) == (0, True)


def test_a_face_that_comes_back_later_or_elsewhere_is_another() -> None:
    for gap, x in ((1.1, 200), (0.5, 320)):
        scene = Scene()
        scene.settle((200, 200))
        for _ in range(int(gap * RATE)):
            scene.step([])
        (face,) = scene.step(seen((x, 200)))
        assert (face.id, face.age_frames) == (1, 0)


@pytest.mark.parametrize("way", [(50, 0), (0, 55), (-40, 40)])
def test_a_face_next_to_the_expected_place_of_a_known_one_is_somebody_else(
    way: tuple[int, int],
) -> None:
    scene = Scene()
    scene.settle((200, 200))
    (face,) = scene.step(seen((200 + way[0], 200 + way[1]), score=0.85))
    assert (face.id, face.age_frames, face.detected) == (1, 0, True)
    assert face.score == 0.85
    for _ in range(6):
        (face,) = scene.step(seen((200 + way[0], 200 + way[1])))
        assert face.id == 1


def test_the_limit_of_agreement() -> None:
    """Two squares that are p sides apart overlap by (1 - p) / (1 + p)."""
    part = (1 - MIN_AGREEMENT) / (1 + MIN_AGREEMENT)
    for shift, id in ((100 * part - 1, 0), (100 * part + 1, 1)):
        scene = Scene()
        scene.settle((200, 200))
        assert [face.id for face in scene.step(seen((200 + shift, 200)))] == [id]


def test_a_young_face_may_be_fast() -> None:
    """Its speed is unknown at first; from the third frame on its place is predicted well."""
    scene = Scene()
    for at in range(12):
        (face,) = scene.step(seen((200 + 150 * at, 200)))
        assert face.id == 0


def test_a_face_is_expected_where_it_was_going_and_then_stays() -> None:
    scene = Scene()
    for at in range(6):
        scene.step(seen((200 + 6 * at, 200 - 3 * at)))
    ways = [centre(scene.step(None)[0]) for _ in range(12)]
    for at, place in enumerate(ways[:6]):
        assert place == pytest.approx((236 + 6 * at, 182 - 3 * at))
    assert ways[6:] == [ways[6]] * 6


def test_a_face_that_has_gone_far_unseen_is_to_be_searched_for() -> None:
    scene = Scene()
    scene.step(seen((200, 200)))
    assert scene.tracker.is_restless  # as it is new
    for at in range(1, 4):
        scene.step(seen((200 + 10 * at, 200)))
        assert not scene.tracker.is_restless
    restless = [scene.step(None) and scene.tracker.is_restless for _ in range(4)]
    assert restless == [False, False, True, True]  # a quarter of its size
    scene.settle((240, 200), frames=8)
    scene.step([])
    assert scene.tracker.is_restless  # as it is missing


def test_only_a_face_that_was_surely_seen_is_missing() -> None:
    """Otherwise faint things that come and go would cause a full search in every frame."""
    for is_sure in (True, False):
        scene = Scene()
        scene.settle((200, 200))
        scene.step([seen((200, 200))[0]._replace(is_sure=is_sure)])
        scene.step([])
        assert scene.tracker.tracks[0].is_missing == scene.tracker.is_restless == is_sure


def test_a_closer_view_is_asked_for_where_a_face_is_missing_but_not_a_vague_one() -> None:
    for needed, count in ((1, 1), (2, 1), (LARGE_SIGHTINGS, 0)):
        scene = Scene()
        (once,) = seen((200, 200))
        scene.step([once._replace(needed=needed)])
        assert len(scene.tracker.missing([])) == count


def test_the_fewest_sightings_that_any_detection_needs_are_enough() -> None:
    for asked, counts in (([3, 3, 3], 3), ([3, 2], 2), ([2, 3], 2), ([3, 1], 2), ([1], 1)):
        scene = Scene()
        (each,) = seen((200, 200))
        found = [scene.step([each._replace(needed=needed)])[0] for needed in asked]
        proven = [at for at, face in enumerate(found, 1) if face.is_proven]
        assert proven == [counts]


def test_after_a_refresh_a_vague_face_is_one_again() -> None:
    """As in a chunk that begins there."""
    scene = Scene()
    scene.settle((200, 200))
    scene.tracker.is_fresh = True
    (each,) = seen((200, 200))
    found = [scene.step([each._replace(needed=LARGE_SIGHTINGS)])[0] for _ in range(3)]
    assert [(face.id, face.is_proven) for face in found] == [(0, False), (0, False), (0, True)]


def test_a_vague_face_ends_where_it_is_not_seen() -> None:
    for needed, is_proven in ((2, True), (LARGE_SIGHTINGS, False)):
        scene = Scene()
        (each,) = seen((200, 200))
        for found in ([each._replace(needed=needed)], [], [], [each._replace(needed=needed)]):
            scene.step(found)
        (face,) = scene.step([each._replace(needed=needed)])
        assert face.is_proven == is_proven


def test_each_detection_continues_the_nearest_face() -> None:
    scene = Scene()
    scene.settle((200, 200), (320, 200))
    for at in range(1, 30):
        faces = scene.step(seen((320 + 2 * at, 200), (200 + 2 * at, 200)))
        assert {face.id: centre(face)[0] for face in faces} == {0: 200 + 2 * at, 1: 320 + 2 * at}


def test_a_face_of_another_size_is_another() -> None:
    for size, id in ((150, 0), (170, 1), (66, 0), (60, 1)):
        scene = Scene()
        scene.step(seen((200, 200)))
        ids = [face.id for face in scene.step(seen((200, 200), size=size)) if face.detected]
        assert ids == [id]


def test_a_detection_that_is_not_sure_continues_a_face_only_where_it_is() -> None:
    part = (1 - MIN_AGREEMENT) / (1 + MIN_AGREEMENT)
    for is_sure, shift, id in (
        (False, 100 * part - 1, 0),
        (False, 100 * part + 1, 1),
        (True, 70, 0),
    ):
        scene = Scene()
        scene.step(seen((200, 200)))
        scene.step(None, passed=0.2)
        found = [each._replace(is_sure=is_sure) for each in seen((200 + shift, 200))]
        assert id in [face.id for face in scene.step(found, passed=0.2)]


def test_scores_are_those_of_the_last_detection() -> None:
    scene = Scene()
    for score in (0.95, 0.6, 0.7):
        (face,) = scene.step(seen((200, 200), score=score))
        assert face.score == score


def test_after_a_refresh_faces_move_as_they_are_seen_to_from_there_on() -> None:
    ways = []
    for before in (-30, 5):
        scene = Scene()
        for at in range(6):
            scene.step(seen((300 + (at - 6) * before, 200)))
        scene.tracker.is_fresh = True
        faces = [scene.step(seen((300 + 20 * at, 200)) if at % 2 == 0 else None) for at in range(6)]
        assert all(face.id == 0 for (face,) in faces)
        ways.append([(face.box_xyxy, face.square) for (face,) in faces])
    assert ways[0] == ways[1]


def test_after_a_refresh_only_what_the_next_look_shows_is_followed() -> None:
    scene = Scene()
    scene.settle((200, 200), (600, 200))
    scene.tracker.is_fresh = True
    assert [face.id for face in scene.step(seen((600, 200)))] == [1]
    assert [face.id for face in scene.step(seen((200, 200), (600, 200)))] == [1, 2]


def test_ids_are_not_used_again_after_a_reset() -> None:
    scene = Scene()
    scene.settle((200, 200))
    scene.tracker.tracks.clear()
    assert scene.step(None) == []
    assert [face.id for face in scene.step(seen((200, 200)))] == [1]


def test_frames_without_a_time_of_their_own_are_no_fault() -> None:
    scene = Scene()
    for at in range(5):
        (face,) = scene.step(seen((200 + at, 200)), passed=0.0)
        assert face.id == 0
    (face,) = scene.step(seen((200, 200)), passed=-1.0)
    assert centre(face) == (200, 200)


def test_after_a_cut_a_face_in_the_same_place_is_somebody_else_unless_it_was_missing() -> None:
    scene = Scene()
    scene.settle((200, 200), (600, 200))
    scene.step(seen((200, 200)))
    scene.tracker.is_cut = True
    faces = scene.step(seen((200, 200), (600, 200)))
    assert {centre(face)[0]: (face.id, face.age_frames) for face in faces} == {
        200: (2, 0),
        600: (1, 6),
    }
    assert {face.id for face in scene.step(seen((200, 200), (600, 200)))} == {1, 2}


@pytest.mark.parametrize(("is_cut", "id"), [(False, 0), (True, 1)])
def test_where_following_begins_anew_ids_go_on_except_at_a_cut(is_cut: bool, id: int) -> None:
    scene = Scene()
    scene.settle((200, 200))
    scene.tracker.is_fresh, scene.tracker.is_cut = True, is_cut
    assert [face.id for face in scene.step(seen((200, 200)))] == [id]
