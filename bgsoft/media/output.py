"""Atomic output: a file appears under its name only when it is complete.

The data goes to a hidden file in the same folder, whose name starts with a dot and ends with the
target's extension. Its owner holds a lock on it (``flock``) for as long as it lives, so that a
later run can tell the leftover of a killed process from the work of a running one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from bgsoft.closing import Closing
from bgsoft.errors import OutputError
from bgsoft.media.containers import container_for

__all__ = ["AtomicOutput", "write_error"]

_MAX_NAME_BYTES = 255
_MARK = ".part"
_TOKEN_CHARS = 8
_REASONS: dict[int | None, str] = {
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk quota used up",
    errno.EFBIG: "file larger than the file system or a limit of this process allows",
    errno.EIO: "the disk reports an input/output error",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOENT: "the folder is gone",
}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_error(exc: BaseException, path: Path) -> OutputError:
    """Describe a failed write for the user."""
    reason = _REASONS.get(getattr(exc, "errno", None)) or getattr(exc, "strerror", None) or exc
    return OutputError(f"cannot write {path.name}: {reason}", path=path, stage="encode")


class AtomicOutput(Closing):
    """The output file of one render.

    The constructor checks what can be checked before any work is done, removes what killed runs
    left behind for the same target, and creates the temporary file. Use it as a context manager:
    without :meth:`commit` nothing is left behind.

    Args:
        path: The output the user asked for. Where it is a symbolic link, the file it points to is
            written.
        overwrite: Replace an existing file.
        inputs: Files that must not be overwritten under any name.

    Raises:
        UnsupportedFormatError: The extension is no container we can write.
        OutputError: The folder is missing or not writable; the target is a directory, a special
            file or one of the inputs; it exists and ``overwrite`` is False.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, inputs: Iterable[Path] = ()) -> None:
        container_for(path)
        self.path = path
        self._overwrite = overwrite
        self._target = _resolve(path)
        self._mode: int | None = None
        self._check_target(inputs)
        self._prefix, self._suffix = _name_parts(self._target.name, path.suffix)
        self._remove_stale()
        self._lock_fd, self.temporary = self._create()
        self._open = True

    def _check_target(self, inputs: Iterable[Path]) -> None:
        """Raise OutputError unless the target may be written."""
        folder = self._target.parent
        if not folder.is_dir():
            raise OutputError(f"output folder {folder} does not exist", path=self.path)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OutputError(f"output folder {folder} is not writable", path=self.path)
        try:
            status = self._target.stat()
        except FileNotFoundError:
            return
        except OSError as exc:
            raise write_error(exc, self.path) from exc
        if stat.S_ISDIR(status.st_mode):
            raise OutputError(f"output {self.path} is a directory", path=self.path)
        if not stat.S_ISREG(status.st_mode):
            raise OutputError(f"output {self.path} is not a regular file", path=self.path)
        for source in inputs:
            with contextlib.suppress(OSError):
                if self._target.samefile(source):
                    raise OutputError(
                        f"output {self.path} is the same file as the input {source}",
                        path=self.path,
                    )
        if not self._overwrite:
            raise OutputError(
                f"output {self.path} exists; use --overwrite to replace it", path=self.path
            )
        self._mode = stat.S_IMODE(status.st_mode)

    def _remove_stale(self) -> None:
        """Remove temporary files for this target whose owner has died: their lock is free."""
        try:
            names = os.listdir(self._target.parent)  # noqa: PTH208 - names only, no stat each
        except OSError:
            return
        for name in names:
            token = name.removeprefix(self._prefix).removesuffix(self._suffix)
            if len(token) != _TOKEN_CHARS or name != self._prefix + token + self._suffix:
                continue
            stale = self._target.parent / name
            with contextlib.suppress(OSError):
                fd = os.open(stale, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    stale.unlink()
                finally:
                    os.close(fd)

    def _create(self) -> tuple[int, Path]:
        """Create and lock the temporary file; (lock's file descriptor, path)."""
        while True:
            name = f"{self._prefix}{secrets.token_hex(_TOKEN_CHARS // 2)}{self._suffix}"
            temporary = self._target.parent / name
            try:
                fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            except OSError as exc:
                raise write_error(exc, self.path) from exc
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another run took the new file for a leftover before we could lock it.
                os.close(fd)
                continue
            except OSError:
                # A file system without locks: leftovers cannot be told apart there and stay.
                return fd, temporary
            if os.fstat(fd).st_nlink:
                return fd, temporary
            os.close(fd)

    def commit(self) -> None:
        """Write everything to the disk and give the file its name.

        Raises:
            OutputError: The data could not be written, or, without ``overwrite``, a file of that
                name has appeared meanwhile; the temporary file is removed.
        """
        if not self._open:
            raise ValueError("the output is closed already")
        try:
            if self._mode is not None:
                os.fchmod(self._lock_fd, self._mode)
            os.fsync(self._lock_fd)
            if self._overwrite:
                self.temporary.replace(self._target)
            else:
                self._publish_new()
            _sync_folder(self._target.parent)
            self._release()
        except FileExistsError as exc:
            self.close()
            raise OutputError(
                f"output {self.path} has appeared meanwhile and is not overwritten", path=self.path
            ) from exc
        except OSError as exc:
            self.close()
            raise write_error(exc, self.path) from exc

    def _publish_new(self) -> None:
        """Name the file without replacing any; FileExistsError where one exists."""
        try:
            os.link(self.temporary, self._target)
        except OSError as exc:
            if exc.errno not in _NO_HARD_LINKS:
                raise
            # No hard links here (FAT, some network shares): reserve the name, then replace.
            os.close(os.open(self._target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            self.temporary.replace(self._target)
        else:
            self.temporary.unlink()

    def close(self) -> None:
        """Remove the temporary file; safe to call twice and after :meth:`commit`."""
        if self._open:
            self.temporary.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        self._open = False
        os.close(self._lock_fd)


def _resolve(path: Path) -> Path:
    """The file that would be written, with symbolic links followed."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as exc:  # RuntimeError: a loop of links, before Python 3.13
        raise OutputError(f"output {path}: {exc}", path=path) from exc


def _name_parts(name: str, suffix: str) -> tuple[str, str]:
    """What the temporary names of a target start and end with.

    Long names are cut so that the whole stays within the file system's limit. A name is bytes: it
    need not be UTF-8, and need not be what the locale can say.
    """
    ending = f"{_MARK}{suffix}"
    room = _MAX_NAME_BYTES - len(os.fsencode(ending)) - _TOKEN_CHARS - 2
    whole = os.fsencode(name)[:room].decode(errors="ignore")  # no half character at the end
    return f".{os.fsdecode(whole.encode())}.", ending


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; where folders cannot be synced the data still is."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
