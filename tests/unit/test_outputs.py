"""Written files: complete, never lost, and nothing temporary is left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bgsoft.batch.find import find
from bgsoft.chunks.folder import WorkFolder
from bgsoft.errors import OutputError, UnsupportedFormatError
from bgsoft.media.containers import CONTAINERS, container_for
from bgsoft.media.sequence import SequenceOutput
from bgsoft.outputs import (
    AtomicOutput,
    check_target,
    made_folders,
    read_receipt,
    write_error,
    write_whole,
)
from bgsoft.rendering.outcome import commit
from bgsoft.settings.formats import OutputFormat
from tests.permissions import closed


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_commit_gives_the_file_its_name_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    with AtomicOutput(target) as output:
        assert output.temporary.parent == tmp_path
        assert output.temporary.name.startswith(".out.mp4.")
        assert output.temporary.suffix == ".mp4"
        output.temporary.write_bytes(b"video")
        assert not target.exists()
        output.commit()
    assert target.read_bytes() == b"video"
    assert names(tmp_path) == ["out.mp4"]


@pytest.mark.parametrize("name", [b"b\xff.mp4", "ü.mp4".encode(), b"\xff" * 250 + b".mp4"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_name_is_bytes(tmp_path: Path, name: bytes, locale: str) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from bgsoft.outputs import AtomicOutput\n"
        "with AtomicOutput(Path(os.fsdecode(sys.argv[1]))) as output:\n"
        "    output.temporary.write_bytes(b'video')\n"
        "    output.commit()\n"
    )
    target = os.fsencode(tmp_path) + b"/" + name
    # Python keeps the C locale only with these variables.
    environment = os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", script, target]
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [name]


def test_leaving_without_commit_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError), AtomicOutput(target, overwrite=True) as output:
        output.temporary.write_bytes(b"new")
        raise RuntimeError("the render failed")
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["out.mp4"]


def test_overwrite_replaces_and_keeps_the_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"old")
    target.chmod(0o640)
    with AtomicOutput(target, overwrite=True) as output:
        output.temporary.write_bytes(b"new")
        output.commit()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_an_existing_file_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"old")
    with pytest.raises(OutputError, match="exists; use --overwrite"):
        AtomicOutput(target)
    assert names(tmp_path) == ["out.mp4"]


def refuse_links(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def no_links(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_links)


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_file_that_appears_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    if not hard_links:
        refuse_links(monkeypatch, errno.EPERM)
    target = tmp_path / "out.mp4"
    with AtomicOutput(target) as output:
        output.temporary.write_bytes(b"ours")
        target.write_bytes(b"theirs")
        with pytest.raises(OutputError, match="appeared during the render"):
            output.commit()
    assert target.read_bytes() == b"theirs"
    assert names(tmp_path) == ["out.mp4"]


def test_commit_works_where_hard_links_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.ENOTSUP)
    target = tmp_path / "out.mp4"
    with AtomicOutput(target) as output:
        output.temporary.write_bytes(b"video")
        output.commit()
    assert target.read_bytes() == b"video"
    assert names(tmp_path) == ["out.mp4"]


def test_no_empty_file_is_left_where_a_file_cannot_take_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(_path: Path, _name: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    refuse_links(monkeypatch, errno.EPERM)
    monkeypatch.setattr(Path, "replace", replace)
    with AtomicOutput(tmp_path / "out.mp4") as output:
        output.temporary.write_bytes(b"video")
        with pytest.raises(OutputError, match="input/output error"):
            output.commit()
    assert names(tmp_path) == []


def test_a_loop_of_links_among_what_must_not_be_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "loop.mp4"
    loop.symlink_to(loop.name)
    check_target(tmp_path / "report.json", "report", others=[loop])


def test_of_two_files_none_appears_alone(tmp_path: Path) -> None:
    one, other = tmp_path / "one.mkv", tmp_path / "other.mkv"
    with AtomicOutput(one) as first, AtomicOutput(other) as second:
        other.write_bytes(b"theirs")
        with pytest.raises(OutputError, match=r"other\.mkv: it has appeared during"):
            commit([first, second])
    assert names(tmp_path) == ["other.mkv"]


def test_a_folder_that_another_run_has_removed_is_made_again(tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "out.mp4"
    with made_folders([target], lambda _text: None):
        target.parent.rmdir()
        with AtomicOutput(target) as output:
            output.temporary.write_bytes(b"video")
            output.commit()
    assert target.read_bytes() == b"video"


def test_a_folder_that_takes_no_files_is_an_error() -> None:
    with pytest.raises(OutputError, match=r"cannot write out\.mp4: No such file or directory"):
        AtomicOutput(Path("/proc/out.mp4"))


def test_a_folder_that_cannot_be_made_is_an_error() -> None:
    with pytest.raises(OutputError, match="cannot write"):
        AtomicOutput(Path("/proc/nowhere/out.mp4"))


def test_a_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(OutputError, match="permission denied"):
        AtomicOutput(tmp_path / "out.mp4")


@pytest.mark.parametrize("name", ["out.mp4", "new/out.mp4"])
def test_a_closed_folder_is_an_output_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "closed" / name
    (tmp_path / "closed").mkdir()
    with closed(tmp_path / "closed"):
        for write in (AtomicOutput, WorkFolder, lambda path: check_target(path, "report")):
            with pytest.raises(OutputError, match=r"^cannot write .*out\.mp4: Permission denied"):
                write(path)
        with pytest.raises(OutputError, match=r"^cannot write .*: Permission denied"):
            SequenceOutput(path.with_name("%05d.png"))


def test_target_must_be_a_regular_file(tmp_path: Path) -> None:
    folder = tmp_path / "out.mp4"
    folder.mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        AtomicOutput(folder, overwrite=True)
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="not a regular file"):
        AtomicOutput(pipe, overwrite=True)


@pytest.mark.parametrize("link", ["same", "hard", "symbolic"])
def test_the_input_is_never_overwritten(tmp_path: Path, link: str) -> None:
    source = tmp_path / "in.mp4"
    source.write_bytes(b"precious")
    target = source
    if link != "same":
        target = tmp_path / "out.mp4"
        (target.hardlink_to if link == "hard" else target.symlink_to)(source)
    with pytest.raises(OutputError, match="is the same file as"):
        AtomicOutput(target, overwrite=True, inputs=[source])
    assert source.read_bytes() == b"precious"


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    real = tmp_path / "disk" / "real.mp4"
    real.write_bytes(b"old")
    link = tmp_path / "link.mp4"
    link.symlink_to(real)
    with AtomicOutput(link, overwrite=True) as output:
        output.temporary.write_bytes(b"new")
        output.commit()
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_loop_of_links_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").symlink_to(tmp_path / "b.mp4")
    (tmp_path / "b.mp4").symlink_to(tmp_path / "a.mp4")
    with pytest.raises(OutputError):
        AtomicOutput(tmp_path / "a.mp4", overwrite=True)


def test_a_folder_that_is_a_loop_of_links_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match=r"output .*loop"):
        WorkFolder(tmp_path / "loop/out.mp4")
    with pytest.raises(OutputError, match=r"output folder .*loop"):
        list(find([str(tmp_path)], leave_out=tmp_path / "loop"))


@pytest.mark.parametrize("name", ["out", "out.txt", "out.mp4.bak", "out.jp2"])
def test_unknown_extensions_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"\.mp4"):
        container_for(tmp_path / name)


def test_extensions_are_known_in_any_case() -> None:
    assert container_for(Path("A.MP4")).muxer == "mp4"
    for is_still in (False, True):  # a picture and an animation may have the same
        of_kind = [each for each in CONTAINERS if (each.still is not None) is is_still]
        extensions = [ext for container in of_kind for ext in container.extensions]
        assert len(extensions) == len(set(extensions))
    assert container_for(Path("a.webp")).still is not None
    assert container_for(Path("a.webp"), OutputFormat.WEBP).still is None


def test_a_name_of_the_greatest_length_has_room_for_the_mark(tmp_path: Path) -> None:
    target = tmp_path / ("ü" * 125 + ".mp4")
    with AtomicOutput(target) as output:
        output.temporary.write_bytes(b"video")
        output.commit()
    assert target.read_bytes() == b"video"


_KILLED = """
import sys, time
from pathlib import Path
from bgsoft.outputs import AtomicOutput
output = AtomicOutput(Path(sys.argv[1]))
output.temporary.write_bytes(b"half")
print("ready", flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_run(tmp_path: Path) -> None:
    target, other = tmp_path / "out.mp4", tmp_path / "other.mp4"
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(target)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            (left,) = names(tmp_path)
            # While it runs, neither its own target's next run nor another's touches its file.
            with AtomicOutput(target), AtomicOutput(other):
                assert left in names(tmp_path)
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
    assert names(tmp_path) == [left]
    with AtomicOutput(other):
        assert left in names(tmp_path), "it belongs to another target"
    with AtomicOutput(target) as output:
        assert left not in names(tmp_path)
        output.temporary.write_bytes(b"whole")
        output.commit()
    assert names(tmp_path) == ["out.mp4"]


def test_files_that_only_look_like_ours_are_kept(tmp_path: Path) -> None:
    lookalikes = [".out.mp4.part.mp4", ".out.mp4.0123456789.part.mp4", ".out.mp4.notes"]
    for name in lookalikes:
        (tmp_path / name).write_bytes(b"mine")
    with AtomicOutput(tmp_path / "out.mp4"):
        pass
    assert names(tmp_path) == sorted(lookalikes)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk full"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "input/output error"),
        (errno.EINVAL, "Invalid argument"),
    ],
)
def test_write_errors_say_what_is_wrong(code: int, words: str) -> None:
    error = write_error(OSError(code, os.strerror(code)), Path("folder/out.mp4"))
    assert isinstance(error, OutputError)
    assert words in str(error)
    assert "out.mp4" in str(error)


