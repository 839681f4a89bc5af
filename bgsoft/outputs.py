"""Output files: checked before the work starts, and renamed into place when complete.

Data goes to a hidden file in the same folder first. A video's file is locked (``flock``) by its
owner: a later run recognises the leftover of a killed process by the free lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from bgsoft.closing import Closing
from bgsoft.errors import DiskFullError, OutputError, errors_as, os_errors_as, translated
from bgsoft.part_names import TOKEN_CHARS, hidden_parts, hidden_path, partial_path, with_token
from bgsoft.suggestions import network_address
from bgsoft.untrusted import parse_json

_REASONS: dict[int | None, str] = {
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk quota used up",
    errno.EFBIG: "file larger than the file system or a limit of this process allows",
    errno.EIO: "the disk reports an input/output error",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EPIPE: "its reader has closed it",
    errno.ENXIO: "nothing reads this pipe",
}
_MAX_TRIES = 100
"""Attempts to create a folder for a file before an error is raised."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_error(exc: BaseException, path: Path, what: str | None = None) -> OutputError:
    """Return the error for a failed write.

    Args:
        exc: An OSError, or PyAV's error, which carries an ``errno`` too.
        path: The file the user asked for.
        what: Name of the file's kind; None: the video.
    """
    number = getattr(exc, "errno", None)
    reason = _REASONS.get(number) or getattr(exc, "strerror", None) or exc
    if number == errno.ENOENT:
        with suppress(OSError):  # of the current folder, if that is gone
            folder = real_path(path).parent
            reason = reason if _is_folder(folder) else f"the folder {folder} is gone"
    kind = DiskFullError if number in _FULL else OutputError
    if what is None:
        return kind(f"cannot write {path.name}: {reason}", path=path, stage="encode")
    return kind(f"cannot write the {what} {path.name}: {reason}", path=path)


DASH = Path("-")
"""Stands for stdout as the path of a report, a result or a video, and for stdin as IN."""


def writing(
    path: Path, what: str | None = None, *vendor_errors: type[Exception]
) -> AbstractContextManager[None]:
    """Turn errors of the system, and of a library, into :func:`write_error`."""
    return translated(OSError, *vendor_errors, to=lambda exc: write_error(exc, path, what))


def check_target(
    path: Path, what: str, *, overwrite: bool = True, others: Iterable[Path] = ()
) -> None:
    """Check before the work that a file can be written.

    Missing folders are allowed: :func:`made_folders` creates them.

    Args:
        path: The file; a device, a pipe or :data:`DASH` is allowed.
        what: Name of the file's kind.
        overwrite: Whether it may exist.
        others: Files that it must differ from.

    Raises:
        OutputError: It cannot be written, exists, or is one of the others.
    """
    if path != DASH:
        _check(path, f"the {what}", others, overwrite=overwrite, folder=f"the folder of the {what}")


def _check(path: Path, what: str, others: Iterable[Path], *, overwrite: bool, folder: str) -> Path:
    """Return the file to write, with symbolic links followed."""
    title = f"{what} {path}"
    target = check_distinct(path, what, others)
    if target.is_dir():
        raise OutputError(f"cannot write {title}: it is a folder", path=path)
    if target.is_file() and not overwrite:
        raise OutputError(
            f"cannot write {title}: it exists; use --overwrite to replace it", path=path
        )
    existing = next(parent for parent in target.parents if os.path.lexists(parent))
    if not existing.is_dir():
        raise OutputError(
            f"cannot use {folder} {target.parent}: {existing} is not a folder", path=path
        )
    if not _is_regular(target):
        if not os.access(target, os.W_OK):
            raise OutputError(f"cannot write {title}: permission denied", path=path)
    elif not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write to {folder} {existing}: permission denied", path=path)
    return target


def check_distinct(path: Path, what: str, others: Iterable[Path]) -> Path:
    """Return the file to write, with symbolic links followed.

    Raises:
        OutputError: It is one of the others, under any name, or an address.
    """
    _refuse_address(path)
    target = resolved(path, what)
    exists = target.exists()
    for other in others:
        if _is_same(target, other) if exists else target == real_path(other):
            text = f"cannot write {what} {path}: it is the same file as {other}; name another"
            raise OutputError(text, path=path)
    return target


