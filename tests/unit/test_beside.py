"""Files beside the video, and the folders of outputs."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bgsoft.beside import check_target, made_folders, write_whole
from bgsoft.errors import OutputError


def test_a_file_is_replaced_with_its_permissions(tmp_path: Path) -> None:
    path, link = tmp_path / "r.json", tmp_path / "link.json"
    path.write_text("before")
    path.chmod(0o600)
    link.symlink_to(path)
    write_whole(link, "report", "after ü")
    assert path.read_text(encoding="utf-8") == "after ü"
    assert path.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, path]


@pytest.mark.parametrize("before", [None, "before"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    path = tmp_path / "r.json"
    if before is not None:
        path.write_text(before)
    write = Path.write_bytes

    def fill(self: Path, data: bytes) -> int:
        write(self, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OutputError, match=r"cannot write the trace r\.json: No space left"):
        write_whole(path, "trace", "whole")
    assert [each.read_text() for each in tmp_path.iterdir()] == [before] * (before is not None)


def test_a_device_is_written_to() -> None:
    check_target(Path("/dev/null"), "report", overwrite=False)
    write_whole(Path("/dev/null"), "report", "gone")
    with pytest.raises(OutputError, match="No space left"):
        write_whole(Path("/dev/full"), "report", "gone")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_target(pipe, "report", overwrite=False)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "report", "through")
    reader.join(10)
    assert read == ["through"]


def test_folders_are_made_and_told_of(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "a" / "b" / "out.mp4"
    check_target(path, "report")
    with made_folders([path, path.with_suffix(".json")], told.append):
        path.write_text("whole")
    assert path.read_text() == "whole"
    assert told == [f"made the folder {path.parent}"]


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("leave", [lambda: None, stop])
def test_folders_that_stay_empty_are_removed(tmp_path: Path, leave: Callable[[], None]) -> None:
    (tmp_path / "a").mkdir()
    try:
        with made_folders([tmp_path / "a" / "b" / "c" / "x", tmp_path / "d" / "x"], print):
            assert (tmp_path / "a" / "b" / "c").is_dir()
            leave()
    except KeyboardInterrupt:
        pass
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "sub" / "out.mp4"
    with pytest.raises(OutputError, match="file is no folder"):
        check_target(path, "report")
    with pytest.raises(OutputError, match="cannot make the folder"), made_folders([path], print):
        pass
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with (
        pytest.raises(OutputError, match="cannot make the folder"),
        made_folders([tmp_path / "gone" / "out.mp4"], print),
    ):
        pass
