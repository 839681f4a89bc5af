"""Names of sequences, and folders that appear whole."""

from __future__ import annotations

import os
import struct
from fractions import Fraction
from pathlib import Path

import pytest

from bgsoft.errors import OpenError, OutputError
from bgsoft.media.endpoints import EndpointKind, destination_for, source_for
from bgsoft.media.patterns import is_pattern, picture_number
from bgsoft.media.sequence import SequenceOutput, exact_rate, gaps, list_pictures, probe_stills
from bgsoft.outputs import lock_folder
from tests.stills import colourful, save


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("%05d.png", True),
        ("a_%d_b.JPG", True),
        ("100%%_%03d.tif", True),
        ("a.png", False),
        ("%s.png", False),
        ("%d_%d.png", False),
        ("%05d.mp4", False),
        ("%%d.png", False),
        ("%0999d.png", False),
    ],
)
def test_what_is_a_pattern(name: str, pattern: bool) -> None:
    assert is_pattern(Path(name)) == pattern


@pytest.mark.parametrize(
    ("pattern", "name", "number"),
    [
        ("%05d.png", "00012.png", 12),
        ("%05d.png", "123456.png", 123456),
        ("%05d.png", "0012.png", None),
        ("%05d.png", "0000012.png", None),
        ("%d.png", "12.png", 12),
        ("%d.png", "012.png", None),
        ("%d.png", ".png", None),
        ("%d.png", "١٢.png", None),
        ("5%%_%02d.png", "5%_07.png", 7),
        ("f%dg.png", "fg.png", None),
    ],
)
def test_the_number_in_a_name(pattern: str, name: str, number: int | None) -> None:
    assert picture_number(Path(pattern), name) == number


def test_a_file_with_the_name_of_a_pattern_is_a_file(tmp_path: Path) -> None:
    path = save(tmp_path / "%03d.png", colourful())
    assert source_for(path).kind is EndpointKind.FILE
    assert source_for(path).pictures == (path,)


def test_files_are_taken_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (1, 2, 9, 10, 11, 101):
        save(tmp_path / f"f{number}.png", colourful())
    (tmp_path / ".f3.png").touch()
    (tmp_path / "notes.txt").touch()
    wanted = tuple(tmp_path / f"f{number}.png" for number in (1, 2, 9, 10, 11, 101))
    assert source_for(tmp_path).pictures == wanted
    pattern = tmp_path / "f%d.png"
    assert source_for(pattern).pictures == wanted
    assert "95 numbers" in (gaps(pattern, wanted) or "")
    assert gaps(pattern, wanted[:2]) is None
    info = probe_stills(pattern, wanted, 29.97)
    assert (info.num_frames_from_header, info.frame_rate) == (6, Fraction(30000, 1001))


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["a2_01.png", "a2_02.png", "a2_05.png"], "2 numbers between 1 and 5"),
        (["8.png", "9.png", "11.png"], "1 numbers between 8 and 11"),
        (["a2_01.png", "a2_02.png"], None),
        (["a1.png", "b5.png"], None),
        (["1.png", "5.png", "title.png"], None),
        (["title.png"], None),
    ],
)
def test_missing_numbers_of_a_folder_are_reported(
    tmp_path: Path, names: list[str], missing: str | None
) -> None:
    text = gaps(tmp_path, [tmp_path / name for name in names])
    assert text == (missing and f"{missing} have no picture: closed up")


def test_where_there_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(OpenError, match="no picture is in this folder"):
        list_pictures(tmp_path)
    with pytest.raises(OpenError, match="no picture has such a name"):
        list_pictures(tmp_path / "%d.png")


@pytest.mark.parametrize(
    ("given", "exact"),
    [(25, 25), (29.97, "30000/1001"), (23.976, "24000/1001"), (5, 5), (0.5, "1/2"), (10, 10)],
)
def test_rates_are_what_was_meant(given: float, exact: str | int) -> None:
    assert exact_rate(given) == Fraction(exact)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(output: SequenceOutput, count: int) -> None:
    for number in range(1, count + 1):
        output.part(number).write_bytes(b"%d" % number)


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    pattern = tmp_path / "out" / "%02d.png"
    with SequenceOutput(pattern) as output:
        write(output, 3)
        assert not pattern.parent.exists()
        assert not destination_for(pattern).exists()
        output.commit()
    assert names(pattern.parent) == ["01.png", "02.png", "03.png"]
    assert names(tmp_path) == ["out"]
    assert destination_for(pattern).exists()