def resolved(path: Path, what: str = "output") -> Path:
    """Resolve symbolic links; raises OutputError if they lead nowhere, or may not be followed."""
    # RuntimeError: a loop of links, before Python 3.13
    theirs = (OSError, RuntimeError)
    with errors_as(theirs, OutputError, f"cannot write {what} {path}", path=path):
        target = path.resolve()
        # Python accepts what the system refuses: closed folders, long names, later also loops.
        with suppress(FileNotFoundError, NotADirectoryError):
            target.stat()
    return target


def real_path(path: Path) -> Path:
    """Resolve symbolic links as far as possible."""
    return Path(os.path.realpath(path))


def _is_same(target: Path, other: Path) -> bool:
    with suppress(OSError):
        return target.samefile(other)
    return False


def _is_regular(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _is_folder(path: Path) -> bool:
    """Return whether a folder exists; False for a name that is too long."""
    return os.path.isdir(path)  # noqa: PTH112 - that raises


def _refuse_address(path: Path) -> None:
    address = network_address(path)
    if address is not None:
        raise OutputError(f"cannot write {address}: it is an address; name a local file", path=path)


def missing_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the missing folders of files, the innermost first."""
    places = [place for path in paths for place in path.absolute().parents]
    missing = {place for place in places if not _is_folder(place)}
    return sorted(missing, key=lambda place: len(place.parts), reverse=True)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that are empty."""
    for folder in folders:
        with suppress(OSError):  # it is in use, or was not created
            folder.rmdir()


@contextmanager
def made_folders(paths: Iterable[Path], on_notice: Callable[[str], None]) -> Iterator[None]:
    """Create missing folders of output files; remove those that stay empty.

    Raises:
        OutputError: A folder cannot be created.
    """
    made: list[Path] = []
    try:
        for path in paths:
            _refuse_address(path)
            folder = path.absolute().parent
            missing = missing_folders([path])
            if not missing:
                continue
            with os_errors_as(OutputError, f"cannot create folder {path.parent}", path=path):
                folder.mkdir(parents=True, exist_ok=True)
            made = missing + made
            on_notice(f"created folder {path.parent}")
        yield
    finally:
        remove_empty(made)


def stamp(path: Path | int) -> str:
    """Return size and modification time of a file, ``bytes:nanoseconds``; empty if there is none.

    For an open descriptor it is always current; network shares may cache a path's for a moment. It
    has no inode, because network shares and FAT renumber theirs.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - or a descriptor
    except OSError:
        return ""
    return f"{found.st_size}:{found.st_mtime_ns}"


def note_receipt(receipt: Path, target: Path, part: Path) -> None:
    """Note, on the disk, that a complete file is about to be renamed to its name.

    After a crash this tells our own file from another's.

    Args:
        receipt: The list, created if missing; names are relative to its folder.
        target: The name.
        part: The complete file.
    """
    name = os.path.relpath(target, receipt.parent)
    line = json.dumps({"name": name, "stamp": stamp(part)}).encode() + b"\n"
    with _opened(receipt, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
        os.write(fd, line)
        os.fsync(fd)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file or folder during a ``with`` block; yields its descriptor."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def read_receipt(receipt: Path) -> dict[str, bool]:
    """Return the names in a receipt, and whether each file is still the noted one."""
    noted = {}
    # It is missing, damaged, or its last line was truncated by a crash.
    with suppress(OSError, ValueError, KeyError, TypeError):
        for line in receipt.read_bytes().splitlines():
            known = parse_json(line)
            name = known["name"]
            noted[name] = stamp(receipt.parent / name) == known["stamp"]
    return noted


def put(part: Path, target: Path) -> None:
    """Rename a complete file to its name, with the permissions of a file that it replaces."""
    if target.exists():
        shutil.copymode(target, part)
    part.replace(target)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a hidden name beside ``path``, which replaces ``path`` at the end of the block.

    After an error it is removed, and ``path`` stays. A device or a pipe is yielded itself. For a
    symbolic link, the file it points to is replaced.
    """
    if not _is_regular(path):
        yield path
        return
    target = path.resolve()
    part = hidden_path(target)
    try:
        yield part
        put(part, target)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, what: str, data: str | bytes) -> None:
    """Write or replace a file in one step; text as UTF-8. A pipe or :data:`DASH` is allowed.

    Raises:
        OutputError: It cannot be written; an existing file stays.
    """
    with writing(path, what):
        if path == DASH and isinstance(data, str):
            with suppress(BrokenPipeError):  # the reader has read what it needs
                sys.stdout.write(data)
                sys.stdout.flush()
            return
        # A pipe without a reader is an error; opened without this, it would wait for ever.
        kept_open = _opened(path, os.O_WRONLY | os.O_NONBLOCK) if path.is_fifo() else nullcontext()
        with kept_open, replacing(path) as part:
            part.write_bytes(data.encode() if isinstance(data, str) else data)


