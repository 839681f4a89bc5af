"""Watching of folders for new videos, which are taken once completely written."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.batch.find import Found, find, passed_over_text
from bgsoft.closing import Closing
from bgsoft.errors import BackendUnavailableError, BgsoftError, ConfigError
from bgsoft.outputs import stamp

_AGAIN_SECONDS = 0.5
_SCAN_SECONDS = 60.0
"""Interval at which folders are searched even if the system reports no change."""


class FolderWatch(Closing):
    """Complete files in watched sources, each once for every time that it is written.

    Sources, ``leave_out``, ``named`` and ``exclude`` are as for :func:`bgsoft.batch.find.find`. A
    file counts as complete if it has not changed for ``settle_seconds`` and nobody writes to it.
    ``on_notice`` receives one line about each problem.

    Raises:
        ConfigError: No source is a folder.
        BackendUnavailableError: The library watchfiles is missing.
    """

    def __init__(
        self,
        sources: Sequence[str],
        *,
        leave_out: Path,
        named: Sequence[str],
        exclude: Sequence[str],
        settle_seconds: float,
        on_notice: Callable[[str], None],
    ) -> None:
        self._find = partial(find, sources, leave_out=leave_out, named=named, exclude=exclude)
        self._settle_seconds = settle_seconds
        self._on_notice = on_notice
        folders = [source for source in sources if os.path.isdir(source)]  # noqa: PTH112
        if not folders:
            raise ConfigError("cannot use --watch: no input is a folder; name a folder")
        if importlib.util.find_spec("watchfiles") is None:
            raise BackendUnavailableError(
                "cannot use --watch: watchfiles is missing; pip install '.[watch]'"
            )
        self._changed = threading.Event()
        self._changed.set()
        self._stop = threading.Event()
        self._scanned = 0.0
        self._waiting: dict[Path, tuple[Found, str, float]] = {}
        """File → what was found, its stamp, and the time of the last change."""
        self._taken: dict[Path, str] = {}
        self._reported: set[str] = set()
        """Suffixes of ignored files that were reported."""
        self._thread = threading.Thread(target=self._listen, args=folders, daemon=True)
        self._thread.start()

    def whole(self) -> list[Found]:
        """Return the files completed since the last call, without waiting."""
        now = time.monotonic()
        if self._changed.is_set() or now - self._scanned > _SCAN_SECONDS:
            self._changed.clear()
            self._scanned = now
            self._scan()
        ready = []
        for path, (found, seen, since) in list(self._waiting.items()):
            current = stamp(path)
            if not current:
                del self._waiting[path]
            elif current != seen:
                self._waiting[path] = (found, current, now)
            elif now - since >= self._settle_seconds and not is_being_written(path):
                del self._waiting[path]
                self._taken[path] = current
                ready.append(found)
        return ready

    def _scan(self) -> None:
        now = time.monotonic()
        passed_over: Counter[str] = Counter()
        try:
            for found in self._find(passed_over=passed_over):
                current = stamp(found.path)
                if current and self._taken.get(found.path) != current:
                    self._waiting.setdefault(found.path, (found, current, now))
        except BgsoftError as exc:
            self._on_notice(str(exc))
        if passed_over and not self._reported.issuperset(passed_over):
            self._reported |= passed_over.keys()
            self._on_notice(passed_over_text(passed_over))

    def _listen(self, *folders: str) -> None:
        try:
            with ExitStack() as stack:
                watched = [_in_utf8(folder, stack) for folder in folders]
                while not self._stop.is_set():
                    self._watch(watched)
        except OSError as exc:
            if not self._stop.is_set():
                self._on_notice(
                    f"cannot watch folders: {exc}; searching them every {_SCAN_SECONDS:.0f} s"
                )

    def _watch(self, folders: Sequence[str]) -> None:
        """Wait for changes until stopped, or until watchfiles fails at a name that is not UTF-8."""
        from watchfiles import watch

        is_new = True
        options: dict[str, Any] = {"stop_event": self._stop, "debounce": 500, "rust_timeout": 500}
        with suppress(RuntimeError):  # watchfiles' error for such a name
            for changes in watch(*folders, yield_on_timeout=True, **options):
                if changes or is_new:  # also finds files that came before it listened
                    self._changed.set()
                is_new = False
        self._changed.set()
        self._stop.wait(_AGAIN_SECONDS)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def _in_utf8(folder: str, stack: ExitStack) -> str:
    """Return a name for a folder that watchfiles accepts: by descriptor if it is not UTF-8."""
    try:
        folder.encode()
    except UnicodeEncodeError:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, descriptor)
        return f"/proc/self/fd/{descriptor}"
    return folder


def is_being_written(path: Path) -> bool:
    """Return True if any process is known to have a file open for writing.

    The system grants a lease for reading only if no process has. It knows only processes of this
    machine, and grants no leases on files of other users.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as exc:
        return exc.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False
