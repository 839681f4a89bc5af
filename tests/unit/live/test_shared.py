"""Frames in shared memory are complete or absent, whatever happens to writer and readers."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.errors import ConfigError, OpenError, OutputError
from bgsoft.exitcodes import ExitCode, exit_code
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.live import Reader, SharedFrame, layout
from bgsoft.live import reader as reader_module
from bgsoft.live import shared as writer_module
from bgsoft.live.shared import SharedWriter
from bgsoft.rendering.preview import frame_to_bgr
from tests.live_frames import live_frame, some_face
from tests.pictures import random_frame

_PATIENCE = 20.0


@pytest.fixture
def name() -> Iterator[str]:
    """A unique name; asserts that nothing of it is left."""
    name = f"test-{os.urandom(6).hex()}"
    yield name
    left = files(name)
    for path in left:
        path.unlink()
    assert not left


def files(name: str) -> list[Path]:
    return sorted(Path("/dev/shm").glob(f"*-{name}*"))


def read(reader: Reader) -> SharedFrame:
    assert reader.wait(_PATIENCE)
    frame = reader.copy()
    assert frame is not None
    return frame


_WRITER = """
import os, sys, time
from bgsoft.live.shared import SharedWriter
from tests.live_frames import live_frame
class Endless:
    shape = (48, 64)
    def __array__(self, *args, **kwargs):
        print("inside", flush=True)
        time.sleep(60)
with SharedWriter(sys.argv[1]) as writer:
    writer.publish(live_frame(7))
    if sys.argv[2] == "half":
        frame = live_frame(8)
        frame.frame.planes.alpha = Endless()
        writer.publish(frame)
    print("ready", flush=True)
    number, parent = 0, os.getppid()
    while sys.argv[2] == "busy" and os.getppid() == parent:
        number += 1
        writer.publish(live_frame(number % 256))
    sys.stdin.read()
"""
_READER = """
import sys
from bgsoft.live import Reader
with Reader(sys.argv[1]) as reader:
    assert reader.wait(20)
    view = reader.view()
    print(view.index, view.valid(), flush=True)
    sys.stdin.read()
    print(reader.wait(0), view.valid(), reader.view().index, flush=True)
