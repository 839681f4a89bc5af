"""Hidden places: visible faces, lost faces, and faces that are found soon."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bgsoft.face.anonymize import FrameFaces, HiddenFaces
from bgsoft.face.base import LOOKAHEAD_FRAMES, Face, hiding_ellipse
from bgsoft.hide.plan import Ellipse
from tests.pictures import frame_format
from tests.unit.face.shapes import make_face

FORMAT = frame_format((1280, 720))
RATE = 30


def frame_of(
    faces: Sequence[Face], seconds: float, shown: Collection[int] = (), scene: int = 0
) -> FrameFaces:
    places = {face.id: hiding_ellipse(face) for face in faces if face.detected}
    proven = {face.id for face in faces if face.is_proven}
    return FrameFaces(places, proven, {*shown}, seconds, scene)


def hide(
    faces: Sequence[Sequence[Face]],
    main: Callable[[int], Collection[int]] = lambda _at: (),
    cuts: Collection[int] = (),
    ahead: int = LOOKAHEAD_FRAMES,
) -> list[list[Ellipse]]:
    """Places hidden in each frame of a video.

    Args:
        faces: Of each frame.
        main: Ids of the main faces of a frame.
        cuts: Frames that begin a scene.
        ahead: Frames whose faces are known beyond one.
    """
    hidden = HiddenFaces()
    video = [
        frame_of(found, at / RATE, main(at), sum(cut <= at for cut in cuts))
        for at, found in enumerate(faces)
    ]
    return [hidden.update(now, video[at + 1 : at + 1 + ahead]) for at, now in enumerate(video)]


def counts(ellipses: Sequence[Sequence[Ellipse]]) -> list[int]:
    return [len(each) for each in ellipses]


def holds(ellipse: Ellipse, face: Face) -> bool:
    """Whether all of a face's outline is in an ellipse."""
    x, y = face.landmarks[:, 0] - ellipse.x, face.landmarks[:, 1] - ellipse.y
    cos, sin = math.cos(ellipse.angle), math.sin(ellipse.angle)
    across, along = (x * cos + y * sin) / ellipse.across, (y * cos - x * sin) / ellipse.along
    return bool((across**2 + along**2 <= 1).all())


def walker(at: int, speed: float, **options: float) -> Face:
    return make_face(600 + speed * at, 300, 80, id=5, **options)  # type: ignore[arg-type]


def test_a_new_face_is_hidden_in_the_frames_before() -> None:
    face = make_face(600, 300, 80, id=5)
    found = hide([[]] * 20 + [[face]] * 5)
    assert counts(found) == [0] * 12 + [1] * 13
    for (ellipse,) in found[12:20]:
        assert holds(ellipse, face)
    # Farther back it grows, and no more than a lost face's does.
    across = [ellipse.across for (ellipse,) in found[12:21]]
    assert all(b <= a for a, b in pairwise(across))
    assert across[-2] == pytest.approx(1.02 * across[-1])
    assert across[0] < 1.3 * across[-1]


def test_a_video_that_is_shorter_than_the_look_ahead() -> None:
    face = make_face(600, 300, 80, id=5)
    assert counts(hide([[face]])) == [1]
    assert counts(hide([[], [], [face]])) == [1, 1, 1]
    assert counts(hide([[], []])) == [0, 0]


def test_without_a_future_faces_are_hidden_from_where_they_are_found() -> None:
    face = make_face(600, 300, 80, id=5)
    assert counts(hide([[]] * 3 + [[face]] * 3, ahead=0)) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("speed", [-9.0, 4.0, 12.0])
def test_a_walking_face_is_followed_backwards(speed: float) -> None:
    faces = [[walker(at, speed)] if at >= 10 else [] for at in range(20)]
    found = hide(faces)
    assert counts(found) == [0, 0] + [1] * 18
    # As soon as the speed is known, one frame after the first; however far that is.
    assert [found[at][0].x for at in range(3, 10)] == [
        pytest.approx(600 + speed * at) for at in range(3, 10)
    ]
    assert all(holds(found[at][0], walker(at, speed)) for at in range(3, 10))


def test_nobody_is_hidden_across_a_cut() -> None:
    face, other = make_face(600, 300, 80, id=5), make_face(200, 300, 80, id=6)
    found = hide([[]] * 6 + [[face]] * 6, cuts=[6])
    assert counts(found) == [0] * 6 + [1] * 6
    found = hide([[]] * 6 + [[face]] * 6, cuts=[3])
    assert counts(found) == [0] * 3 + [1] * 9
    found = hide([[face]] * 3 + [[]] * 3 + [[other]], cuts=[4])
    assert [round(each[0].x) for each in found] == [600] * 4 + [200] * 3


