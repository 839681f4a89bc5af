"""Video that comes or goes through a pipe: ``-``, /dev/stdin, /dev/stdout and named pipes."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bgsoft.errors import ConfigError, RenderCancelledError
from bgsoft.outputs import DASH, OutputFile, write_error, writing

DEV_STDIN, DEV_STDOUT = Path("/dev/stdin"), Path("/dev/stdout")
POLL_MS = 100
"""Interval at which a wait for the other end of a pipe checks whether to continue."""
_SHORT_WAIT_SECONDS = 0.001
_PIPE_BYTES = 1 << 20
"""Requested capacity of a pipe; the default, 64 KiB, is a 48th of a raw 1080p picture."""


def input_name(path: Path) -> Path:
    """Return an input's final name: ``-`` is /dev/stdin, or the file that is redirected to it.

    Raises:
        ConfigError: Standard input is a terminal.
    """
    if path not in (DASH, DEV_STDIN):
        return path
    if os.isatty(0):
        raise ConfigError(
            "cannot read stdin: it is a terminal; pipe a video into bgsoft, or name a file"
        )
    with suppress(OSError):
        # If somebody has read a part of the file, only the rest is meant.
        if stat.S_ISREG(os.fstat(0).st_mode) and os.lseek(0, 0, os.SEEK_CUR) == 0:
            path = DEV_STDIN.resolve()
            if os.path.samestat(path.stat(), os.fstat(0)):
                return path
    return DEV_STDIN


def output_name(path: Path) -> Path:
    """Return an output's final name: ``-`` is /dev/stdout.

    Raises:
        ConfigError: Standard output is a terminal.
    """
    if path not in (DASH, DEV_STDOUT):
        return path
    if os.isatty(1):
        raise ConfigError("cannot write to stdout: it is a terminal; pipe it, or name a file")
    return DEV_STDOUT


def widen(descriptor: int) -> None:
    """Enlarge a pipe, where the system allows it: fewer calls for the same bytes."""
    with suppress(OSError, AttributeError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class PipeOutput(OutputFile):
    """A video that is sent while it is made; sent data cannot be taken back.

    While it is open, other output to stdout goes to stderr.

    Args:
        path: :data:`DEV_STDOUT`, or a named pipe, whose reader is awaited.
        stops: Returns whether to stop waiting.

    Raises:
        OutputError: The pipe cannot be opened.
        RenderCancelledError: ``stops`` returned True.
    """

    def __init__(self, path: Path, stops: Callable[[], bool] = lambda: False) -> None:
        self.path = self.temporary = path
        self._stops = stops
        self._stopped = threading.Event()
        self._saved: int | None = None
        self._step = _PIPE_BYTES
        with writing(path):
            if path == DEV_STDOUT:
                self._fd = self._take_stdout()
            else:
                self._fd = self._open()
        widen(self._fd)
        self._room, self._gone = select.poll(), select.poll()
        self._room.register(self._fd, select.POLLOUT)
        self._gone.register(self._fd, 0)

    def _take_stdout(self) -> int:
        sys.stdout.flush()
        descriptor = self._saved = os.dup(1)
        os.dup2(2, 1)
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            try:
                # Our own descriptor never blocks: the flag of stdout itself is shared with others.
                return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                self._step = select.PIPE_BUF  # fits if there is any room
        return os.dup(descriptor)

    def _open(self) -> int:
        while True:
            try:
                return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as exc:
                if exc.errno != errno.ENXIO:
                    raise
            self._wait(POLL_MS / 1000)  # there is no reader yet

    def _wait(self, seconds: float = 0.0) -> None:
        self.waits += 1
        if self._stopped.is_set() or self._stops():
            raise RenderCancelledError("interrupted")
        time.sleep(seconds)

    def write(self, data: bytes) -> int:
        """Send bytes, however long the reader takes; raises OSError if there is none."""
        left = memoryview(data)
        while left and not self._stopped.is_set():
            if not self._room.poll(POLL_MS):
                self._wait()
                continue
            try:
                left = left[os.write(self._fd, left[: self._step]) :]
            except BlockingIOError:
                self._wait(_SHORT_WAIT_SECONDS)
            except OSError:
                self.stop()  # reported once; FFmpeg continues to write
                raise
        return len(data)

    def check(self) -> None:
        if any(events & select.POLLERR for _, events in self._gone.poll(0)):
            raise write_error(BrokenPipeError(errno.EPIPE, ""), self.path)

    def commit(self) -> None:
        """Do nothing: everything has been sent."""

    def stop(self) -> None:
        """Stop sending and waiting; from any thread."""
        self._stopped.set()

    def close(self) -> None:
        self.stop()
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._saved is not None:
            sys.stdout.flush()
            os.dup2(self._saved, 1)
            os.close(self._saved)
            self._saved = None
