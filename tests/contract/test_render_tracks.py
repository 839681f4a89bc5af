"""Face tracks as files: an unedited file changes nothing, and each edit does what it says."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft.cli.main import main
from bgsoft.errors import ConfigError, VerificationError
from bgsoft.face.faces_file import read_faces_file
from bgsoft.rendering.people import search_faces
from bgsoft.report import Phase
from tests.contract.test_render_faces import (
    FRAMES,
    LEFT_FACE,
    RIGHT_FACE,
    UNCHANGED,
    detail,
    last_luma,
)
from tests.contract.test_render_hide import pictures
from tests.face_clips import write_two_people
from tests.marks import slow
from tests.outside import ffmpeg, frame_hashes, shown_by_ffmpeg
from tests.rendering import LOSSLESS

HIDES: dict[str, Any] = {"preset": None, "face": "anonymize", **LOSSLESS, **UNCHANGED}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_two_people(tmp_path_factory.mktemp("tracks") / "two.mp4", FRAMES, apart=False)


@pytest.fixture(scope="module")
def tracks(people: Path) -> list[dict[str, Any]]:
    """Files of ``bgsoft faces``: the video, and the left and the right face."""
    path = people.with_name("faces.jsonl")
    assert main(["faces", str(people), str(path), "-q"]) == 0
    header, *found = map(json.loads, path.read_text().splitlines())
    assert header["frame"] == [1280, 720]
    assert len(found) == 2
    return [header, *sorted(found, key=lambda track: track["faces"][0][1])]


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def hidden(source: Path, target: Path) -> list[bool]:
    """Whether the left and the right face are hidden in the last frame."""
    before, after = last_luma(source), last_luma(target)
    return [detail(after[face]) < 0.5 * detail(before[face]) for face in (LEFT_FACE, RIGHT_FACE)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["anonymize", "guard", "main"])
def test_an_unedited_file_gives_the_same_video_as_no_file(
    people: Path, tmp_path: Path, mode: str
) -> None:
    file = tmp_path / "faces.jsonl"
    assert main(["faces", str(people), str(file), "--face", mode, "-q"]) == 0
    settings = {**HIDES, "face": mode, "effect": "blur", "strength": None}
    bgsoft.render(people, tmp_path / "one.mkv", **settings)
    bgsoft.render(people, tmp_path / "other.mkv", faces=file, **settings)
    one, other = (pictures(tmp_path / name) for name in ("one.mkv", "other.mkv"))
    assert len(one) == FRAMES
    for before, after in zip(one, other, strict=True):
        assert all((a == b).all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        slow({}, {}, [False, True]),
        slow({}, {"main": True}, [True, False]),
        ({}, {"hide": False}, [False, False]),
        slow({"main": True}, {"main": True}, [False, False]),
        slow({}, None, [False, False]),
    ],
)
def test_edits(
    people: Path,
    tracks: list[dict[str, Any]],
    tmp_path: Path,
    left: dict[str, Any],
    right: dict[str, Any] | None,
    expected: list[bool],
) -> None:
    header, one, other = tracks
    lines = [header, {**one, **left}] + ([] if right is None else [{**other, **right}])
    target = tmp_path / "out.mkv"
    bgsoft.render(people, target, faces=write(tmp_path / "f.jsonl", lines), **HIDES)
    assert hidden(people, target) == expected


@pytest.mark.slow
def test_a_track_that_is_added_and_one_that_is_moved(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    header, one, other = tracks
    first, last = other["faces"][0], other["faces"][-1]
    away = [[pts, x0 - 700, y0, x1 - 700, y1] for pts, x0, y0, x1, y1, *_ in other["faces"]]
    added = {"id": 77, "interpolate": True, "faces": [first[:5], last[:5]]}
    target = tmp_path / "out.mkv"
    file = write(tmp_path / "f.jsonl", [header, one, {**other, "faces": away}])
    bgsoft.render(people, target, faces=file, **HIDES)
    assert hidden(people, target) == [False, False]
    file = write(tmp_path / "g.jsonl", [header, one, added])
    bgsoft.render(people, target, faces=file, overwrite=True, **HIDES)
    assert hidden(people, target) == [False, True]


@pytest.mark.slow
def test_main_by_place_and_by_id(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    header, one, other = tracks
    target = tmp_path / "out.mkv"
    bgsoft.render(people, target, main="69%,60%", **HIDES)
    assert hidden(people, target) == [True, False]
    file = write(tmp_path / "f.jsonl", [header, one, other])
    bgsoft.render(people, target, main=str(other["id"]), faces=file, overwrite=True, **HIDES)
    assert hidden(people, target) == [True, False]
    report = bgsoft.render(people, target, main="0,0", overwrite=True, **HIDES)
    assert hidden(people, target) == [True, True]
    told = [event.message for event in report.events if "--main" in event.message]
    assert told == ["--main 0,0: no face was found there"]


@pytest.mark.parametrize("header", [{}, {"cuts": None}])
def test_main_people_of_a_file_that_has_no_cuts_are_searched_for(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path, header: dict[str, Any]
) -> None:
    """A file of bgsoft has them, so the video is decoded once."""
    lines = [{key: each for key, each in {**tracks[0], **header}.items() if each is not None}]
    file, seen = write(tmp_path / "f.jsonl", lines + tracks[1:]), set[Phase]()
    target = tmp_path / "out.mkv"
    bgsoft.render(people, target, faces=file, on_progress=lambda p: seen.add(p.phase), **HIDES)
    assert seen == {Phase.RENDER} | ({Phase.SEARCH} if header else set())
    assert hidden(people, target) == [False, True]


def test_the_report_names_no_detector_where_the_faces_are_of_a_file(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    file, report = write(tmp_path / "f.jsonl", tracks), tmp_path / "r.json"
    bgsoft.render(people, tmp_path / "out.mkv", faces=file, report=report, **HIDES)
    files = json.loads(report.read_text())["files"]
    models = {entry["name"] for entry in files if entry["role"] == "model"}
    assert "face-mesh" in models
    assert not {name for name in models if name.startswith(("yunet", "mmod"))}


def test_faces_at_times_of_no_frame(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    """They would not be hidden, unless they are interpolated."""
    header, one, _ = tracks
    target = tmp_path / "out.mkv"
    late = {"id": 5, "faces": [[10**9, 0, 0, 9, 9]]}
    file = write(tmp_path / "f.jsonl", [header, one, late])
    with pytest.raises(VerificationError, match=f"1 of {FRAMES + 1} times of .* match no rendered"):
        bgsoft.render(people, target, faces=file, **HIDES)
    assert [*tmp_path.iterdir()] == [Path(file)]
    later = [[pts, 0, 0, 9, 9] for pts in (10**9, 10**9 + 1)]
    write(tmp_path / "f.jsonl", [header, one, {**late, "interpolate": True, "faces": later}])
    report = bgsoft.render(people, target, faces=file, **HIDES)
    told = [event.message for event in report.events if "f.jsonl" in event.message]
    assert told == [f"{file}: 2 of {FRAMES + 2} times match no rendered frame"]
    part = {**HIDES, "duration": 0.08, "overwrite": True, "main": ["9", str(one["id"])]}
    report = bgsoft.render(people, target, faces=file, **part)
    told = [event.message for event in report.events if event.stage == "face"]
    assert told == ["--main 9: no frame shows that track"]


def test_a_track_that_is_to_be_hidden_is_never_main(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    header, one, two = tracks
    hidden = []
    for name, more in (("none", {}), ("one", one), ("two", two)):
        listed = [each | ({"hide": True} if each is more else {}) for each in (one, two)]
        file = write(tmp_path / f"{name}.jsonl", [header, *listed])
        report = tmp_path / f"{name}.json"
        bgsoft.render(people, tmp_path / f"{name}.mkv", faces=file, report=report, **HIDES)
        (place,) = json.loads(report.read_text())["hidden"]
        hidden.append(place["boxes"][0][1:])
    for left, track in zip((each[0] for each in hidden[1:]), (one, two), strict=True):
        assert left == pytest.approx(track["faces"][0][1], abs=60)
    assert hidden[0] in hidden[1:]
    assert hidden[1] != hidden[2]
    both = write(tmp_path / "both.jsonl", [header, one | {"hide": True, "main": True}])
    with pytest.raises(ConfigError, match="a track that is main cannot be hidden"):
        bgsoft.render(people, tmp_path / "both.mkv", faces=both, **HIDES)


def test_main_people_of_a_file_are_hidden_if_nobody_is_to_be_shown(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    header, *faces = tracks
    shown = []
    for name, more in (("plain", {}), ("main", {"main": True})):
        file = write(tmp_path / f"{name}.jsonl", [header, *(each | more for each in faces)])
        target = tmp_path / f"{name}.mkv"
        bgsoft.render(people, target, faces=file, subjects=0, **HIDES)
        shown.append(frame_hashes(target))
    assert shown[0] == shown[1]


def test_faces_of_the_same_video_in_another_container(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Matroska counts in milliseconds, so all faces would be open."""
    copy, file = tmp_path / "in.mkv", write(tmp_path / "f.jsonl", tracks)
    ffmpeg("-i", people, "-c", "copy", copy)
    with pytest.raises(ConfigError, match=r"times are in units of .* but the video's are 1/1000 s"):
        bgsoft.render(copy, tmp_path / "out.mkv", faces=file, **HIDES)
    assert not (tmp_path / "out.mkv").exists()


