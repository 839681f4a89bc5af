"""Main people that are named by an id, or by a place and a time."""

from __future__ import annotations

from bgsoft.face.people import ChosenPicker
from tests.pictures import frame_format
from tests.rendering import video_info
from tests.unit.face.shapes import make_face

INFO = video_info(frame_format((1280, 720)), start_pts=90_000)
"""A video that begins at 1 s."""
LEFT, RIGHT = make_face(300, 360, 200, id=1), make_face(900, 430, 120, id=2)


def test_a_place_selects_the_face_that_is_there() -> None:
    picker = ChosenPicker(["70%,60%"], [], INFO)
    assert picker.update([LEFT, RIGHT], 1.0) == {2: RIGHT}
    assert picker.update([LEFT], 1.04) == {2: RIGHT}, "it stays selected while it is out of sight"
    assert picker.warnings() == []


def test_of_two_faces_at_a_place_the_closer_one_is_selected() -> None:
    other = make_face(320, 380, 200, id=3)
    assert {*ChosenPicker(["302,362"], [], INFO).update([other, LEFT], 1.0)} == {1}


def test_a_time_counts_from_the_start_of_the_video() -> None:
    picker = ChosenPicker(["300,360@0.5"], [], INFO)
    assert picker.update([LEFT], 1.46) == {}
    assert {*picker.update([LEFT], 1.5)} == {1}


def test_a_time_means_the_frame_that_is_shown_then() -> None:
    """After a cut, nobody has come there in time."""
    picker = ChosenPicker(["300,360@0.5", "900,430@0.5"], [], INFO)
    assert {*picker.update([LEFT], 1.2, until=3.0)} == {1}
    picker.cut()
    assert picker.update([LEFT, RIGHT], 3.0) == {}
    assert picker.warnings() == ["--main 900,430@0.5: no face was found there"]


def test_a_time_at_the_end_of_a_frame_means_the_next_one() -> None:
    picker = ChosenPicker(["300,360@0.5"], [], INFO)
    assert picker.update([LEFT], 1.2, until=1.5) == {}
    assert {*picker.update([LEFT], 1.5, until=1.54)} == {1}


def test_who_is_out_of_sight_for_seconds_is_shown_again_in_the_same_place() -> None:
    """The track has ended then, and another begins. Somebody else is not shown."""
    picker = ChosenPicker(["300,360"], [], INFO)
    for frame in range(30):
        assert {*picker.update([LEFT], 1 + frame / 30)} == {1}
    again, other = make_face(310, 360, 200, id=7), make_face(700, 360, 200, id=8)
    assert {*picker.update([again, other], 4.5)} == {1, 7}
    assert {*picker.main} == {1}, "the main person has not changed"
    nearer = make_face(310, 360, 300, id=7)
    assert 7 not in picker.update([nearer, other], 4.6), "it shows somebody else now"
    assert 9 not in picker.update([make_face(310, 360, 200, id=9)], 9.0), "it may be anybody"


def test_a_place_waits_for_the_first_face_that_comes_there() -> None:
    picker = ChosenPicker(["900,430"], [], INFO)
    assert picker.update([LEFT], 1.0) == {}
    assert picker.warnings() == ["--main 900,430: no face was found there"]
    assert {*picker.update([LEFT, RIGHT], 1.04)} == {2}


def test_ids_are_selected_and_those_that_no_frame_shows_are_reported() -> None:
    picker = ChosenPicker(["2", "7"], [1], INFO)
    assert {*picker.update([LEFT, RIGHT], 1.0)} == {1, 2}
    assert picker.warnings() == ["--main 7: no frame shows that track"]


def test_places_end_with_the_scene() -> None:
    """Somebody else may be there after a cut."""
    picker = ChosenPicker(["300,360", "900,430", "900,430@1", "9"], [], INFO)
    assert {*picker.update([LEFT], 1.0)} == {1}
    picker.cut()
    assert picker.update([LEFT, RIGHT], 1.5) == {}
    assert picker.warnings()[0] == "--main 900,430: no face was found there"
    assert {*picker.update([LEFT, RIGHT], 2.0)} == {2}
    assert {*picker.update([make_face(100, 100, 80, id=9)], 2.1)} == {2, 9}


def test_in_frames_of_another_size_a_place_is_nobodys() -> None:
    """Somebody else may have come there, and tracks have other ids."""
    names = ["300,360", "900,430@1", "7"]
    before, picker = (ChosenPicker(names, [], INFO) for _ in range(2))
    before.update([LEFT], 1.0)
    picker.follow(before)
    assert picker.update([LEFT, make_face(600, 360, 100, id=7)], 1.5) == {}
    assert {*picker.update([LEFT, RIGHT], 2.0)} == {2}
