"""Files of faces."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bgsoft.errors import ConfigError, OutputError
from bgsoft.face.base import Face
from bgsoft.face.data import FaceDataWriter, open_face_data
from bgsoft.frame import Frame
from tests.fakes import FORMAT, host_planes
from tests.unit.face.shapes import make_face

FACES = [
    [make_face(10.123, 20, 30, id=0)],
    [],
    [make_face(11, 20, 30, id=0), make_face(70, 20, 31, id=4, score=0.25)],
]


def frame(index: int) -> Frame:
    return Frame(host_planes(FORMAT), FORMAT, index, 500 + 33 * index, Fraction(1, 1000))


def write(writer: FaceDataWriter, faces: Sequence[Sequence[Face]] = FACES) -> None:
    for index, found in enumerate(faces):
        writer.write(frame(index), found)


def complete(
    path: Path, faces: Sequence[Sequence[Face]] = FACES, *, overwrite: bool = False
) -> None:
    with open_face_data(path, overwrite=overwrite) as writer:
        write(writer, faces)
        writer.finish()
        writer.file.commit()
    assert writer.file.kept is None


def indices(path: Path) -> list[int]:
    if path.suffix == ".npz":
        with np.load(path) as data:
            assert len(data["landmarks"]) == len(data["id"]) == data["first"][-1]
            found: list[int] = data["index"].tolist()
            return found
    return [json.loads(line)["index"] for line in path.read_text().splitlines()]


def test_a_line_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "faces.jsonl"
    complete(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2]
    assert [line["pts"] for line in lines] == [500, 533, 566]
    assert lines[1] == {"index": 1, "pts": 533, "time": 0.533, "faces": []}
    found = lines[2]["faces"]
    assert [face["id"] for face in found] == [0, 4]
    assert found[1]["score"] == 0.25
    assert found[0]["detected"] is True
    assert np.array(found[0]["landmarks"]).shape == (468, 3)
    for face, line in zip(FACES[2], found, strict=True):
        np.testing.assert_allclose(line["landmarks"], face.landmarks, atol=0.0051)
        np.testing.assert_allclose(line["box"], face.box_xyxy, atol=0.0051)


def test_lines_are_there_before_the_end(tmp_path: Path) -> None:
    with open_face_data(tmp_path / "faces.jsonl", overwrite=False) as writer:
        writer.write(frame(0), FACES[0])
        (written,) = tmp_path.iterdir()
        assert indices(written) == [0]


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "faces.npz"
    complete(path)
    with np.load(path, allow_pickle=False) as data:
        arrays = dict(data)
    assert arrays["index"].tolist() == [0, 1, 2]
    assert arrays["pts"].tolist() == [500, 533, 566]
    assert arrays["time"].tolist() == pytest.approx([0.5, 0.533, 0.566])
    assert arrays["first"].tolist() == [0, 1, 1, 3]
    assert arrays["id"].tolist() == [0, 0, 4]
    assert arrays["detected"].tolist() == [True] * 3
    every = [face for found in FACES for face in found]
    np.testing.assert_array_equal(arrays["landmarks"], [face.landmarks for face in every])
    # Exactly, as chunks of a video are read again.
    np.testing.assert_array_equal(arrays["box"], [face.box_xyxy for face in every])
    assert arrays["score"].tolist() == [face.score for face in every]
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_of_no_faces(tmp_path: Path) -> None:
    path = tmp_path / "faces.npz"
    complete(path, [[], []])
    with np.load(path) as data:
        assert data["landmarks"].shape == (0, 468, 3)
        assert data["first"].tolist() == [0, 0, 0]


NAMES = pytest.mark.parametrize("name", ["faces.jsonl", "faces.npz"])


@NAMES
def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("before")
    path.chmod(0o640)
    with open_face_data(path, overwrite=True) as writer:
        write(writer)
        writer.finish()
        assert path.read_text() == "before"
        writer.file.commit()
    assert indices(path) == [0, 1, 2]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@NAMES
def test_an_interrupted_render_leaves_what_was_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), open_face_data(path, overwrite=True) as writer:
        write(writer, FACES[:2])
        raise KeyboardInterrupt
    partial = tmp_path / name.replace(".", ".partial.")
    assert writer.file.kept == partial
    assert indices(partial) == [0, 1]
    assert path.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [path, partial]
    complete(path, overwrite=True)
    assert indices(path) == [0, 1, 2]
    assert sorted(tmp_path.iterdir()) == [path, partial]


@NAMES
def test_names_of_full_length_and_links_serve(tmp_path: Path, name: str) -> None:
    suffix = Path(name).suffix
    long = tmp_path / f"{'ü' * ((255 - len(suffix)) // 2)}{suffix}"
    complete(long)
    assert indices(long) == [0, 1, 2]
    (tmp_path / "there").mkdir()
    link = tmp_path / name
    link.symlink_to(tmp_path / "there" / name)
    with open_face_data(link, overwrite=False) as writer:
        write(writer)
    assert writer.file.kept is not None
    assert writer.file.kept.parent == tmp_path / "there"
    assert indices(writer.file.kept) == [0, 1, 2]


@NAMES
def test_what_appears_meanwhile_is_not_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with (
        pytest.raises(OutputError, match="it has appeared during the render"),
        open_face_data(path, overwrite=False) as writer,
    ):
        write(writer)
        writer.finish()
        path.write_text("somebody's")
        writer.file.commit()
    assert path.read_text() == "somebody's"
    assert writer.file.kept is not None
    assert indices(writer.file.kept) == [0, 1, 2]


@NAMES
def test_what_has_the_name_of_a_partial_file_stays(tmp_path: Path, name: str) -> None:
    partial = tmp_path / name.replace(".", ".partial.")
    partial.write_text("mine")
    with open_face_data(tmp_path / name, overwrite=True) as writer:
        write(writer)
    assert partial.read_text() == "mine"
    assert writer.file.kept is not None
    assert indices(writer.file.kept) == [0, 1, 2]


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@NAMES
@pytest.mark.parametrize("limit", [5_000, 30_000])
def test_a_full_disk_leaves_whole_frames(tmp_path: Path, name: str, limit: int) -> None:
    path = tmp_path / name
    path.write_text("before")
    written = 0
    writer = open_face_data(path, overwrite=True)
    with file_size_limit(limit), pytest.raises(OutputError, match=f"face data {name}: file larger"):
        for index in range(20):
            writer.write(frame(index), FACES[0])
            written = index + 1
    with pytest.raises(OutputError, match="file larger"):  # the next frame, from another thread
        writer.write(frame(written + 1), [])
    writer.close()  # once the unfinished video is removed, so that there is room again
    assert path.read_text() == "before"
    if written:
        assert writer.file.kept is not None
        assert indices(writer.file.kept) == list(range(written))
    else:
        assert writer.file.kept is None
        assert list(tmp_path.iterdir()) == [path]


def test_arrays_that_find_no_room_at_the_end_leave_no_half_file(tmp_path: Path) -> None:
    path = tmp_path / "faces.npz"
    with open_face_data(path, overwrite=False) as writer:
        write(writer)
        with file_size_limit(10_000):
            with pytest.raises(OutputError, match=r"faces\.npz"):
                writer.finish()
            writer.close()
    assert writer.file.kept is None
    assert list(tmp_path.iterdir()) == []


@NAMES
def test_two_renders_do_not_mix_their_frames(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with open_face_data(path, overwrite=False) as one, open_face_data(path, overwrite=False) as two:
        write(one)
        write(two, FACES[:2])
        one.finish()
        one.file.commit()
        with pytest.raises(OutputError, match="it has appeared during the render"):
            two.file.commit()
    assert indices(path) == [0, 1, 2]


@NAMES
def test_without_a_frame_nothing_is_written_or_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("before")
    with open_face_data(path, overwrite=True) as writer:
        pass
    writer.close()
    assert path.read_text() == "before"
    with pytest.raises(ValueError, match="closed"):
        writer.write(frame(0), [])


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.jsonl or \.npz"):
        open_face_data(tmp_path / "faces.csv", overwrite=False)
    (tmp_path / "faces.npz").touch()
    with pytest.raises(OutputError, match="--overwrite"):
        open_face_data(tmp_path / "faces.npz", overwrite=False)
    with pytest.raises(OutputError, match="is not a folder"):
        open_face_data(tmp_path / "faces.npz" / "faces.npz", overwrite=False)
    with pytest.raises(OutputError, match="same file"):
        open_face_data(
            tmp_path / "faces.npz", overwrite=True, others=[tmp_path / "." / "faces.npz"]
        )
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        open_face_data(tmp_path / "folder.npz", overwrite=True)
