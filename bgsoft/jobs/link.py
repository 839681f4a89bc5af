"""Files of the machine that gives out the work, for a task on another one.

The task asks and the executor answers, for one piece of a file at a time: neither side holds a
whole video, and no more than a piece for each worker is on its way.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bgsoft.closing import Closing
from bgsoft.errors import BgsoftError, OpenError, WorkerDiedError
from bgsoft.outputs import AtomicOutput, write_error

_PIECE_BYTES = 16 * 2**20
"""As large as makes the way there and back not count. Ray's store for pieces may be as small as
75 MiB; what does not fit into it waits, or goes to a disk."""
_PREFIX = "bgsoft-carried-"


@dataclass(frozen=True, slots=True)
class Look:
    """Asks for what is :class:`Found` of a file."""

    path: Path


class Found(NamedTuple):
    """A file at home."""

    path: Path
    """Absolute."""
    target: Path
    """With symbolic links followed."""
    size_bytes: int
    """-1: it is missing."""
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Read:
    """Asks for the piece of a file that begins at ``offset``."""

    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class Write:
    """Adds a piece to an output, which appears when the task has succeeded."""

    path: Path
    overwrite: bool
    piece: bytes


Request = Look | Read | Write


class Link:
    """A task's way to the files at home.

    Args:
        ask: Returns the answer to a request, or raises the error that it has led to.
        tell: As :attr:`bgsoft.jobs.task.TaskContext.tell`.
        folder: The folder for outputs, where this machine sees that of home and may write to it.
    """

    def __init__(
        self, ask: Callable[[Request], Any], tell: Callable[[object], None], folder: Path | None
    ) -> None:
        self._ask = ask
        self._tell = tell
        self._folder = folder

    def seen(self, path: Path) -> Path | None:
        """Where this machine sees an input of home: under the same path, as large and as old."""
        found: Found = self._ask(Look(path))
        with suppress(OSError):
            here = found.path.stat()
            if (here.st_size, here.st_mtime_ns) == (found.size_bytes, found.mtime_ns):
                return found.path
        return None

    def seen_output(self, path: Path) -> Path | None:
        """Where an output can be written so that it is at home at once."""
        found: Found = self._ask(Look(path))
        is_there = self._folder is not None and found.target.is_relative_to(self._folder)
        return found.target if is_there else None

    def fetch(self, path: Path, here: Path) -> None:
        """Copy a file from home.

        Raises:
            OpenError: It cannot be read, or changes meanwhile.
            OutputError: The copy cannot be written.
        """
        found: Found = self._ask(Look(path))
        done = 0
        with here.open("wb") as file:
            while piece := self._ask(Read(path, done)):
                try:
                    file.write(piece)
                except OSError as exc:
                    raise write_error(exc, here) from exc
                done += len(piece)
                self._tell(f"{done} of {found.size_bytes} bytes of {path} fetched")
        if done != found.size_bytes:
            raise OpenError(f"{path} changed while it was read", path=path)

    def deliver(self, here: Path, path: Path, *, overwrite: bool) -> None:
        """Copy a file home; it appears there when the task has succeeded.

        Raises:
            OutputError: It cannot be written.
        """
        done = 0
        with here.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                self._ask(Write(path, overwrite, piece))
                done += len(piece)
                self._tell(f"{done} bytes of {path} delivered")


class Home(Closing):
    """Answers one task, and keeps what it delivers until that is whole."""

    def __init__(self) -> None:
        self._files = ExitStack()
        self._outputs: dict[Path, AtomicOutput] = {}

    def answer(self, request: Request) -> object:
        """The answer; an error for the task to raise is one, too."""
        try:
            if isinstance(request, Look):
                return _look(request.path)
            if isinstance(request, Read):
                return _read(request)
            self._write(request)
        except BgsoftError as exc:
            return exc
        return None

    def _write(self, request: Write) -> None:
        path = request.path
        if path not in self._outputs:
            output = AtomicOutput(path, overwrite=request.overwrite)
            self._outputs[path] = self._files.enter_context(output)
        try:
            with self._outputs[path].temporary.open("ab") as file:
                file.write(request.piece)
        except OSError as exc:
            raise write_error(exc, path) from exc

    def commit(self) -> None:
        """Give the outputs their names.

        Raises:
            OutputError: That fails.
        """
        for output in self._outputs.values():
            output.commit()

    def close(self) -> None:
        """Remove what is not committed."""
        self._files.close()


def _look(path: Path) -> Found:
    size_bytes, mtime_ns = -1, 0
    with suppress(OSError):
        found = path.stat()
        size_bytes, mtime_ns = found.st_size, found.st_mtime_ns
    return Found(path.absolute(), path.resolve(), size_bytes, mtime_ns)


def _read(request: Read) -> bytes:
    path = request.path
    try:
        with path.open("rb") as file:
            file.seek(request.offset)
            return file.read(_PIECE_BYTES)
    except OSError as exc:
        raise OpenError(f"cannot read {path}: {exc.strerror}", path=path) from exc


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of this machine that is locked while it is used, and removed after that.

    Raises:
        WorkerDiedError: There is no room for it: another machine may have some.
    """
    with ExitStack() as stack:
        try:
            # Locked before it has a name by which it might be taken for an abandoned one.
            unlocked = Path(tempfile.mkdtemp(prefix="bgsoft-"))
            descriptor = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            folder = unlocked.rename(unlocked.with_name(_PREFIX + unlocked.name))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        except OSError as exc:
            raise WorkerDiedError(f"no folder for copies of files: {exc.strerror}") from exc
        yield folder


def remove_abandoned() -> None:
    """Remove the private folders of processes that were killed: their lock is free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