def test_a_gap_is_bridged_across_a_cut_that_is_none() -> None:
    """A face that keeps its id was there all the time, for example in a flash."""
    face, late = make_face(600, 300, 80, id=5), make_face(700, 300, 80, id=5)
    found = hide([[face]] * 3 + [[]] * 4 + [[late]] * 3, cuts=[4, 6])
    assert [round(each[0].x) for each in found] == [600, 600, 600, 620, 640, 660, 680] + [700] * 3


def test_a_gap_is_interpolated_between_its_ends() -> None:
    """The straight line is hidden, wherever the track pointed."""
    start = [make_face(600 - 10 * at, 300, 80, id=5) for at in (2, 1, 0)]
    end = make_face(720, 360, 120, id=5, roll=0.6)
    found = hide([[face] for face in start] + [[]] * 5 + [[end]] * 3)
    one, two = hiding_ellipse(start[-1]), hiding_ellipse(end)
    for at in range(3, 8):
        share = (at - 2) / 6
        ellipse, *_ = found[at]
        for name in ("x", "y", "across", "along"):
            a, b = getattr(one, name), getattr(two, name)
            assert getattr(ellipse, name) == pytest.approx(a + share * (b - a)), name
        assert ellipse.angle == pytest.approx(0.6 * share)


def test_angles_are_interpolated_the_short_way() -> None:
    start, end = (make_face(600, 300, 80, id=5, roll=roll) for roll in (3.0, -3.0))
    for (ellipse,) in hide([[start], [], [], [], [end]]):
        assert abs(math.sin(ellipse.angle)) < 0.15


def test_times_count_in_a_gap() -> None:
    hidden = HiddenFaces()
    start, end = frame_of([walker(0, 0)], 0.0), frame_of([walker(1, 80)], 0.4)
    middle = frame_of([], 0.1)
    hidden.update(start, [middle, end])
    ellipse, *_ = hidden.update(middle, [end])
    assert ellipse.x == pytest.approx(620)


def test_in_a_gap_that_ends_under_another_id_both_ways_are_hidden() -> None:
    """The old track is carried forwards, and the new one backwards."""
    start = [make_face(600 + 5 * at, 300, 80, id=5) for at in range(3)]
    end = [make_face(700 + 5 * at, 300, 80, id=9) for at in range(3)]
    found = hide([[face] for face in start] + [[]] * 4 + [[face] for face in end])
    ways = [sorted(round(ellipse.x) for ellipse in each) for each in found]
    assert ways[3:7] == [[615, 680], [620, 685], [625, 690], [630, 695]]
    assert all(610 + 5 * at in xs for at, xs in enumerate(ways[2:7]))


def test_who_comes_up_elsewhere_is_somebody_else() -> None:
    lost, new = make_face(300, 300, 80, id=5), make_face(900, 300, 80, id=9)
    found = hide([[lost]] * 3 + [[]] * 4 + [[new]] * 3)
    assert counts(found) == [2] * 7 + [2] * 3
    for one, other in found[:7]:
        assert (one.x, other.x) == (pytest.approx(300), pytest.approx(900))


def test_who_stays_next_to_a_lost_face_is_not_its_end() -> None:
    """A face that is visible all the time is not the lost face."""
    lost = make_face(300, 300, 80, id=5)
    near = [make_face(500 - 25 * at, 300, 80, id=9) for at in range(12)]
    found = hide([[lost, near[0]], [lost, near[1]]] + [[face] for face in near[2:]])
    held = [
        next(e for e in each if abs(e.x - face.landmarks[0, 0]) > 1e-3)
        for each, face in zip(found[2:6], near[2:6], strict=True)
    ]
    assert [ellipse.x for ellipse in held] == [pytest.approx(300)] * 4


def test_a_long_gap_is_held_and_then_filled_from_its_end() -> None:
    face = make_face(600, 300, 80, id=5)
    later = make_face(600, 300, 80, id=6)
    found = hide([[face]] * 3 + [[]] * 60 + [[later]] * 3)
    bare = [at for at, each in enumerate(found) if not each]
    assert bare == list(range(bare[0], 55))
    assert 0.6 < (bare[0] - 3) / RATE < 0.8
    assert found[3][0].across < found[10][0].across


