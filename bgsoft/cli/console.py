"""Output of the commands: data on stdout, messages on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console as RichConsole


def open_standard_streams() -> None:
    """Open standard streams that the caller has closed (``>&-``).

    Otherwise the next opened file would take their place, and output of libraries would go into it.
    Writing to a closed stdout still fails.
    """
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_RDWR)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - a descriptor
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\t"): "\\t",
    ord("\r"): "\\r",
}


def on_one_line(text: str) -> str:
    """Escape line ends and control characters, which file names may contain."""
    return text.translate(_CONTROL)


class Console:
    """The two output streams of one command. Thread-safe.

    After a stream fails, it is silenced and the command continues, so that no render is lost with
    its messages. A reader that closes a pipe (``bgsoft … | head``) is not an error.
    """

    failed = False
    """Whether any console of this process has reported the command's failure."""
    unwritten: OSError | None = None
    """Error of writing to stdout, in any console of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.live: RichConsole | None = None
        """Console that draws on stderr, while one does: lines are written above it."""

    @classmethod
    def forget(cls) -> None:
        """Forget the errors of earlier commands of this process."""
        cls.failed, cls.unwritten = False, None

    def out(self, text: str = "") -> None:
        """Write a line to stdout."""
        self._write(sys.stdout, text)

    def err(self, text: str = "") -> None:
        """Write a line to stderr; names of files and tags in it may contain anything."""
        text, live = on_one_line(text), self.live
        if live is None:
            self._write(sys.stderr, text)
        else:
            with contextlib.suppress(OSError):  # the terminal was closed
                live.print(text, markup=False, highlight=False, soft_wrap=True)

    def json(self, kind: str, /, **values: Any) -> None:
        """Write an object of this ``type`` to stdout, in one line."""
        self.out(json.dumps({"type": kind, **values}, default=str))

    def error(self, text: str) -> None:
        """Write the line that reports why the command failed."""
        Console.failed = True
        self.err(f"bgsoft: error: {text}")

    def close(self) -> None:
        """Flush, so that nothing is left to fail when the interpreter exits."""
        for stream in (sys.stdout, sys.stderr):
            with self._lock, _silenced_on_error(stream):
                stream.flush()

    def _write(self, stream: TextIO, text: str) -> None:
        encoding = stream.encoding or "ascii"
        with self._lock, _silenced_on_error(stream):
            try:
                stream.write(text + "\n")
            except UnicodeEncodeError:  # LANG=C, and a file name with other characters
                stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            stream.flush()


def rich_console(*, stderr: bool = False) -> RichConsole:
    """Return a rich console; plain under ``NO_COLOR``, where rich keeps bold and dim."""
    from rich.console import Console as RichConsole

    color_system = None if os.environ.get("NO_COLOR") else "auto"
    return RichConsole(stderr=stderr, highlight=False, color_system=color_system)  # type: ignore[arg-type]


@contextlib.contextmanager
def traceback_on_error(*, wanted: bool) -> Iterator[None]:
    """Print the traceback of an exception, if wanted, and raise it again."""
    try:
        yield
    except Exception:
        if wanted:
            import traceback

            traceback.print_exc()
        raise


@contextlib.contextmanager
def _silenced_on_error(stream: TextIO) -> Iterator[None]:
    """Redirect a stream to nowhere after it fails."""
    try:
        yield
    except OSError as exc:
        if stream is sys.stdout and not isinstance(exc, BrokenPipeError):
            Console.unwritten = exc
        # A stream without a descriptor cannot be redirected.
        with contextlib.suppress(OSError, ValueError):
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, stream.fileno())
            os.close(sink)