def test_a_file_of_faces_makes_its_folder_and_replaces_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, target = tmp_path / "pictures" / "1.png", tmp_path / "new" / "f.jsonl"
    picture.parent.mkdir()
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.04", picture)
    before = picture.read_bytes()
    assert main(["faces", str(picture.parent), str(target)]) == 0
    assert f"notice: created folder {target.parent}\n" in capsys.readouterr().err
    assert read_faces_file(target).tracks == {}
    assert main(["faces", str(picture.parent), str(picture), "-y"]) == 5
    assert f"cannot write the faces {picture}: it is the same file" in capsys.readouterr().err
    assert picture.read_bytes() == before


def test_a_file_of_faces_that_appears_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture, target = tmp_path / "1.png", tmp_path / "f.jsonl"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.04", picture)

    def late(*args: Any) -> Any:
        target.write_text("somebody's")
        return search_faces(*args)

    monkeypatch.setattr("bgsoft.rendering.tracks.search_faces", late)
    assert main(["faces", str(picture), str(target)]) == 5
    assert target.read_text() == "somebody's"


HEADER = '{"faces_of": "a", "frame": [1280, 720]}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("[]", "line 1: it is not a JSON object"),
        ("{", "line 1: Expecting property name"),
        ("{}", "line 1: the first line must have faces_of"),
        ('{"faces_of": "a", "frame": [1]}', r"frame must be \[width, height\]"),
        (HEADER[:-2] + ', "cuts": [0.5]}', "line 1: cuts must be a list of pts"),
        (HEADER[:-2] + ', "last": 0.5}', "line 1: last must be the pts of the last frame"),
        (HEADER[:-2] + ', "time_base": "a"}', "line 1: Invalid literal for Fraction"),
        (HEADER + '{"id": 1, "faces": [[0, 1, 2, 3, 1%s]]}' % (400 * "0"), "line 2: int too large"),
        (HEADER + '{"id": 1, "mian": true}', "line 2: unknown key mian; did you mean main"),
        (HEADER + '{"faces": []}', "line 2: id must be a whole number"),
        (HEADER + '{"id": 1, "faces": []}', "line 2: faces must be a list"),
        (HEADER + '{"id": 1, "faces": [[0, 1, 2, 3]]}', "line 2: a face must be"),
        (HEADER + '{"id": 1, "faces": [[0.5, 1, 2, 3, 4]]}', "line 2: a face must be"),
        (HEADER + '{"id": 1, "faces": [[0, 3, 2, 1, 4]]}', "must have left < right"),
        (HEADER + '{"id": 1, "faces": [[0, -1e9, 2, 1e9, 4]]}', "smaller than 10 frames"),
        (HEADER + '{"id": 1, "faces": [[0, 1, 2, 3, 1e5]]}', "smaller than 10 frames"),
        (HEADER + '{"id": 1, "faces": [[0, 1280, 2, 1290, 4]]}', "line 2: the track lies outside"),
        (HEADER + '{"id": 1, "faces": [[0, 1, -9, 3, 0]]}', "line 2: the track lies outside the"),
        (HEADER + '{"id": 1, "faces": [[0, 1, 2, 3, 4], [0, 5, 2, 9, 4]]}', "one face at a time"),
        (HEADER + '{"id": 1, "interpolate": true, "faces": [[0, 1, 2, 3, 4]]}', "needs two faces"),
        (HEADER + '{"id": 1, "faces": [[0, 1, 2, NaN, 4]]}', "line 2: a face must be"),
        (HEADER + '{"id": 1, "main": 1, "faces": [[0, 1, 2, 3, 4]]}', "main must be true or false"),
        (HEADER + 2 * '{"id": 1, "faces": [[0, 1, 2, 3, 4]]}\n', "line 3: id must be a whole"),
    ],
)
def test_a_malformed_file_is_named_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_faces_file(file)
    assert str(caught.value).startswith(f"cannot read face file {file}: ")