def _name_partial(part: Path, target: Path) -> Path:
    """Rename an incomplete file to its first unused partial name."""
    number = 1
    while True:
        name = partial_path(target, number)
        with suppress(FileExistsError):
            _name_new(part, name)
            return name
        number += 1


def _name_new(part: Path, name: Path) -> None:
    """Rename a file without replacing another; raises FileExistsError if one exists."""
    try:
        os.link(part, name)
    except OSError as exc:
        if exc.errno not in _NO_HARD_LINKS:
            raise
        # No hard links here (FAT, some network shares): reserve the name, then replace.
        name.touch(exist_ok=False)
        try:
            part.replace(name)
        except BaseException:
            name.unlink()
            raise
    else:
        part.unlink()


def remove_leftovers(path: Path, *, keeps: bool = False) -> list[Path]:
    """Remove temporary files of this video whose owner has died: their lock is free.

    With ``keeps``, files with data get partial names, which are returned.
    """
    target = path.resolve()
    prefix, ending = hidden_parts(target, path.suffix)
    kept: list[Path] = []
    try:
        names = os.listdir(target.parent)  # noqa: PTH208 - names only, no stat each
    except OSError:
        return kept
    for name in names:
        token = name.removeprefix(prefix).removesuffix(ending)
        if len(token) != TOKEN_CHARS or name != prefix + token + ending:
            continue
        stale = target.parent / name
        with suppress(OSError), _opened(stale, os.O_RDWR | os.O_NOFOLLOW) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if keeps and os.fstat(fd).st_size:
                kept.append(_name_partial(stale, target))
            else:
                stale.unlink()
    return kept


class OutputFile(Closing):
    """An output that appears with :meth:`commit`."""

    temporary: Path
    """Path that data is written to."""
    waits = 0
    """A number that grows while a pipe's reader accepts nothing."""

    def part(self, number: int) -> Path:
        """Return where to write a picture, counted from 1."""
        return self.temporary

    def check(self) -> None:
        """Raise OutputError if a pipe's reader has closed it, also while nothing is written."""

    def stop(self) -> None:
        """Stop waiting for a pipe's reader; from any thread."""

    def prepare_commit(self) -> None:
        """Write everything to the disk, so that of several files none appears alone.

        Raises:
            OutputError: As :meth:`commit`, as far as it can be known before.
        """

    @abstractmethod
    def commit(self) -> None:
        """Write everything to the disk and let it appear under its name.

        Raises:
            OutputError: That failed, or something of that name has appeared in the meantime.
        """


