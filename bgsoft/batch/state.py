"""State of a batch in a SQLite file next to the outputs, from which a later run continues."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from bgsoft.chunks.folder import take_lock
from bgsoft.closing import Closing
from bgsoft.errors import DiskFullError, OutputError, os_errors_as, translated
from bgsoft.jobs.worker import GRACE_SECONDS
from bgsoft.outputs import read_receipt, real_path, remove_leftovers, stamp
from bgsoft.part_names import name_digest
from bgsoft.records import NamedTuple, dataclass
from bgsoft.untrusted import parse_json

STATE_NAME = ".bgsoft-batch.sqlite"
_VERSION = 2
_DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""SQLite's codes for damaged contents; ERROR: no such table."""
_LENGTHS = [1 << power for power in range(21)]
"""Bytes to hash, up to 1 MiB, enough to tell videos apart."""
_DIGITS = 8


class WrittenFile(NamedTuple):
    """A file as the batch wrote it."""

    stamp: str
    """See :func:`bgsoft.outputs.stamp`."""
    beginnings: str
    """Eight hex digits of the SHA-256 of its first 1, 2, 4, … bytes, one after the other."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(self.stamp.partition(":")[0] or 0)


class FileState(StrEnum):
    """Progress of a file."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    """Its output existed, and was not replaced."""
    FAILED = "failed"

    @property
    def has_output(self) -> bool:
        """True if there is an output."""
        return self in (FileState.DONE, FileState.SKIPPED)


@dataclass(slots=True, kw_only=True)
class Entry:
    """A file of a batch. Times are seconds since 1970."""

    output: Path
    """Path of the output, relative to the output folder."""
    input: Path
    """Absolute path."""
    number: int
    state: FileState = FileState.WAITING
    attempts: int = 0
    reason: str | None = None
    """Error message of a failed file."""
    report: str | None = None
    """Report of the render as JSON."""
    made_from: dict[str, str] = field(default_factory=dict)
    """Files and settings that the output depends on, set when its render begins.

    See :meth:`bgsoft.batch.job.BatchJob.made_from`. Empty: no output is known."""
    files: dict[str, WrittenFile] = field(default_factory=dict)
    """Files made by the batch: the output and those next to it, by name in the output folder."""
    is_current: bool = True
    """True: the file is in the latest batch, not only in an earlier one of this folder."""
    started_at: float | None = None
    ended_at: float | None = None


class _UnusableError(Exception):
    """A state file cannot be used; the message states the reason."""


_COLUMNS = [entry.name for entry in fields(Entry)]


class BatchState(Closing):
    """The state file of an output folder, locked against other batches while it is open.

    With ``replace_unusable``, a file that cannot be used is replaced. With ``read_only``, nothing
    is written. Another batch's lock is waited for, by default for as long as workers of a killed
    batch hold it.

    Raises:
        OutputError: Another batch uses the folder; or the file cannot be opened, or is unusable.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replace_unusable: bool = False,
        read_only: bool = False,
        wait_seconds: float = GRACE_SECONDS + 1,
    ) -> None:
        self.folder = folder
        self._path = folder / STATE_NAME
        self._read_only, self._wait_seconds = read_only, wait_seconds
        self.entries: dict[Path, Entry] = {}
        """Entries of the batch and of earlier ones in this folder, by output."""
        self._database: sqlite3.Connection | None = None
        self._known: tuple[int, int] | None = None
        """:meth:`_identity` of the open file."""
        self._stack = ExitStack()
        self.lock = -1
        """Descriptor that locks the folder for as long as any process has it open."""
        if read_only and not folder.is_dir():
            return
        if not read_only and not os.access(folder, os.W_OK | os.X_OK):
            raise OutputError(
                f"cannot use output folder {folder}: it is not writable; choose another",
                path=folder,
            )
        with ExitStack() as stack:
            self.lock = self._locked(folder)
            stack.callback(self.close)
            self._read(replace_unusable=replace_unusable)
            stack.pop_all()

    def _locked(self, folder: Path) -> int:
        with os_errors_as(OutputError, f"cannot open folder {folder}"):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks
            if not take_lock(lock, fcntl.LOCK_EX, self._wait_seconds):
                os.close(lock)
                raise OutputError(f"cannot use output folder {folder}: another batch is using it")
        return lock

    def _read(self, *, replace_unusable: bool) -> None:
        """Read the entries of earlier runs."""
        if not self._path.exists():
            return
        try:
            self.entries = self._load()
        except sqlite3.Error as exc:
            if getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _DAMAGE:
                raise self._error(exc) from exc
            problem = f"it is damaged, or not written by bgsoft ({exc})"
        except (ValueError, TypeError):
            problem = "it is damaged"
        except _UnusableError as exc:
            problem = str(exc)
        else:
            for entry in self.entries.values():
                if entry.state is FileState.RUNNING:  # when an earlier run was killed
                    self.recover(entry)
            return
        self._disconnect()
        if not replace_unusable:
            raise OutputError(
                f"cannot use {self._path}: {problem}; start over with --overwrite, or keep existing"
                " outputs with --skip-existing"
            )

    def _load(self) -> dict[Path, Entry]:
        """Return all entries; raise _UnusableError if they cannot be read."""
        if self._path.stat().st_size == 0:
            raise _UnusableError("it is empty, perhaps because the disk was full")
        database = self._database = self._connect()
        self._known = self._identity()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if 0 < version < _VERSION:
            raise _UnusableError("it was written by an earlier version of bgsoft")
        if version > _VERSION:
            raise _UnusableError("it was written by a later version of bgsoft")
        query = f"SELECT {', '.join(_COLUMNS)} FROM files ORDER BY number"
        with closing(database.execute(query)) as rows:
            found = [_entry(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
        return {entry.output: entry for entry in found}

    def _connect(self) -> sqlite3.Connection:
        path = self._path
        if self._read_only:  # SQLite writes next to a file even when it only reads
            copies = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            for each in (path, path.with_name(f"{path.name}-wal")):
                if each.exists():
                    shutil.copyfile(each, copies / each.name)
            path = copies / path.name
        return sqlite3.connect(path, isolation_level=None)

    def _create(self) -> None:
        """Create the file, under its name only when it is complete."""
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            _remove(new)
            _remove(self._path)
            with closing(sqlite3.connect(new, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode = WAL")
                columns = ", ".join(_COLUMNS).replace("output", "output PRIMARY KEY", 1)
                database.execute(f"CREATE TABLE files ({columns})")
                database.execute(f"PRAGMA user_version = {_VERSION}")
            new.replace(self._path)
            self._database = self._connect()
            self._known = self._identity()
        except OSError as exc:
            raise OutputError(f"cannot write {self._path}: {exc.strerror}") from exc
        finally:
            with suppress(OSError):
                _remove(new)

    @property
    def current(self) -> list[Entry]:
        """Entries of the latest batch, in order."""
        entries = (entry for entry in self.entries.values() if entry.is_current)
        return sorted(entries, key=lambda entry: entry.number)

    @property
    def numbers(self) -> dict[Path, int]:
        """Input → its number.

        If several batches gave inputs the same number, the latest batch's input keeps it.
        """
        found: dict[Path, int] = {}
        taken: set[int] = set()
        for entry in sorted(self.entries.values(), key=lambda entry: not entry.is_current):
            if entry.input not in found and entry.number not in taken:
                found[entry.input] = entry.number
                taken.add(entry.number)
        return found

    @property
    def own(self) -> set[Path]:
        """Files that batches made here and nobody changed, with symbolic links followed."""
        made = [item for entry in self.entries.values() for item in entry.files.items()]
        paths = [(self.folder / name, known) for name, known in made]
        left = (OutputStatus.UNCHANGED, OutputStatus.TRUNCATED)
        return {real_path(path) for path, known in paths if classify_output(path, known) in left}

    def begin(self, entries: Iterable[Entry]) -> None:
        """Begin a batch of these entries; other entries are kept."""
        with translated(sqlite3.Error, to=self._error):
            if self._database is None:
                self._create()
            self._execute("BEGIN")
            self._execute("UPDATE files SET is_current = 0")
            for entry in self.entries.values():
                entry.is_current = False
            for entry in entries:
                self._put(entry)
            self._execute("COMMIT")

    def put(self, entry: Entry) -> None:
        """Write an entry to disk; raise OutputError if that fails."""
        with translated(sqlite3.Error, to=self._error):
            self._put(entry)

    def restore(self) -> str | None:
        """Write the file again if the folder was deleted while it was open.

        Outputs that were deleted are set to WAITING.

        Returns:
            A notice, or None if no output was deleted.

        Raises:
            OutputError: The file cannot be written.
        """
        if self._database is None or self._identity() == self._known:
            return None
        self._disconnect()
        with os_errors_as(OutputError, f"cannot create folder {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
        os.dup2(lock := self._locked(self.folder), self.lock, inheritable=False)
        os.close(lock)
        lost = 0
        for entry in self.entries.values():
            if entry.state is FileState.DONE and not stamp(self.folder / entry.output):
                entry.state, entry.made_from = FileState.WAITING, {}
                lost += 1
        with translated(sqlite3.Error, to=self._error):
            self._create()
            self._execute("BEGIN")
            for entry in self.entries.values():
                self._put(entry, is_current=entry.is_current)
            self._execute("COMMIT")
        if not lost:
            return None
        outputs = f"{lost} output{'' if lost == 1 else 's'}"
        return (
            f"{self.folder} was deleted during the batch with {outputs}; render again with --resume"
        )

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode of the file; None if it is missing."""
        with suppress(OSError):
            found = self._path.stat()
            return found.st_dev, found.st_ino
        return None

    def _put(self, entry: Entry, *, is_current: bool = True) -> None:
        entry.is_current = is_current
        self.entries[entry.output] = entry
        values = [_value(getattr(entry, name)) for name in _COLUMNS]
        marks = ", ".join("?" * len(values))
        self._execute(f"INSERT OR REPLACE INTO files VALUES ({marks})", values)

    def _execute(self, statement: str, values: Sequence[object] = ()) -> None:
        assert self._database is not None
        self._database.execute(statement, values)

    def receipt(self, entry: Entry) -> Path:
        """Return the path of the file in which a worker lists outputs before renaming them."""
        return self.folder / f".bgsoft-batch-{name_digest(entry.output)}.made"

    def recover(self, entry: Entry) -> None:
        """Inspect the outputs of a worker that ended without reporting its result.

        The entry becomes DONE if all listed outputs exist, else WAITING.
        """
        noted = read_receipt(self.receipt(entry))
        own = [name for name, is_there in noted.items() if is_there]
        entry.files |= {name: describe(self.folder / name) for name in own}
        is_done = str(entry.output) in own and len(own) == len(noted)
        matte, faces = map(entry.made_from.get, ("matte_out", "face_data"))
        entry.state = FileState.DONE if is_done else FileState.WAITING
        if not is_done:
            entry.made_from = {}
        if not self._read_only:
            if faces is not None:
                remove_leftovers(self.folder / faces, keeps=True)
            for name in {str(entry.output), *entry.files, *noted, *filter(None, (matte,))}:
                remove_leftovers(self.folder / name)
            self.drop_receipt(entry)

    def drop_receipt(self, entry: Entry) -> None:
        """Remove a worker's list of outputs, once its entry is saved."""
        with suppress(OSError):
            self.receipt(entry).unlink(missing_ok=True)

    def _error(self, exc: sqlite3.Error) -> OutputError:
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return DiskFullError(f"cannot write {self._path}: disk full", path=self._path)
        return OutputError(f"cannot use {self._path}: {exc}", path=self._path)

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def close(self) -> None:
        self._disconnect()
        self._stack.close()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def _remove(path: Path) -> None:
    """Remove a database and SQLite's files next to it."""
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _value(value: object) -> object:
    """Convert a value for SQLite: to text, or to bytes if a name is not UTF-8."""
    if isinstance(value, dict):
        return json.dumps(value)
    if not isinstance(value, str | Path):
        return value
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return os.fsencode(value)
    return str(value)


def _entry(row: dict[str, Any]) -> Entry:
    """Convert a row to an entry; raise ValueError or TypeError if it is malformed."""
    for name in ("output", "input", "reason"):
        if isinstance(row[name], bytes):
            row[name] = os.fsdecode(row[name])
    for name in ("output", "input"):
        row[name] = Path(row[name])
    row["state"] = FileState(row["state"])
    for name in ("made_from", "files"):
        row[name] = parse_json(row[name])
        if not isinstance(row[name], dict):
            raise TypeError(name)
    row["files"] = {name: WrittenFile(*made) for name, made in row["files"].items()}
    row["is_current"] = bool(row["is_current"])
    entry = Entry(**row)
    parse_json(entry.report or "{}")
    texts = [str(entry.input), *row["made_from"].values()]
    texts += [text for made in entry.files.values() for text in made]
    names = [str(entry.output), *entry.files]
    numbers = [entry.number, entry.attempts, entry.started_at or 0, entry.ended_at or 0]
    optional = [entry.reason or "", entry.report or ""]
    if (
        not all(isinstance(text, str) and "\0" not in text for text in [*texts, *names, *optional])
        or not all(isinstance(number, int | float) for number in numbers)
        or any(Path(name).is_absolute() or ".." in Path(name).parts for name in names)
    ):
        raise ValueError(f"entry {entry.output} is malformed")
    return entry


class OutputStatus(StrEnum):
    """Result of comparing a file with the one that the batch wrote."""

    MISSING = "missing"
    UNCHANGED = "unchanged"
    """The file that the batch wrote."""
    TRUNCATED = "truncated"
    """Only the beginning of that file."""
    FOREIGN = "foreign"
    """A file that somebody else made or changed."""


def describe(path: Path) -> WrittenFile:
    """Describe the present file; empty values if it cannot be read."""
    try:
        with path.open("rb") as file:
            return WrittenFile(stamp(file.fileno()), _beginnings(file))
    except OSError:
        return WrittenFile("", "")


def classify_output(path: Path, made: WrittenFile | None) -> OutputStatus:
    """Compare a file with the one that the batch made there; ``made`` is None if it made none."""
    now = stamp(path)
    if not now:
        return OutputStatus.MISSING
    if made is None:
        return OutputStatus.FOREIGN
    if now == made.stamp:
        return OutputStatus.UNCHANGED
    found = describe(path) if path.is_file() else WrittenFile("", "")  # a pipe would block
    is_cut = found.size < made.size and made.beginnings.startswith(found.beginnings)
    return OutputStatus.TRUNCATED if found.stamp and is_cut else OutputStatus.FOREIGN


def _beginnings(file: BinaryIO) -> str:
    digest, done, found = hashlib.sha256(), 0, ""
    for length in _LENGTHS:
        data = file.read(length - done)
        if done + len(data) < length:
            break
        digest.update(data)
        done = length
        found += digest.hexdigest()[:_DIGITS]
    return found