@pytest.mark.parametrize(
    ("times", "unused"),
    [
        ([5, 25], 0),
        ([25, 39], 0),  # the last frame is shown until 40
        ([25, 45], 1),
        ([-5, 45], 2),
        ([22, 28], 2),  # between two frames
    ],
)
def test_times_of_an_interpolated_track_need_no_frame(
    tmp_path: Path, times: list[int], unused: int
) -> None:
    """But they must be the video's, and a frame must be between them."""
    file = tmp_path / "f.jsonl"
    faces = [[pts, 1, 2, 3, 4] for pts in times]
    file.write_text(HEADER + json.dumps({"id": 1, "interpolate": True, "faces": faces}))
    known = read_faces_file(file)
    known.frame_ticks = 10
    told = known.warnings([30, 0, 20, 10], is_part=False)
    assert told == [f"{file}: {unused} of 2 times match no rendered frame"] * bool(unused)


@pytest.mark.parametrize(("more", "outside"), [({}, 1), ({"interpolate": True}, 0)])
def test_faces_outside_the_frame(tmp_path: Path, more: dict[str, bool], outside: int) -> None:
    """One that is only expected may have left, and so may one on an interpolated way."""
    far, file = [1280, 2, 1290, 4], tmp_path / "f.jsonl"
    faces = [[0, 1, 2, 3, 4], [1, *far], [2, *far, 0.0, 1.0, 0], [3, 1279, 2, 1290, 4]]
    file.write_text(HEADER + json.dumps({"id": 1, "faces": faces, **more}))
    told = read_faces_file(file).warnings(range(4), is_part=False)
    assert told == [f"{file}: {outside} of 4 faces lie outside the frame"] * outside


