"""The journal: vanished faces, possible faces and the reports about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bgsoft.face.base import Face
from bgsoft.face.detect import Detection
from bgsoft.face.finder import LIKELY_SCORE
from bgsoft.face.journal import (
    MAX_LISTED,
    FaceJournal,
    entry_of,
    joined_summary,
)
from tests.pictures import flat_frame, frame_format
from tests.unit.face.shapes import make_face, seen

HD = frame_format((1280, 720))
FRAME = flat_frame(frame_format((2, 2)), 16, 128, 128)
FRAME_MS = 100
SOMEBODY = make_face(640, 360, 90, id=1)


def journal_of(
    video: Sequence[Sequence[Face]],
    doubts: Sequence[Sequence[Detection]] = (),
    cuts: Sequence[int] = (),
    *,
    hides: bool = True,
) -> FaceJournal:
    """Return a journal of a video with ten frames a second."""
    journal = FaceJournal(HD, measures=False, hides=hides)
    for index, faces in enumerate(video):
        FRAME.index, FRAME.pts = index, FRAME_MS * index
        maybe = doubts[index] if index < len(doubts) else ()
        if index in cuts:
            journal.cut()
        journal.add(FRAME, faces, maybe)
    return journal


def vanished(journal: FaceJournal) -> list[tuple[int, int]]:
    """Id and last frame of each."""
    return [(each["id"], each["frame"]) for each in journal.summary()["vanished"]]


UNSURE = replace(SOMEBODY, is_proven=False)


@pytest.mark.parametrize(
    ("video", "cuts", "listed"),
    [
        ([[UNSURE]] * 3 + [[]] * 12, (), [2]),
        ([[UNSURE]] * 3 + [[]] * 12, (4,), [2]),
        ([[UNSURE]] * 3 + [[]], (), [2]),
        ([[UNSURE]] * 3, (), []),  # hidden: nothing speaks against a single view
        ([[UNSURE]] * 2 + [[SOMEBODY]] + [[]] * 12, (), []),
        ([[SOMEBODY]] * 2 + [[UNSURE]] + [[]] * 12, (), []),  # as after a refresh
        ([[UNSURE]] * 2 + [[SOMEBODY]] * 2 + [[]] * 3, (2,), []),
    ],
    ids=["lost", "cut", "end", "last frame", "seen again", "seen before", "after a cut"],
)
def test_what_was_never_seen_often_enough_to_be_hidden_is_doubtful(
    video: list[list[Face]], cuts: tuple[int, ...], listed: list[int]
) -> None:
    journal = journal_of(video, cuts=cuts)
    warnings = journal.warnings(is_hiding=False)
    doubtful = journal.summary()["doubtful"]
    assert [each["frame"] for each in doubtful] == listed
    if listed:
        assert doubtful[0]["boxes"] == [pytest.approx(SOMEBODY.box_xyxy, abs=0.06)]
        assert vanished(journal) == []
        assert warnings[0].startswith(
            "1 frames may show a face that is not hidden, first at 0.20 s"
        )


def test_nothing_is_doubtful_where_nothing_is_hidden() -> None:
    """As with a file of faces that was made for hiding."""
    journal = journal_of([[UNSURE]] * 3 + [[]] * 12, hides=False)
    assert journal.warnings(is_hiding=False) == []
    assert journal.summary()["doubtful"] is None


def test_doubtful_frames_are_in_order_and_those_of_an_earlier_pass_are_not_listed_twice() -> None:
    doubts = [[]] * 5 + [seen((90, 90), score=LIKELY_SCORE)]
    video = [[UNSURE]] * 3 + [[]] * 15
    journal = journal_of(video, doubts)
    first = journal.summary()
    assert [each["frame"] for each in first["doubtful"]] == [2, 5]
    second = FaceJournal(HD, measures=False, hides=True)
    second.take_doubtful(first)
    for faces in video:
        second.add(FRAME, faces)
    second.warnings(is_hiding=False)
    assert second.summary()["doubtful"] == first["doubtful"]
    assert second.summary()["doubtful_frames"] == 2


def test_a_face_that_vanishes_in_the_middle_is_listed_with_where_it_was() -> None:
    journal = journal_of([[SOMEBODY]] * 5 + [[]] * 12)
    assert vanished(journal) == [(1, 4)]
    (entry,) = journal.summary()["vanished"]
    assert (entry["pts"], entry["time_s"]) == (400, 0.4)
    assert entry["box"] == pytest.approx(SOMEBODY.box_xyxy, abs=0.06)
    (notice,) = journal.warnings(is_hiding=False)
    assert "vanished away from the frame's edges 1 times, first at 0.40 s" in notice


def test_a_face_that_is_only_expected_was_not_seen() -> None:
    expected = replace(SOMEBODY, detected=False)
    assert vanished(journal_of([[SOMEBODY]] * 5 + [[expected]] * 12)) == [(1, 4)]


@pytest.mark.parametrize(
    ("video", "cuts"),
    [
        ([[SOMEBODY]] * 5 + [[]] * 5 + [[SOMEBODY]] * 9, ()),  # for less than a second
        ([[SOMEBODY]] * 5 + [[]] * 12, (7,)),  # a cut ends it
        ([[make_face(30, 360, 90, id=1)]] * 5 + [[]] * 12, ()),  # it leaves the frame
        ([[make_face(640, 700, 90, id=1)]] * 5 + [[]] * 12, ()),
        ([[SOMEBODY]] * 9, ()),  # the video ends
    ],
)
def test_others_have_not_vanished(video: list[list[Face]], cuts: tuple[int, ...]) -> None:
    journal = journal_of(video, cuts=cuts)
    assert vanished(journal) == []
    assert journal.warnings(is_hiding=False) == []


def test_frames_with_what_may_be_a_face_are_listed() -> None:
    likely, faint = seen((200, 200), score=LIKELY_SCORE), seen((300, 200), score=0.3)
    journal = journal_of([[SOMEBODY]] * 4, [[], [*likely, *faint], faint, likely])
    entries = journal.summary()["doubtful"]
    assert [(each["frame"], each["boxes"]) for each in entries] == [
        (1, [[150.0, 150.0, 250.0, 250.0]]),
        (3, [[150.0, 150.0, 250.0, 250.0]]),
    ]
    (notice,) = journal.warnings(is_hiding=False)
    assert notice.startswith("2 frames may show a face that is not hidden, first at 0.10 s")


def test_changes_of_the_main_person_are_listed() -> None:
    journal = journal_of([[SOMEBODY]] * 3)
    journal.note("main_changes", entry_of(FRAME), ids=[7])
    assert journal.summary()["main_changes"] == [
        {"frame": 2, "pts": 200, "time_s": 0.2, "ids": [7]}
    ]
    (notice,) = journal.warnings(is_hiding=False)
    assert notice.startswith("the main people changed 1 times, first at 0.20 s")


def test_a_video_without_a_face_is_reported() -> None:
    journal = journal_of([[]] * 3)
    assert journal.warnings(is_hiding=False) == ["no face was found, so none is hidden"]
    assert journal.warnings(is_hiding=True) == []


def test_where_nothing_is_hidden_there_is_nothing_to_report() -> None:
    doubts = [seen((200, 200), score=0.6)] * 20
    journal = journal_of([[SOMEBODY]] * 5 + [[]] * 12, doubts, hides=False)
    summary: dict[str, Any] = journal.summary()
    assert (summary["vanished"], summary["doubtful"]) == (None, None)
    assert journal.warnings(is_hiding=False) == []
    assert journal_of([[]], hides=False).warnings(is_hiding=False) == []


def test_lists_end_and_counts_do_not() -> None:
    doubts = [seen((200, 200), score=0.6)] * (MAX_LISTED + 5)
    journal = journal_of([[SOMEBODY]] * len(doubts), doubts)
    assert len(journal.summary()["doubtful"]) == MAX_LISTED
    assert journal.warnings(is_hiding=False)[0].startswith(f"{MAX_LISTED + 5} frames")


def test_the_parts_of_a_video_are_reported_as_one() -> None:
    parts = [FaceJournal(HD, measures=True, hides=False) for _ in range(3)]
    for part in parts[1:]:
        part.add(FRAME, [SOMEBODY])
        part.add_coverage(entry_of(FRAME), [1], [0.5])
    joined = joined_summary([part.summary() for part in parts], [{}, {1: 0}, {1: 4}])
    assert [each["missed_pct"] for each in joined["missed"]] == [{"0": 50.0}, {"4": 50.0}]
    assert (joined["missed_frames"], joined["tracks"], joined["frames_with_faces"]) == (2, 2, 2)