def test_write_errors_need_no_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    gone = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    assert "No such file or directory" in str(write_error(gone, Path("stdout")))
    assert "disk full" in str(write_error(OSError(errno.ENOSPC, ""), Path("stdout")))


def test_commit_reports_a_full_disk_and_removes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with AtomicOutput(tmp_path / "out.mp4") as output:
        output.temporary.write_bytes(b"video")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="disk full"):
            output.commit()
        assert names(tmp_path) == []
        with pytest.raises(ValueError, match="closed"):
            output.commit()


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
    with pytest.raises(OutputError, match=r"cannot write the trace r\.json: disk full"):
        write_whole(path, "trace", "whole")
    assert [each.read_text() for each in tmp_path.iterdir()] == [before] * (before is not None)


def test_a_device_is_written_to() -> None:
    check_target(Path("/dev/null"), "report", overwrite=False)
    write_whole(Path("/dev/null"), "report", "gone")
    with pytest.raises(OutputError, match="disk full"):
        write_whole(Path("/dev/full"), "report", "gone")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_target(pipe, "report", overwrite=False)
    with pytest.raises(OutputError, match="cannot write the report pipe: nothing reads this pipe"):
        write_whole(pipe, "report", "lost")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "report", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)


def test_folders_are_made_and_reported(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "a" / "b" / "out.mp4"
    check_target(path, "report")
    with made_folders([path, path.with_suffix(".json")], told.append):
        path.write_text("whole")
    assert path.read_text() == "whole"
    assert told == [f"created folder {path.parent}"]


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
    with pytest.raises(OutputError, match="file is not a folder"):
        check_target(path, "report")
    with pytest.raises(OutputError, match="cannot create folder"), made_folders([path], print):
        pass
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with (
        pytest.raises(OutputError, match="cannot create folder"),
        made_folders([tmp_path / "gone" / "out.mp4"], print),
    ):
        pass


def test_a_receipt_tells_ones_own_file(tmp_path: Path) -> None:
    """It is recorded before the file appears; a replacement by somebody else differs."""
    target, receipt = tmp_path / "sub" / "out.mp4", tmp_path / "made"
    target.parent.mkdir()
    with AtomicOutput(target, receipt=receipt) as output:
        output.temporary.write_bytes(b"whole")
        assert read_receipt(receipt) == {}
        output.commit()
    assert read_receipt(receipt) == {"sub/out.mp4": True}
    target.write_bytes(b"somebody else's")
    assert read_receipt(receipt) == {"sub/out.mp4": False}
    whole = receipt.read_bytes()
    for more in (b'{"name": "cut o', b"[]", b"3", b"{}", b'{"name": 3}', b"[" * 10**5):
        receipt.write_bytes(whole + more)
        assert read_receipt(receipt) == {"sub/out.mp4": False}


@pytest.mark.parametrize("overwrite", [False, True])
def test_with_a_receipt_nothing_that_came_meanwhile_is_replaced(
    tmp_path: Path, overwrite: bool
) -> None:
    target, receipt = tmp_path / "out.mp4", tmp_path / "made"
    if overwrite:
        target.write_bytes(b"own")
    words = "been changed" if overwrite else "appeared"
    with AtomicOutput(target, overwrite=overwrite, receipt=receipt) as output:
        output.temporary.write_bytes(b"whole")
        target.write_bytes(b"somebody else's")
        with pytest.raises(OutputError, match=f"it has {words} during the render"):
            output.commit()
    assert target.read_bytes() == b"somebody else's"
    assert read_receipt(receipt) == {"out.mp4": False}