def test_a_gap_that_is_longer_than_the_look_ahead_has_no_bare_frame() -> None:
    start = [make_face(600, 300, 80, id=5)] * 3
    end = make_face(640, 300, 80, id=6)
    found = hide([[face] for face in start] + [[]] * 14 + [[end]] * 3)
    assert all(found)


@pytest.mark.parametrize("ahead", [0, LOOKAHEAD_FRAMES])
def test_a_track_that_changes_its_id_is_hidden_once(ahead: int) -> None:
    first = [[make_face(600 + 3 * at, 300, 80, id=5)] for at in range(10)]
    then = [[make_face(600 + 3 * at, 300, 80, id=6)] for at in range(10, 20)]
    assert counts(hide(first + then, ahead=ahead)) == [1] * 20


def test_a_new_face_is_not_carried_back_behind_another() -> None:
    """It appeared from behind the main person, who stays visible."""
    main = make_face(600, 300, 100, id=1)
    new = [make_face(640 + 12 * at, 300, 60, id=2) for at in range(12)]
    faces = [[main]] * 10 + [[main, face] for face in new]
    found = hide(faces, main=lambda _at: {1})
    assert counts(found)[:8] == [0] * 8
    assert counts(found)[10:] == [1] * 12


def test_a_small_face_in_a_large_one_that_is_lost_leaves_both_hidden() -> None:
    """Either the detector or the track is right."""
    large, small = make_face(600, 300, 160, id=1), make_face(620, 320, 70, id=2)
    found = hide([[large]] * 10 + [[small]] * 30)
    for ellipses in found[10:20]:
        assert any(holds(ellipse, large) for ellipse in ellipses)
        assert any(holds(ellipse, small) for ellipse in ellipses)
    assert counts(found)[-1] == 1


def test_a_place_where_a_face_is_only_expected_counts_for_nothing() -> None:
    """The next detection decides, not the place that the track expected."""
    start, end = (make_face(x, 300, 80, id=5) for x in (600, 660))
    astray = replace(make_face(400, 300, 80, id=5), detected=False)
    found = hide([[start], [astray], [astray], [end]])
    assert [round(each[0].x) for each in found] == [600, 620, 640, 660]
    assert all(ellipse.x >= 600 for each in found for ellipse in each)


def test_who_is_main_from_the_first_frame_is_shown() -> None:
    face = make_face(600, 300, 80, id=5)
    assert counts(hide([[]] * 5 + [[face]] * 5, main=lambda _at: {5})) == [0] * 10


def test_who_becomes_main_is_hidden_until_then() -> None:
    """Also before its first frame: another person may still become main."""
    face = make_face(600, 300, 80, id=5)
    assert (
        counts(hide([[]] * 5 + [[face]] * 7, main=lambda at: {5} if at >= 8 else ()))
        == [1] * 8 + [0] * 4
    )


def test_who_was_main_is_hidden_from_then_on() -> None:
    face = make_face(600, 300, 80, id=5)
    assert counts(hide([[face]] * 10, main=lambda at: {5} if at < 6 else ())) == [0] * 6 + [1] * 4


def test_a_gap_of_a_main_face_that_is_main_no_more_is_hidden() -> None:
    face = make_face(600, 300, 80, id=5)
    found = hide([[face]] * 4 + [[]] * 3 + [[face]] * 5, main=lambda at: {5} if at < 5 else ())
    assert counts(found) == [0] * 4 + [1] * 8


def test_a_gap_before_which_a_face_was_hidden_is_hidden() -> None:
    face = make_face(600, 300, 80, id=5)
    found = hide([[face]] * 4 + [[]] * 3 + [[face]] * 5, main=lambda at: {5} if at >= 7 else ())
    assert counts(found) == [1] * 7 + [0] * 5


def test_main_faces_are_shown_and_a_cut_forgets_all() -> None:
    main, other = make_face(100, 200, 80, id=1), make_face(500, 200, 80, id=2)
    found = hide(
        [[main, other], [main, other], [main, other], []],
        main=lambda at: [(1,), (1, 2), (1,), ()][at],
        cuts=[3],
    )
    assert [[round(ellipse.x) for ellipse in each] for each in found] == [[500], [], [500], []]


