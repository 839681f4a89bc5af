"""Faces that are known before a render: collected, and found again."""

from __future__ import annotations

from array import array
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bgsoft.errors import ConfigError, InferenceError
from bgsoft.face.base import NO_LANDMARKS, Face
from bgsoft.face.create import read_known_faces
from bgsoft.face.faces_file import KnownFaces, KnownFinder, read_faces_file
from bgsoft.face.finder import FinderSettings
from bgsoft.face.geometry import Roi
from bgsoft.frame import Frame
from bgsoft.settings.config import FaceConfig, FaceMode
from tests.fakes import FORMAT, host_planes
from tests.pictures import frame_format
from tests.rendering import video_info
from tests.unit.face.shapes import make_face


def bare(face: Face, **changes: Any) -> Face:
    square = Roi(1.25, 2.5, 100.0, face.angle)
    return replace(face, landmarks=NO_LANDMARKS, square=square, **changes)


FACES = [
    [bare(make_face(10.1, 20, 30, id=5, roll=0.3))],
    [],
    [
        bare(make_face(70, 20, 31, id=8, score=0.2), is_proven=False),
        bare(make_face(11, 20, 30, id=5, age=3), detected=False),
    ],
]


def frame(index: int) -> Frame:
    return Frame(host_planes(FORMAT), FORMAT, index, 500 + 33 * index, Fraction(1, 1000))


def values(face: Face) -> list[Any]:
    names = ("id", "score", "box_xyxy", "angle", "square", "detected", "age_frames", "is_proven")
    return [getattr(face, name) for name in names]


@pytest.fixture
def recorder() -> KnownFaces:
    recorder = KnownFaces()
    for index, faces in enumerate(FACES):
        recorder.write(frame(index), faces)
    recorder.frames, recorder.time_base = array("q", [500, 533, 566]), Fraction(1, 1000)
    return recorder


@pytest.mark.parametrize(("hide", "counts"), [(None, False), (True, True), (False, False)])
def test_a_track_that_is_to_be_hidden_counts_wherever_it_is_listed(
    recorder: KnownFaces, hide: bool | None, counts: bool
) -> None:
    """Also where it was only expected, or is in doubt."""
    for track in recorder.tracks.values():
        track.hide = hide
    doubtful, expected = recorder.faces(566)
    assert (doubtful.id, doubtful.detected, doubtful.is_proven) == (8, True, counts)
    assert (expected.id, expected.detected, expected.is_proven) == (5, counts, True)
    assert recorder.shown == ({5, 8} if hide is False else set())


def test_faces_come_back_as_they_were_written(recorder: KnownFaces) -> None:
    for index in (0, 1, 2, 1, 0):
        found = recorder.faces(500 + 33 * index)
        assert [*map(values, found)] == [*map(values, FACES[index])]
    assert [(pts, seconds, len(faces)) for pts, seconds, faces in recorder.items()] == [
        (500, 0.5, 1),
        (533, 0.533, 0),
        (566, 0.566, 2),
    ]
    assert {*recorder.tracks} == {5, 8}


def test_a_file_has_the_same_faces(recorder: KnownFaces, tmp_path: Path) -> None:
    info = video_info(frame_format((128, 72)), time_base=Fraction(1, 1000))
    recorder.cuts = {566}
    file = tmp_path / "faces.jsonl"
    file.write_text(recorder.text(info))
    known = read_faces_file(file)
    frames = [(pts, [*map(values, faces)]) for pts, _, faces in known.items()]
    assert frames == [(500, [*map(values, FACES[0])]), (566, [*map(values, FACES[2])])]
    assert (known.cuts, known.time_base) == ([566], Fraction(1, 1000))


def test_the_faces_of_pictures_count_in_the_frame_rate_of_the_render(
    recorder: KnownFaces, tmp_path: Path
) -> None:
    """Their times are numbers, so a file fits any rate."""
    format, file = frame_format((128, 72)), tmp_path / "faces.jsonl"
    file.write_text(recorder.text(video_info(format, time_base=Fraction(1, 1000))))
    known = read_faces_file(file)
    pictures = tuple(Path(f"{number}.png") for number in range(3))
    known.require_video(video_info(format, time_base=Fraction(1, 100), stills=pictures))
    assert [seconds for _, seconds, _ in known.items()] == [5.0, 5.66]
    with pytest.raises(ConfigError, match="units of 1/1000 s"):
        read_faces_file(file).require_video(video_info(format, time_base=Fraction(1, 100)))


@pytest.fixture
def hides_one(recorder: KnownFaces, tmp_path: Path) -> FaceConfig:
    """Settings with a file in which track 8 is to be hidden."""
    file = tmp_path / "faces.jsonl"
    text = recorder.text(video_info(frame_format((128, 72))))
    file.write_text(text.replace('"id": 8', '"id": 8, "hide": true'))
    return FaceConfig(mode=FaceMode.ANONYMIZE, file=str(file))


def test_a_track_that_is_to_be_hidden_cannot_be_named_as_main(hides_one: FaceConfig) -> None:
    known = read_known_faces(replace(hides_one, main=("5", "1,2")))
    assert known is not None
    assert known.hidden == {8}
    with pytest.raises(ConfigError, match='cannot use --main 8: its track is "hide": true'):
        read_known_faces(replace(hides_one, main=("5", "8")))


@pytest.mark.parametrize("mode", [FaceMode.OFF, FaceMode.GUARD, FaceMode.MAIN])
def test_tracks_that_are_to_be_hidden_need_a_mode_that_hides(
    hides_one: FaceConfig, mode: FaceMode
) -> None:
    with pytest.raises(ConfigError, match=f'with --face {mode}: its "hide": true needs'):
        read_known_faces(replace(hides_one, mode=mode))


@pytest.mark.parametrize("pts", [0, 501, 600])
def test_a_frame_that_was_not_searched_stops_the_render(recorder: KnownFaces, pts: int) -> None:
    """Otherwise its faces would be shown."""
    networks = cast("Any", SimpleNamespace(start=None, close=lambda: None))
    settings = FinderSettings(scale=1.0, seconds=1.0, most_frames=1)
    finder = KnownFinder(recorder, FORMAT, networks, settings)
    searched = frame(2)
    assert [len(each) for each in finder.find([searched], [cast("Any", None)])] == [2]
    assert finder.doubts == [[]]
    searched.pts = pts
    with pytest.raises(InferenceError, match="other frames were decoded") as error:
        finder.find([searched], [cast("Any", None)])
    assert error.value.pts == pts
