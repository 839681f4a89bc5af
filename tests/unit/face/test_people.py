"""Who is main where others are hidden: over whole shots, and by the first frames of a stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from bgsoft.face.base import LOOKAHEAD_FRAMES, Face
from bgsoft.face.people import AgreedPicker, FirstFramesPicker, ShotPicker, choose_main
from tests.pictures import frame_format
from tests.unit.face.shapes import make_face

HD = frame_format((1280, 720))
FPS = 30
GUEST = make_face(900, 300, 100, id=9)
Scene = Callable[[float], Sequence[Face]]
"""The faces at a time in seconds."""


def face(x: float, y: float, width: float, id: int) -> Face:
    return make_face(x, y, width, id=id)


MAIN = face(500, 360, 160, 1)


def shown(
    scene: Scene, seconds: float, *, count: int = 1, cuts: Collection[float] = ()
) -> list[set[int]]:
    """The ids of the shown faces of each frame."""
    frames = [(at, at / FPS, scene(at / FPS)) for at in range(round(seconds * FPS))]
    starts = {round(cut * FPS) for cut in cuts}
    shots = [choose_main(frames, starts, count, HD, splits=splits) for splits in (False, True)]
    picker = AgreedPicker([*map(ShotPicker, shots)])
    return [{*picker.update(faces, time)} for _, time, faces in frames]


def at(history: Sequence[set[int]], begin: float, end: float) -> set[int]:
    """All ids that are shown at some time of a span."""
    part = history[round(begin * FPS) : round(end * FPS)]
    assert part
    return set().union(*part)


def test_a_guest_who_is_seen_first_is_hidden_from_the_first_frame_on() -> None:
    history = shown(lambda t: [GUEST] if t < 1 else [GUEST, MAIN], 9)
    assert at(history, 0, 1) == set()
    assert history[30:] == [{1}] * 240


@pytest.mark.parametrize(("x", "id"), [(560, 2), (500, 1)])
def test_nobody_who_steps_in_front_is_shown(x: float, id: int) -> None:
    """Also where the tracker takes a face that is 1.5 times as large for the same one."""
    passer = face(x, 360, 240, id)
    history = shown(lambda t: [passer] if 4 <= t < 5 else [MAIN], 9)
    assert at(history, 4, 5) == set()
    assert history[:120] == [{1}] * 120
    assert history[150:] == [{1}] * 120


def test_who_is_passed_in_front_of_is_shown_again_under_another_id() -> None:
    """The face seems to move with the edge of what covers it, and goes out of sight."""

    def scene(t: float) -> Sequence[Face]:
        passer = [face(1400 - 250 * (t - 2), 360, 240, 2)] if 2 <= t < 7 else []
        covered = 4.4 <= t < 6
        moved = face(500 - 1500 * (t - 4.3), 360, 160, 1)
        main = [] if covered else [moved if 4.3 <= t < 4.4 else MAIN if t < 4.3 else again]
        return [*passer, *main]

    again = replace(MAIN, id=7)
    history = shown(scene, 9)
    assert at(history, 0, 9) == {1, 7}
    assert history[180:] == [{7}] * 90


def test_each_shot_has_its_own_main_person() -> None:
    second = [face(300, 300, 100, 3), face(800, 300, 180, 4)]
    history = shown(lambda t: [GUEST, MAIN] if t < 4 else second, 8, cuts=[4])
    assert history == [{1}] * 120 + [{4}] * 120


def test_faces_that_are_only_expected_after_a_cut_keep_no_shot_going() -> None:
    """The tracker reports lost faces for a moment."""
    stale = replace(MAIN, detected=False)
    second = face(800, 300, 120, 4)

    def scene(t: float) -> Sequence[Face]:
        if t < 4 or t > 4.15:
            return [MAIN] if t < 4 else [second]
        return [stale] if t < 4.05 else [stale, second]

    history = shown(scene, 6, cuts=[4])
    assert at(history, 4.2, 6) == {4}


def test_a_cut_that_is_none_leaves_the_main_person() -> None:
    """In a flash nobody is seen. Whoever comes in then is larger for the rest of the shot."""
    larger = face(900, 360, 300, 5)

    def scene(t: float) -> Sequence[Face]:
        return [MAIN] if t < 3 else [] if t < 3.1 else [MAIN, larger] if t < 4 else [larger]

    history = shown(scene, 5, cuts=[3])
    assert at(history, 0, 5) == {1}


@pytest.mark.parametrize(("growth", "after"), [(0, {11}), (200, {11}), (500, set[int]())])
def test_a_flash_with_new_ids_leaves_the_main_person(growth: float, after: set[int]) -> None:
    """If somebody else is much larger from then on, it may be a cut: nobody is shown."""

    def scene(t: float) -> Sequence[Face]:
        grown = face(900, 300, 100 + growth * max(0, t - 3), 19)
        return [MAIN, GUEST] if t < 3 else [replace(MAIN, id=11), grown]

    history = shown(scene, 4, cuts=[3])
    assert history == [{1}] * 90 + [after] * 30


@pytest.mark.parametrize("gap", [0.0, 0.4])
def test_somebody_in_the_place_of_the_main_person_after_a_cut_may_be_a_guest(gap: float) -> None:
    """A track that was lost just before the cut goes on with another person."""
    larger = face(900, 360, 300, 5)

    def scene(t: float) -> Sequence[Face]:
        return [MAIN] if t < 3 - gap else [] if t < 3 else [MAIN, larger]

    history = shown(scene, 6, cuts=[3])
    assert at(history, 0, 3) == {1}
    assert at(history, 3, 6) == set()


def test_another_shot_begins_where_a_track_goes_on_with_a_larger_face() -> None:
    other = face(500, 360, 230, 1)
    history = shown(lambda t: [MAIN] if t < 2.8 else [] if t < 3 else [other], 6, cuts=[3])
    assert at(history, 0, 2.8) == {1}
    assert at(history, 3.1, 6) == {1}


def test_who_is_where_the_main_person_was_before_a_cut_is_hidden() -> None:
    other, moved = replace(MAIN, id=12), face(900, 300, 200, 13)
    history = shown(lambda t: [MAIN, GUEST] if t < 3 else [other, moved], 6, cuts=[3])
    assert history == [{1}] * 90 + [{13}] * 90


def test_a_cut_that_is_none_while_the_main_person_is_covered_shows_nobody_else() -> None:
    guest = replace(GUEST, id=19)

    def scene(t: float) -> Sequence[Face]:
        return [MAIN, GUEST] if t < 3 else [guest] if t < 3.4 else [MAIN, GUEST]

    history = shown(scene, 6, cuts=[3, 3.4])
    assert at(history, 0, 3) == at(history, 3.5, 6) == {1}
    assert at(history, 3, 3.3) == set()


def test_who_stays_at_the_edge_is_shown_again() -> None:
    main = face(100, 360, 240, 1)
    assert main.box_xyxy[0] < 0

    def scene(t: float) -> Sequence[Face]:
        return [GUEST] if 3 <= t % 5 < 3.8 else [replace(main, id=1 + int(t / 5)), GUEST]

    history = shown(scene, 14)
    assert all(at(history, 5 * n + 3.9, 5 * n + 4.9) == {1 + n} for n in range(2))
    assert not at(history, 0, 14) & {GUEST.id}


@pytest.mark.parametrize(("gap", "id"), [(0.5, 1), (0.5, 2), (1.5, 2)])
def test_who_comes_in_where_the_main_person_went_out_is_hidden(gap: float, id: int) -> None:
    """The tracker may take both for one face."""

    def scene(t: float) -> Sequence[Face]:
        if t < 4.75:
            return [face(500 - max(0, t - 3) * 300, 360, 160, 1)]
        back = t - 4.75 - gap
        return [face(min(500, back * 300), 360, 160, id)] if back >= 0 else []

    history = shown(scene, 9)
    assert at(history, 0, 4.5) == {1}
    assert at(history, 4.8, 9) == set()


def test_who_sits_down_in_the_place_of_the_main_person_is_hidden() -> None:
    other = face(505, 365, 165, 2)
    history = shown(lambda t: [MAIN] if t < 6 else [] if t < 10.5 else [other], 14)
    assert at(history, 0, 6) == {1}
    assert at(history, 6, 14) == set()


def test_who_walks_into_the_place_of_the_main_person_is_hidden() -> None:
    def scene(t: float) -> Sequence[Face]:
        if t < 6:
            return [face(500 - max(0, t - 4) * 400, 360, 160, 1)]
        return [] if t < 6.5 else [face(max(500, 1300 - (t - 6.5) * 400), 360, 160, 2)]

    history = shown(scene, 10)
    assert at(history, 0, 6) == {1}
    assert at(history, 6, 10) == set()


@pytest.mark.parametrize("guests", [[], [GUEST]])
def test_a_main_person_who_turns_away_is_shown_again(guests: list[Face]) -> None:
    again = face(505, 362, 158, 7)

    def scene(t: float) -> Sequence[Face]:
        return [*guests, *([MAIN] if t < 4 else [] if t < 7 else [again])]

    history = shown(scene, 11)
    assert history == [{1}] * 120 + [set()] * 90 + [{7}] * 120


@pytest.mark.parametrize(("seconds", "is_shown"), [(1.0, False), (0.2, True)])
def test_a_face_that_may_be_of_another_who_is_out_of_sight_is_hidden(
    seconds: float, is_shown: bool
) -> None:
    """But not for something that was seen for a moment only. Its time counts all the same."""
    again = face(500, 360, 160, 7)

    def scene(t: float) -> Sequence[Face]:
        guests = [GUEST] if 5 - seconds <= t < 5 else []
        return [*guests, *([MAIN] if t < 4 else [] if t < 6 else [again])]

    history = shown(scene, 9)
    assert at(history, 0, 4) == {1}
    assert at(history, 6, 9) == ({7} if is_shown else set())


@pytest.mark.parametrize(("last", "is_shown"), [(3.5, False), (2.5, True)])
def test_who_was_lost_just_before_the_main_person_may_have_come_to_stand_there(
    last: float, is_shown: bool
) -> None:
    again = face(500, 360, 160, 7)

    def scene(t: float) -> Sequence[Face]:
        guests = [GUEST] if t < last else []
        return [*guests, *([MAIN] if t < 4 else [] if t < 6 else [again])]

    assert at(shown(scene, 9), 6, 9) == ({7} if is_shown else set())


def test_who_is_lost_for_a_moment_together_with_others_is_shown_again() -> None:
    """Nobody goes far in a flash."""
    other = face(1000, 360, 150, 2)

    def scene(t: float) -> Sequence[Face]:
        pair = [MAIN, other]
        again = [replace(each, id=each.id + 5) for each in pair]
        return pair if t < 4 else [] if t < 4.1 else again

    assert at(shown(scene, 6), 4.1, 6) == {6}


def test_who_is_lost_again_and_again_is_main_all_the_same() -> None:
    """In doubt only the longest part is shown, but nobody else."""
    guest = face(900, 360, 150, 2)

    def scene(t: float) -> Sequence[Face]:
        part, since = divmod(t, 4)
        main = [face(600, 360, 160, 10 + int(part))] if since < 2.5 else []
        return [*main, *([guest] if 0.5 < t % 3.9 < 3.7 else [])]

    history = shown(scene, 12)
    assert at(history, 0, 12) & {2} == set()
    assert at(history, 0, 12)


def test_two_equal_people_never_take_turns() -> None:
    pair = [face(400, 360, 150, 1), face(880, 360, 150, 2)]
    history = shown(lambda _t: pair, 5)
    assert history in ([{1}] * 150, [{2}] * 150)


def test_several_main_people() -> None:
    pair = [face(400, 360, 150, 1), face(880, 360, 150, 2), face(640, 200, 60, 3)]
    assert shown(lambda t: pair if t > 1 else pair[2:], 5, count=2)[60:] == [{1, 2}] * 90
    assert at(shown(lambda _t: pair, 2, count=9), 0, 2) == {1, 2, 3}


def test_a_video_without_faces_and_a_single_frame() -> None:
    assert shown(lambda _t: [], 1, cuts=[0.5]) == [set()] * 30
    assert shown(lambda _t: [GUEST, MAIN], 1 / FPS) == [{1}]


def stream_picker() -> AgreedPicker:
    return AgreedPicker([FirstFramesPicker(1, HD, splits=splits) for splits in (False, True)])


def run(picker: AgreedPicker, faces: Sequence[Face], frames: int, start: float) -> list[set[int]]:
    return [{*picker.update(faces, start + frame / FPS)} for frame in range(frames)]


def test_in_a_stream_the_first_frames_decide_together() -> None:
    """Who is found a little later may be larger: it is main, and the first one is not."""
    picker = stream_picker()
    small, large = face(200, 360, 30, 1), face(600, 360, 200, 2)
    assert run(picker, [small], 3, 0.0)[-1] == {1}
    assert not picker.is_decided
    assert run(picker, [small, large], LOOKAHEAD_FRAMES + 1, 0.1)[-1] == {2}
    assert picker.is_decided


def test_in_a_stream_who_is_out_of_sight_at_the_decision_is_main_all_the_same() -> None:
    picker = stream_picker()
    small = face(900, 360, 60, 2)
    for frame in range(40):
        faces = [small] if frame == LOOKAHEAD_FRAMES - 1 else [MAIN, small]
        assert {*picker.update(faces, frame / FPS)} == {1}


def test_in_a_stream_nobody_takes_the_place_of_the_main_person() -> None:
    """Not who steps in front, nor who stays when the main person is gone."""
    picker, larger = stream_picker(), face(560, 360, 300, 2)
    run(picker, [MAIN], 30, 0.0)
    assert run(picker, [MAIN, larger], 60, 1.0) == [{1}] * 60
    assert not any(2 in ids for ids in run(picker, [larger], 300, 3.0))
    assert run(picker, [larger, replace(MAIN, id=3)], 30, 13.0) == [{1}] * 30


def test_in_a_stream_a_cut_begins_a_scene_unless_it_is_none() -> None:
    picker, larger = stream_picker(), face(900, 360, 300, 2)
    run(picker, [MAIN], 30, 0.0)
    picker.cut()
    assert run(picker, [], 2, 1.0) == [{1}] * 2
    assert run(picker, [MAIN], 30, 1.1) == [{1}] * 30
    assert run(picker, [MAIN, larger], 60, 2.1) == [{1}] * 60
    picker.cut()
    assert run(picker, [face(300, 300, 90, 5)], 1, 4.0) == [{5}]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_stream_in_another_size_shows_nobody_until_the_next_cut(is_seen: bool) -> None:
    """A flash is no cut if faces are there before and after it."""
    before, picker = stream_picker(), stream_picker()
    run(before, [MAIN], 30, 0.0)
    picker.follow(before)
    assert not any(run(picker, [GUEST] if is_seen else [], 30, 1.0))
    picker.cut()
    assert run(picker, [GUEST], 1, 2.0) == [set() if is_seen else {GUEST.id}]
