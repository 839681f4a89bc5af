"""Files from home and back, without a cluster between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bgsoft.errors import BgsoftError, OpenError, OutputError
from bgsoft.jobs import link as module
from bgsoft.jobs.link import Home, Link, Request, private_folder, remove_abandoned

DATA = bytes(range(256)) * 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 1000)


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        yield home


def link_to(home: Home, folder: Path | None = None) -> Link:
    def ask(request: Request) -> object:
        answer = home.answer(request)
        if isinstance(answer, BgsoftError):
            raise answer
        return answer

    return Link(ask, lambda _message: None, folder)


def test_an_input_is_seen_where_it_is_the_same(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(DATA)
    link = link_to(home)
    assert link.seen(path) == path
    found = home.answer(module.Look(path))
    for change in ({"size_bytes": 1}, {"mtime_ns": 1}, {"path": tmp_path / "other"}):
        other = Link(lambda _request, c=change: found._replace(**c), print, None)  # type: ignore
        assert other.seen(path) is None
    assert link.seen(tmp_path / "missing") is None


def test_an_output_is_seen_beneath_the_folder(home: Home, tmp_path: Path) -> None:
    inside, outside = tmp_path / "out", tmp_path / "elsewhere"
    inside.mkdir()
    (inside / "link.mp4").symlink_to(outside / "a.mp4")
    link = link_to(home, inside)
    assert link.seen_output(inside / "tree/a.mp4") == inside / "tree/a.mp4"
    assert link.seen_output(outside / "a.mp4") is None
    assert link.seen_output(inside / "../a.mp4") is None
    assert link.seen_output(inside / "link.mp4") is None
    assert link_to(home).seen_output(inside / "a.mp4") is None


def test_a_file_is_fetched_in_pieces(home: Home, tmp_path: Path) -> None:
    path, copy = tmp_path / "in", tmp_path / "copy"
    path.write_bytes(DATA)
    link_to(home).fetch(path, copy)
    assert copy.read_bytes() == DATA


def test_a_file_that_shrinks_or_is_missing_is_not_fetched(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "in", tmp_path / "copy"
    with pytest.raises(OpenError, match=r"cannot read .*in: No such file"):
        link_to(home).fetch(path, copy)
    path.write_bytes(DATA)
    read = module._read

    def shrinking(request: module.Read) -> bytes:
        os.truncate(path, 1500)
        return read(request)

    monkeypatch.setattr(module, "_read", shrinking)
    with pytest.raises(OpenError, match="changed while it was read"):
        link_to(home).fetch(path, copy)


def test_outputs_appear_when_all_are_whole(tmp_path: Path) -> None:
    made, out = tmp_path / "made", tmp_path / "out"
    made.write_bytes(DATA)
    out.mkdir()
    for is_lost in (True, False):
        with Home() as home:
            for name in "ab":
                link_to(home).deliver(made, out / name, overwrite=False)
            assert not {"a", "b"} & {path.name for path in out.iterdir()}
            if not is_lost:
                home.commit()
        assert {path.name for path in out.iterdir()} == (set() if is_lost else {"a", "b"})
    assert (out / "a").read_bytes() == (out / "b").read_bytes() == DATA


def test_what_exists_is_replaced_only_where_wanted(tmp_path: Path) -> None:
    made, out = tmp_path / "made", tmp_path / "out"
    made.write_bytes(DATA)
    out.write_bytes(b"before")
    with Home() as home, pytest.raises(OutputError, match="exists; use --overwrite"):
        link_to(home).deliver(made, out, overwrite=False)
    assert out.read_bytes() == b"before"
    with Home() as home:
        link_to(home).deliver(made, out, overwrite=True)
        home.commit()
    assert out.read_bytes() == DATA
    assert len(list(tmp_path.iterdir())) == 2


def test_private_folders_of_the_dead_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_folder() as folder:
        (folder / "a").write_bytes(DATA)
        left = folder.with_name(folder.name + "left")
        left.mkdir()
        (left / "a").write_bytes(DATA)
        remove_abandoned()
        assert list(tmp_path.iterdir()) == [folder]
        assert (folder / "a").exists()
    assert list(tmp_path.iterdir()) == []