class AtomicOutput(OutputFile):
    """A video that is being written; without :meth:`commit`, nothing or a partial file is left.

    The constructor makes all checks, removes leftovers of killed runs with the same target, and
    creates the temporary file.

    Args:
        path: The output; where it is a symbolic link, the file it points to is written.
        overwrite: Replace an existing file.
        inputs: Files that must not be overwritten under any name.
        receipt: Where it is noted before it appears (:func:`note_receipt`). With one, even
            ``overwrite`` only replaces the file that exists now.
        keeps: The file is usable without its end: if it is not committed, it becomes a partial file
            (:attr:`kept`), as do those of killed runs.

    Raises:
        OutputError: The folder cannot be created or is not writable; the target is a folder, a
            special file or one of the inputs; it exists and ``overwrite`` is False.
    """

    def __init__(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        inputs: Iterable[Path] = (),
        receipt: Path | None = None,
        keeps: bool = False,
    ) -> None:
        self._path = path
        self._overwrite = overwrite
        self._receipt = receipt
        self._target = _check(path, "output", inputs, overwrite=overwrite, folder="output folder")
        if not _is_regular(self._target):
            raise OutputError(f"cannot write output {path}: it is not a regular file", path=path)
        self._found = stamp(self._target)
        self.keeps = keeps
        self.left = remove_leftovers(path, keeps=keeps)
        """Partial files of killed runs."""
        self.kept: Path | None = None
        """The partial file of this run."""
        with writing(path):
            self._lock_fd, self.temporary = self._create()
        self._open = True

    def _create(self) -> tuple[int, Path]:
        """Create and lock the temporary file; return (lock's file descriptor, path)."""
        made = 0
        while True:
            temporary = with_token(self._target, *hidden_parts(self._target, self._path.suffix))
            try:
                fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            except FileNotFoundError:
                # A parallel run had created the folder, failed, and removed it again; or no file
                # can be created there, as in /proc.
                made += 1
                if made > _MAX_TRIES:
                    raise
                self._target.parent.mkdir(parents=True, exist_ok=True)
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another run took the new file for a leftover before it was locked.
                os.close(fd)
                continue
            except OSError:
                # A file system without locks: leftovers cannot be recognised there and stay.
                return fd, temporary
            if os.fstat(fd).st_nlink:
                return fd, temporary
            os.close(fd)

    def prepare_commit(self) -> None:
        with writing(self._path):
            os.fsync(self._lock_fd)
        is_kept = not self._overwrite or self._receipt is not None
        if is_kept and stamp(self._target) != self._found:
            raise self._taken()

    def _taken(self) -> OutputError:
        what = "been changed" if self._found else "appeared"
        text = f"cannot write output {self._path}: it has {what} during the render"
        return OutputError(text, path=self._path)

    def commit(self) -> None:
        """Write everything to the disk and give the file its name.

        Raises:
            OutputError: The data could not be written, or, without ``overwrite`` or with a receipt,
                a file of that name has appeared meanwhile; the temporary file is closed.
        """
        if not self._open:
            raise ValueError("the output is closed already")
        with self, writing(self._path), translated(FileExistsError, to=lambda _: self._taken()):
            os.fsync(self._lock_fd)
            if self._receipt is not None:
                note_receipt(self._receipt, self._path, self.temporary)
                if stamp(self._target) != self._found:
                    raise FileExistsError
            if self._overwrite:
                put(self.temporary, self._target)
            else:
                _name_new(self.temporary, self._target)
            sync_folder(self._target.parent)
            self._release()

    def close(self) -> None:
        """Remove the temporary file, or keep it; safe to call twice and after :meth:`commit`."""
        if self._open:
            if self.keeps and os.fstat(self._lock_fd).st_size:
                with suppress(OSError):  # the next run finds it
                    self.kept = _name_partial(self.temporary, self._target)
            else:
                self.temporary.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        self._open = False
        os.close(self._lock_fd)


def lock_folder(folder: Path) -> int | None:
    """Lock a folder and return its descriptor; None: the file system has no locks.

    Raises:
        BlockingIOError: Another process has the lock.
        OSError: The folder cannot be opened.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(fd)
        if isinstance(exc, BlockingIOError):
            raise
        return None
    return fd


def sync_folder(folder: Path) -> None:
    """Make a rename durable; if folders cannot be synced, the data still is."""
    with suppress(OSError), _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
