"""How far a batch is, kept in a SQLite file beside the outputs: what a later run goes on from."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from pathlib import Path

from bgsoft.closing import Closing
from bgsoft.errors import ConfigError, DiskFullError, OutputError
from bgsoft.jobs.worker import LEAVE_SECONDS

STATE_NAME = ".bgsoft-batch.sqlite"
_VERSION = 1
_LOCK_POLL_SECONDS = 0.1


class FileState(StrEnum):
    """What has become of a file."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    """Its output existed, and was left alone."""
    FAILED = "failed"

    @property
    def is_settled(self) -> bool:
        """Whether there is an output."""
        return self in (FileState.DONE, FileState.SKIPPED)


@dataclass(slots=True, kw_only=True)
class Entry:
    """A file of a batch. Times are seconds since 1970."""

    output: Path
    """Inside the output folder."""
    input: Path
    """Absolute."""
    number: int
    size_bytes: int
    mtime_ns: int
    """Of the input."""
    settings: str
    """Their fingerprint."""
    state: FileState = FileState.WAITING
    attempts: int = 0
    reason: str | None = None
    """Why it failed."""
    report: str | None = None
    """The render's report, JSON."""
    before: str = ""
    """What was at the output's place when the last attempt began; see :func:`signature`."""
    started_at: float | None = None
    ended_at: float | None = None


_COLUMNS = [entry.name for entry in fields(Entry)]


class State(Closing):
    """The state file of an output folder, which is one batch's alone while it is open.

    Args:
        folder: Has to exist.

    Raises:
        ConfigError: Another batch is at work in the folder.
        OutputError: The file cannot be opened or written, or is another version's.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATE_NAME
        self.lock = self._locked(folder)
        """A descriptor that keeps others out of the folder for as long as any process has it."""
        self.entries: dict[Path, Entry] = {}
        """By output."""
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as exc:
            os.close(self.lock)
            raise self._error(exc) from exc
        except BaseException:
            os.close(self.lock)
            raise

    def _locked(self, folder: Path) -> int:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            raise OutputError(f"cannot open the folder {folder}: {exc.strerror}") from exc
        # The workers of a batch that was killed hold it for a moment longer.
        until = time.monotonic() + LEAVE_SECONDS + 1
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                if time.monotonic() > until:
                    os.close(lock)
                    raise ConfigError(f"another batch is at work in {folder}") from exc
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError:
                return lock  # a file system without locks
            else:
                return lock

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode = WAL")
        (version,) = run("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise OutputError(f"{self._path} was written by another version of bgsoft")
        columns = ", ".join(_COLUMNS).replace("output", "output PRIMARY KEY", 1)
        run(f"CREATE TABLE IF NOT EXISTS files ({columns})")
        run(f"PRAGMA user_version = {_VERSION}")
        with closing(run(f"SELECT {', '.join(_COLUMNS)} FROM files ORDER BY number")) as rows:
            for row in rows:
                entry = Entry(**dict(zip(_COLUMNS, row, strict=True)))
                entry.output, entry.input = _path(entry.output), _path(entry.input)
                entry.state = FileState(entry.state)
                self.entries[entry.output] = entry

    @property
    def numbers(self) -> dict[Path, int]:
        """Input → its number."""
        return {entry.input: entry.number for entry in self.entries.values()}

    def begin(self, entries: Iterable[Entry]) -> None:
        """Keep these entries, and no others.

        Raises:
            OutputError: They cannot be written.
        """
        self.entries = {}
        try:
            self._database.execute("BEGIN")
            self._database.execute("DELETE FROM files")
            for entry in entries:
                self._put(entry)
            self._database.execute("COMMIT")
        except sqlite3.Error as exc:
            raise self._error(exc) from exc

    def put(self, entry: Entry) -> None:
        """Write an entry; it is on the disk when this returns.

        Raises:
            OutputError: It cannot be written.
        """
        try:
            self._put(entry)
        except sqlite3.Error as exc:
            raise self._error(exc) from exc

    def _put(self, entry: Entry) -> None:
        self.entries[entry.output] = entry
        values = [_value(value) for value in astuple(entry)]
        marks = ", ".join("?" * len(values))
        self._database.execute(f"INSERT OR REPLACE INTO files VALUES ({marks})", values)

    def _error(self, exc: sqlite3.Error) -> OutputError:
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return DiskFullError(f"cannot write {self._path}: disk full", path=self._path)
        return OutputError(f"cannot use {self._path}: {exc}", path=self._path)

    def close(self) -> None:
        self._database.close()
        if not self.entries:  # no batch was begun
            self._path.unlink(missing_ok=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def signature(path: Path) -> str:
    """Identifies the file that is at a path now; empty: there is none."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def _value(value: object) -> object:
    """As SQLite takes it: a path's text, or its bytes where that is no UTF-8."""
    if not isinstance(value, Path):
        return value
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return os.fsencode(value)
    return str(value)


def _path(value: object) -> Path:
    return Path(os.fsdecode(value)) if isinstance(value, str | bytes) else Path()