def test_nothing_stays_without_commit(tmp_path: Path) -> None:
    with SequenceOutput(tmp_path / "out" / "%d.png") as output:
        write(output, 3)
    assert names(tmp_path) == []


def test_a_folder_with_files_is_only_written_to_where_that_is_wanted(tmp_path: Path) -> None:
    pattern = tmp_path / "%d.png"
    for name in ("1.png", "7.png", "07.png", "else.txt"):
        (tmp_path / name).write_text("old")
    with pytest.raises(OutputError, match="use --overwrite"):
        SequenceOutput(pattern)
    with SequenceOutput(pattern, overwrite=True) as output:
        write(output, 2)
        assert (tmp_path / "1.png").read_text() == "old"
        output.commit()
    assert names(tmp_path) == ["07.png", "1.png", "2.png", "else.txt"]
    assert (tmp_path / "1.png").read_text() == "1"


def test_a_folder_that_has_appeared_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with SequenceOutput(tmp_path / "out" / "%d.png") as output:
        write(output, 1)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "1.png").write_text("theirs")
        with pytest.raises(OutputError, match=r"%d\.png"):
            output.commit()
    assert (tmp_path / "out" / "1.png").read_text() == "theirs"
    assert names(tmp_path) == ["out"]


def test_no_picture_replaces_an_input(tmp_path: Path) -> None:
    path = save(tmp_path / "2.png", colourful())
    with pytest.raises(OutputError, match="would replace its input"):
        SequenceOutput(tmp_path / "%d.png", overwrite=True, inputs=[path])


@pytest.mark.parametrize("exists", [False, True])
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "out"
    if exists:
        folder.mkdir()
    killed = SequenceOutput(folder / "%d.png")
    write(killed, 2)
    beside = SequenceOutput(folder / "%d.png")
    assert killed.temporary.exists(), "it is locked"
    beside.close()
    assert killed._lock is not None
    os.close(killed._lock)  # as the system does when a process ends
    with SequenceOutput(folder / "%d.png"):
        assert not killed.temporary.exists()


def test_a_folder_that_is_taken_for_a_leftover_before_it_is_locked_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[int | None] = []

    def lock(folder: Path) -> int | None:
        if not others:  # another run is sooner
            others.append(lock_folder(folder))
        return lock_folder(folder)

    monkeypatch.setattr("bgsoft.media.sequence.lock_folder", lock)
    with SequenceOutput(tmp_path / "out" / "%d.png") as output:
        assert output._lock is not None
        (other,) = set(tmp_path.iterdir()) - {output.temporary}
        assert others[0] is not None
        os.close(others[0])
    assert list(tmp_path.iterdir()) == [other]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("kind", "told"), [(0, True), (2, True), (1, False), (None, False)])
def test_further_pages_of_a_picture_are_reported(
    tmp_path: Path, order: str, kind: int | None, told: bool
) -> None:
    """A smaller version of the same picture (NewSubfileType 1) is not a page."""

    def directory(tags: dict[int, int], then: int) -> bytes:
        entries = [struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in tags.items()]
        count, end = struct.pack(f"{order}H", len(tags)), struct.pack(f"{order}I", then)
        return count + b"".join(entries) + end

    first = directory({256: 16, 257: 12}, 0)
    if kind is not None:
        first = directory({256: 16, 257: 12}, 8 + len(first)) + directory({254: kind}, 0)
    path = tmp_path / "a.tif"
    start = b"II*\0" if order == "<" else b"MM\0*"
    path.write_bytes(start + struct.pack(f"{order}I", 8) + first)
    info = probe_stills(path, [path], None)
    assert info.notices == (("a.tif has several pages: only the first is taken",) if told else ())
    assert (info.format.width, info.format.height) == (16, 12)