def test_the_faces_of_a_shorter_video_and_one_of_another_name(
    people: Path, tracks: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Nobody searched the later frames, so faces in them would be open."""
    header, target = tracks[0], tmp_path / "out.mkv"
    times = [round(seconds / Fraction(header["time_base"])) for seconds in shown_by_ffmpeg(people)]
    assert header["last"] == times[-1]
    file = write(tmp_path / "f.jsonl", [{**header, "last": times[-3]}])
    with pytest.raises(VerificationError, match="2 frames come after the last one of "):
        bgsoft.render(people, target, faces=file, **HIDES)
    assert [*tmp_path.iterdir()] == [Path(file)]
    assert people.name == header["faces_of"]
    told = f"{file} has the faces of other.mp4; this is {people.name}"
    write(tmp_path / "f.jsonl", [{**header, "faces_of": "other.mp4"}])
    report = bgsoft.render(people, target, faces=file, **HIDES)
    assert told in [event.message for event in report.events]
    write(tmp_path / "f.jsonl", [{**header, "faces_of": "other.mp4", "last": times[-3]}])
    report = bgsoft.render(people, target, faces=file, overwrite=True)
    late = f"2 frames come after the last one of {file}"
    size = people.stat().st_size
    assert header["bytes"] == size
    write(tmp_path / "f.jsonl", [{**header, "bytes": 7}])
    again = bgsoft.render(people, target, faces=file, overwrite=True, **HIDES)
    changed = f"{file} has the faces of {people.name} when it had 7 bytes; now it has {size} bytes"
    assert changed in [event.message for event in again.events if event.kind == "warning"]
    assert {told, late} <= {event.message for event in report.events}


def test_the_faces_of_another_video(people: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "f.jsonl", tmp_path / "out.mkv"
    file.write_text(HEADER.replace("1280", "640"))
    with pytest.raises(ConfigError, match="its frames are 640x720, but the video's are 1280x720"):
        bgsoft.render(people, target, faces=file, **HIDES)
    assert not target.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"main": "here"}, "main must be X,Y"),
        ({"main": "1,2@"}, "main must be X,Y"),
        ({"main": "1,2", "subjects": 2}, "cannot combine main and subjects"),
        ({"main": "3"}, "cannot use main 3: the id of a track needs faces"),
        ({"main": "1,2", "face": "guard"}, "main .*has no effect"),
        ({"faces": "f.jsonl", "face": "off"}, "faces .*has no effect"),
    ],
)
def test_names_and_files_that_do_not_fit(
    people: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        bgsoft.render(people, tmp_path / "out.mkv", **{**HIDES, **settings})


def test_a_drawn_box_that_is_no_face_in_shape_is_hidden_whole(tmp_path: Path) -> None:
    source, target, file = (tmp_path / name for name in ("in.mkv", "out.mkv", "f.jsonl"))
    ffmpeg("-f", "lavfi", "-i", "color=gray:s=320x180:d=0.08:r=25", "-c:v", "ffv1", source)
    boxes = {1: (20, 20, 260, 50), 2: (290, 10, 300, 170)}
    lines: list[dict[str, Any]] = [{"faces_of": "in.mkv", "frame": [320, 180]}]
    lines += [
        {"id": id, "interpolate": True, "faces": [[0, *box], [40, *box]]}
        for id, box in boxes.items()
    ]
    given = {"faces": write(file, lines), "face": "anonymize", "subjects": 0, "codec": "ffv1"}
    bgsoft.render(source, target, **given)
    for luma, *_ in pictures(target):
        for left, top, right, bottom in boxes.values():
            assert luma[top:bottom, left:right].max() == 16


@pytest.mark.parametrize(("first", "last"), [(15, 25), (10, 14), (22, 28), (31, 40), (44, 47)])
def test_a_part_hides_what_the_whole_render_hides(tmp_path: Path, first: int, last: int) -> None:
    """Faces just outside the part count: one is at 0.4 and 1.2 s, the other from 1.6 to 1.8 s."""
    source, target, file = (tmp_path / name for name in ("in.mkv", "out.mkv", "f.jsonl"))
    ffmpeg("-f", "lavfi", "-i", "color=gray:s=320x180:d=2:r=25", "-c:v", "ffv1", source)
    lines: list[dict[str, Any]] = [
        {"faces_of": "in.mkv", "frame": [320, 180], "time_base": "1/1000", "cuts": [1920]},
        {"id": 1, "faces": [[400, 20, 20, 60, 80], [1200, 220, 20, 260, 80]]},
        {"id": 2, "faces": [[t, t // 10, 90, t // 10 + 40, 150] for t in range(1600, 1840, 40)]},
    ]
    given = {"faces": write(file, lines), "face": "anonymize", "subjects": 0, "codec": "ffv1"}
    bgsoft.render(source, tmp_path / "whole.mkv", **UNCHANGED, **given)
    report = bgsoft.render(
        source, target, start=first / 25, duration=(last - first) / 25, **UNCHANGED, **given
    )
    assert not any("no face" in event.message for event in report.events)
    whole = [luma == 16 for luma, *_ in pictures(tmp_path / "whole.mkv")][first:last]
    part = [luma == 16 for luma, *_ in pictures(target)]
    assert all(black.any() for black in whole)
    assert [black.tobytes() for black in part] == [black.tobytes() for black in whole]