@pytest.mark.parametrize("ahead", [0, LOOKAHEAD_FRAMES])
def test_a_lost_face_stays_hidden_where_it_was_going_and_then_no_more(ahead: int) -> None:
    faces = [[make_face(100 + 10 * at, 200, 80, id=5)] for at in range(3)]
    found = hide(faces + [[]] * 40, ahead=ahead)
    places = [each[0] for each in found[2:] if each]
    assert counts(found) == [1] * (2 + len(places)) + [0] * (41 - len(places))
    assert 0.6 < len(places) / RATE < 0.8
    steps = [b.x - a.x for a, b in pairwise(places)]
    # At its speed for 0.3 seconds; then it stays.
    assert steps[:9] == [pytest.approx(10)] * 9
    assert steps[9:] == [pytest.approx(0, abs=1e-6)] * len(steps[9:])
    assert places[-1].across >= places[0].across
    assert places[-1].across < 1.6 * places[0].across


@pytest.mark.parametrize("ahead", [0, LOOKAHEAD_FRAMES])
def test_a_gap_in_a_track_is_bridged(ahead: int) -> None:
    face = make_face(100, 200, 80, id=5)
    faces = [[] if at in (4, 5, 6, 12) else [face] for at in range(20)]
    assert counts(hide(faces, ahead=ahead)) == [1] * 20


@pytest.mark.parametrize("ahead", [0, LOOKAHEAD_FRAMES])
def test_a_lost_face_stays_hidden_beside_a_main_one(ahead: int) -> None:
    main, other = make_face(150, 200, 80, id=1), make_face(110, 200, 80, id=2)
    faces = [[main, other], [make_face(115, 200, 80, id=1)]]
    assert counts(hide(faces, main=lambda _at: {1}, ahead=ahead)) == [1, 1]


@pytest.mark.parametrize("sizes", [(80, 160), (160, 80)])
def test_a_face_that_changes_its_size_is_hidden_in_both_for_a_moment(sizes: Sequence[int]) -> None:
    """In a crossfade another face takes its place, and both are visible."""
    one, two = (make_face(600, 300, size, id=5) for size in sizes)
    larger = one if sizes[0] > sizes[1] else two
    found = hide([[one]] * 30 + [[two]] * 40)
    frames = range(22, 30) if larger is two else range(30, 30 + 20)
    for at, ellipses in enumerate(found[:50]):
        assert len(ellipses) == 1 + (at in frames)
        if at in frames:
            assert any(holds(ellipse, larger) for ellipse in ellipses)
    assert counts(found[52:]) == [1] * 18


def test_a_face_that_comes_nearer_slowly_is_hidden_once() -> None:
    faces = [[make_face(600, 300, 80 * 1.01**at, id=5)] for at in range(60)]
    assert counts(hide(faces)) == [1] * 60
    assert counts(hide(faces[::-1])) == [1] * 60


def test_whatever_comes_every_face_in_sight_is_hidden() -> None:
    """Each visible face is hidden at its own place, for random input."""
    rng = np.random.default_rng(7)
    video = []
    for _ in range(60):
        ids = [int(id) for id in np.flatnonzero(rng.random(5) < 0.6)]
        video.append([make_face(*rng.uniform(0, 700, 2), 60, id=id) for id in ids])
    found = hide(video, main=lambda _at: {4}, cuts=[17, 18, 40])
    for faces, ellipses in zip(video, found, strict=True):
        wanted = [hiding_ellipse(face) for face in faces if face.id != 4]
        assert all(ellipse in ellipses for ellipse in wanted)


def test_a_face_of_a_single_closer_view_is_hidden_once_it_is_seen_again() -> None:
    seen_once, proven = replace(walker(0, 0), is_proven=False), walker(0, 0)
    nobody: list[Face] = []
    assert counts(hide([nobody] * 4 + [[seen_once]] + [nobody] * 30)) == [0] * 35
    again = [nobody] * 4 + [[seen_once], nobody, [proven]]
    assert counts(hide(again)) == [1] * 7


def test_what_is_not_hidden_covers_no_way_back() -> None:
    doubt = replace(walker(0, 0), id=7, is_proven=False)
    video: list[list[Face]] = [[], [doubt], [], [walker(0, 0)], [walker(0, 0)]]
    assert counts(hide(video)) == [1] * 5


def test_in_the_last_frame_nothing_speaks_against_a_single_closer_view() -> None:
    assert counts(hide([[replace(walker(0, 0), is_proven=False)]])) == [1]