"""


@contextmanager
def child(script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process of ours, which ends with the block whatever happens."""
    command = [sys.executable, "-W", "error", "-c", script, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("size", [(64, 48), (65, 47), (1, 1)])
@pytest.mark.parametrize("layout", PixelLayout)
def test_a_frame_is_read_as_it_was_published(
    name: str, size: tuple[int, int], layout: PixelLayout
) -> None:
    color = ColorInfo(matrix=9, full_range=True)
    format = FrameFormat(width=size[0], height=size[1], layout=layout, color=color)
    published = live_frame(3, format, faces=[some_face(5), some_face(9, landmarks=False)])
    published.frame.planes = random_frame(format, np.random.default_rng(1)).planes
    planes = published.frame.planes
    with SharedWriter(name) as writer, Reader(name) as reader:
        assert reader.copy() is None
        writer.publish(published)
        frame = read(reader)
        assert not reader.wait(0)
    assert frame.pixel_format == layout.value
    np.testing.assert_array_equal(frame.picture[0], planes.luma)
    np.testing.assert_array_equal(frame.picture[1], planes.chroma)
    np.testing.assert_array_equal(frame.alpha, planes.alpha)
    assert (frame.number, frame.index, frame.pts, frame.stale) == (1, 3, 6, False)
    assert frame.time_base == published.frame.time_base
    assert frame.captured_ns == published.captured_ns <= frame.published_ns <= time.monotonic_ns()
    assert (frame.format.width, frame.format.height, frame.format.layout) == (*size, layout)
    assert frame.format.color == color
    assert list(frame.faces["id"]) == [5, 9]
    assert list(frame.faces["has_landmarks"]) == [1, 0]
    np.testing.assert_array_equal(frame.faces["landmarks"][0], published.faces[0].landmarks)
    assert not frame.faces["landmarks"][1].any()
    assert tuple(frame.faces["box_xyxy"][0]) == (1.5, 2.5, 3.5, 9.5)


def test_what_lies_in_memory_is_what_is_documented(name: str) -> None:
    """The bytes are parsed here as another language would, without our code."""
    with SharedWriter(name) as writer:
        writer.publish(live_frame(40))
        writer.publish(live_frame(41, faces=[some_face(5)]))
        control, ring = files(name)
        data = control.read_bytes()
        assert data[:8] == b"BGSOFT-C"
        assert struct.unpack_from("<IIQQ", data, 8) == (1, os.getpid(), 1, 2)
        assert ring.name == f"{control.name}.1"
        data = ring.read_bytes()
    assert data[:8] == b"BGSOFT-R"
    assert struct.unpack_from("<I4sIIII", data, 8) == (1, b"nv12", 64, 48, 2, 0)
    slots, slot_bytes, picture, alpha, faces = struct.unpack_from("<5Q", data, 32)
    slot = data[4096 + slot_bytes * (2 % slots) :][:slot_bytes]
    assert struct.unpack_from("<Q4q", slot) == (4, 41, 82, 1, 50)
    assert slot[picture : picture + 64 * 48 * 3 // 2] == bytes([41]) * (64 * 48 * 3 // 2)
    assert slot[alpha : alpha + 64 * 48] == bytes([41]) * (64 * 48)
    assert struct.unpack_from("<qf4fI3f", slot, faces) == (5, 0.5, 1.5, 2.5, 3.5, 9.5, 1, 5, 6, 7)


def test_bgr(name: str) -> None:
    format = FrameFormat(width=64, height=48, layout=PixelLayout.P010, color=ColorInfo(matrix=1))
    published = live_frame(90, format)
    published.frame.planes.chroma[..., 1] = 150 << 8
    with SharedWriter(name, bgr=True) as writer, Reader(name) as reader:
        writer.publish(published)
        frame = read(reader)
    (picture,) = frame.picture
    planes = published.frame.planes
    expected = frame_to_bgr(planes.luma, planes.chroma, format)
    assert picture.dtype == np.uint8
    assert np.abs(picture.astype(int) - expected).max() <= 3
    assert (frame.alpha == 90).all()


def test_the_surest_faces_are_kept_where_there_are_too_many(name: str) -> None:
    faces = [some_face(number, score=number / 64, landmarks=False) for number in range(40)]
    with SharedWriter(name) as writer, Reader(name) as reader:
        writer.publish(live_frame(faces=faces))
        assert list(read(reader).faces["id"]) == list(range(39, 7, -1))


def test_files_are_the_users_own_and_go_with_the_writer(name: str) -> None:
    with SharedWriter(name) as writer, Reader(name) as reader:
        writer.publish(live_frame(1))
        view = reader.view()
        assert view is not None
        assert [path.stat().st_mode & 0o777 for path in files(name)] == [0o600, 0o600]
        assert reader.connected
        writer.close()
        assert not files(name)
        assert not reader.connected
        last = reader.copy()
    assert last is not None
    assert last.index == 1
    assert view.valid(), "what a reader looks at stays after both have gone"
    assert (view.alpha == 1).all()


def test_a_view_cannot_be_written(name: str) -> None:
    with SharedWriter(name) as writer, Reader(name) as reader:
        writer.publish(live_frame(1))
        view = reader.view()
        assert view is not None
        for array in (*view.picture, view.alpha, view.faces):
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


def test_a_view_is_valid_until_the_ring_comes_round(name: str) -> None:
    with SharedWriter(name, slots=3) as writer, Reader(name) as reader:
        writer.publish(live_frame(1))
        view, copied = reader.view(), reader.copy()
        assert view is not None
        assert copied is not None
        for number in (2, 3):
            writer.publish(live_frame(number))
            assert view.valid()
        writer.publish(live_frame(4))
        assert not view.valid()
        assert (view.alpha == 4).all()
        assert copied.valid()
        assert (copied.alpha == 1).all()


class Hooked:
    """Samples that call a function when they are read."""

    def __init__(self, samples: Any, hook: Callable[[], None]) -> None:
        self._samples, self._hook = samples, hook
        self.shape = samples.shape

    def __array__(self, *args: object, **kwargs: object) -> Any:
        self._hook()
        return self._samples


def test_a_frame_that_is_being_written_is_not_read(name: str) -> None:
    seen = []

    def look() -> None:
        frame = reader.copy()
        assert frame is not None
        seen.append((frame.index, old.valid(), int(old.picture[0][0, 0]), int(old.alpha[0, 0])))

    with SharedWriter(name, slots=2) as writer, Reader(name) as reader:
        writer.publish(live_frame(10))
        old = reader.view()
        assert old is not None
        writer.publish(live_frame(11))
        frame = live_frame(12)
        frame.frame.planes.alpha = Hooked(frame.frame.planes.alpha, look)
        writer.publish(frame)
        # During the copy, the slot has the new luma and the old matte, and is marked incomplete;
        # the newest frame is the one before.
        assert seen == [(11, False, 12, 10)]
        assert read(reader).index == 12


def test_a_copy_that_is_overwritten_is_made_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(np.ndarray[Any, Any]):
        def copy(self, order: Any = "K") -> Any:
            monkeypatch.undo()
            for number in range(2, 6):
                writer.publish(live_frame(number))
            return np.array(self)

    newest = reader_module._Link.newest

    def slowed(link: Any) -> Any:
        frame = newest(link)
        assert frame is not None
        object.__setattr__(frame, "alpha", frame.alpha.view(Slow))
        return frame

    monkeypatch.setattr(reader_module._Link, "newest", slowed)
    with SharedWriter(name) as writer, Reader(name) as reader:
        writer.publish(live_frame(1))
        frame = reader.copy()
        assert frame is not None
        assert (frame.index, reader.torn) == (5, 1)
        assert (frame.picture[0] == 5).all()
        assert (frame.alpha == 5).all()


def test_no_copy_is_torn_next_to_a_writer_that_does_not_rest(name: str) -> None:
    numbers = []
    with child(_WRITER, name, "busy") as process, Reader(name) as reader:
        assert line(process) == "ready"
        for _ in range(300):
            frame = read(reader)
            numbers.append(frame.number)
            value = frame.index
            assert frame.pts == 2 * value
            for samples in (*frame.picture, frame.alpha):
                assert (samples == value).all()
        process.kill()
        process.wait()
    assert numbers == sorted(set(numbers))
    SharedWriter(name).close()


def test_readers_follow_to_another_size(name: str) -> None:
    large = FrameFormat(width=128, height=96)
    with SharedWriter(name) as writer, Reader(name) as reader:
        writer.publish(live_frame(1))
        old = reader.view()
        assert old is not None
        writer.publish(live_frame(2, large))
        frame = read(reader)
        assert (frame.index, frame.number, frame.alpha.shape) == (2, 2, (96, 128))
        assert [path.suffix for path in files(name)] == ["", ".2"]
        for number in range(8):
            writer.publish(live_frame(number, large))
        assert old.valid(), "the ring it lies in is no longer written"
        assert (old.alpha == 1).all()


def test_a_second_writer_is_refused(name: str) -> None:
    with child(_WRITER, name, "idle") as process, Reader(name) as reader:
        assert line(process) == "ready"
        for attempt in range(2):
            with pytest.raises(OutputError) as caught:
                SharedWriter(name)
            refused = f"cannot share frames as {name}: process {process.pid} uses this name"
            assert str(caught.value) == refused, attempt
        assert exit_code(caught.value) == ExitCode.OUTPUT
        assert read(reader).index == 7, "the first one is not disturbed"
        _, errors = process.communicate(timeout=_PATIENCE)
        assert (process.returncode, errors) == (0, "")
    own = f"process {os.getpid()} uses this name"
    with SharedWriter(name), pytest.raises(OutputError, match=own):
        SharedWriter(name)


def test_a_killed_writer_leaves_nothing_that_the_next_start_does_not_clean(name: str) -> None:
    with child(_WRITER, name, "half") as process, Reader(name) as reader:
        assert line(process) == "inside"
        assert read(reader).index == 7
        assert reader.connected
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not reader.connected
        left = reader.copy()
        assert left is not None
        assert left.index == 7, "the frame that was half written is not the newest"
        assert len(files(name)) == 2
        with SharedWriter(f"other-{os.urandom(6).hex()}"):
            assert not files(name), "whatever the next one's name is"
        with SharedWriter(name) as writer:
            writer.publish(live_frame(9))
            assert read(reader).index == 9, "and the reader takes the successor"


def test_a_killed_writers_name_is_free_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it dies just after another process has looked for leftovers."""
    monkeypatch.setattr(writer_module, "_remove_leftovers", lambda: None)
    with child(_WRITER, name, "idle") as process:
        assert line(process) == "ready"
        process.kill()
        process.wait()
    with SharedWriter(name), Reader(name) as reader:
        assert len(files(name)) == 1
        assert reader.view() is None


@pytest.mark.parametrize("killed", [True, False])
def test_readers_come_and_go(name: str, killed: bool) -> None:
    with SharedWriter(name) as writer, child(_READER, name) as process:
        writer.publish(live_frame(1))
        assert line(process) == "1 True"
        if killed:
            process.kill()
            process.wait()
        for number in range(2, 10):
            writer.publish(live_frame(number))
        if not killed:
            out, errors = process.communicate(timeout=_PATIENCE)
            assert (out.strip(), errors, process.returncode) == ("True False 9", "", 0)
        with Reader(name) as reader:
            assert read(reader).index == 9


def test_a_reader_may_come_first_and_waits_no_longer_than_allowed(name: str) -> None:
    with Reader(name) as reader:
        assert not reader.wait(0.01)
        assert reader.view() is None
        assert not reader.connected
        with SharedWriter(name) as writer:
            assert not reader.wait(0.01)
            assert reader.connected
            writer.publish(live_frame(1))
            assert read(reader).index == 1
            assert not reader.wait(0.01)
        with SharedWriter(name) as writer:
            writer.publish(live_frame(2))
            assert read(reader).index == 2, "of the next writer, whose numbers begin anew"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("ends", [True, False])
def test_a_reader_is_woken(name: str, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame and the writer's end wake it; it does not poll."""
    sleeps = threading.Event()
    wait_for_change = reader_module.wait_for_change

    def wait(word: Any, value: int, _seconds: float) -> None:
        sleeps.set()
        wait_for_change(word, value, 60.0)
        monkeypatch.undo()

    monkeypatch.setattr(reader_module, "wait_for_change", wait)
    found = []
    with SharedWriter(name) as writer, Reader(name) as reader:
        thread = threading.Thread(target=lambda: found.append(reader.wait(None if ends else 60)))
        thread.start()
        assert sleeps.wait(_PATIENCE)
        time.sleep(0.02)
        if ends:
            writer.close()
            with SharedWriter(name) as successor:
                successor.publish(live_frame(1))
                thread.join()
        else:
            writer.publish(live_frame(1))
            thread.join()
    assert found == [True]


@pytest.mark.parametrize("bad", ["", "a/b", "../x", ".", "a.1", "a b", "ü", "x" * 65, "a\n"])
def test_names_are_checked(bad: str) -> None:
    for kind in (SharedWriter, Reader):
        with pytest.raises(ConfigError, match="1 to 64 letters"):
            kind(bad)


def test_memory_that_is_not_there_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = os.posix_fallocate

    def full(fd: int, offset: int, size: int) -> None:
        if size > 4096:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with SharedWriter(name) as writer:
        with pytest.raises(OutputError, match="MB of /dev/shm: No space left"):
            writer.publish(live_frame(1))
        assert len(files(name)) == 1


def test_a_name_is_free_again_where_there_is_no_memory_for_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OutputError, match="No space left"):
        patch.setattr(os, "posix_fallocate", full)
        SharedWriter(name)
    assert not files(name)
    SharedWriter(name).close()


def test_what_belongs_to_others_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SharedWriter(name):
        monkeypatch.setattr(layout, "is_own", lambda _fd: False)
        monkeypatch.setattr(writer_module, "is_own", lambda _fd: False)
        with pytest.raises(OpenError, match="belongs to another user"):
            Reader(name).wait(1)
        with pytest.raises(OutputError, match="another user uses this name"):
            SharedWriter(name)
        assert len(files(name)) == 1


def test_another_versions_frames_are_an_error(name: str) -> None:
    with SharedWriter(name) as writer:
        writer.publish(live_frame(1))
        control = files(name)[0]
        with control.open("r+b") as file:
            file.seek(8)
            file.write(struct.pack("<I", 9))
        descriptors = sorted(Path("/proc/self/fd").iterdir())
        for _ in range(2):
            with pytest.raises(OpenError, match="layout 9, not 1"):
                Reader(name).wait(1)
        assert sorted(Path("/proc/self/fd").iterdir()) == descriptors
