"""Writing to the terminal: data to stdout, everything for people to stderr."""

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
    """Open those of the three standard streams that the caller has closed (``>&-``).

    Otherwise the next file that is opened would take their place, and what a library prints would
    end up in it. What is written to a closed stdout fails all the same.
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
    """A text in which a file's name may hold line ends, or what a terminal takes for commands."""
    return text.translate(_CONTROL)


class Console:
    """The two output streams of one command. Thread-safe.

    A stream that cannot be written falls silent and the command goes on, so that no render is lost
    with its messages. A reader that goes away (``bgsoft … | head``) is no failure at all.
    """

    failed = False
    """Whether any console of this process has said why the command failed."""
    unwritten: OSError | None = None
    """Why stdout could not be written, in any console of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.live: RichConsole | None = None
        """While something is drawn on stderr again and again: what writes above it."""

    @classmethod
    def forget(cls) -> None:
        """Begin a command: what an earlier one of this process met counts no more."""
        cls.failed, cls.unwritten = False, None

    def out(self, text: str = "") -> None:
        """Write a line to stdout."""
        self._write(sys.stdout, text)

    def err(self, text: str = "") -> None:
        """Write a line to stderr."""
        live = self.live
        if live is None:
            self._write(sys.stderr, text)
        else:
            with contextlib.suppress(OSError):  # the terminal is gone
                live.print(text, markup=False, highlight=False, soft_wrap=True)

    def json(self, kind: str, /, **values: Any) -> None:
        """Write an object, in one line, to stdout; ``type`` says what it is."""
        self.out(json.dumps({"type": kind, **values}, default=str))

    def error(self, text: str) -> None:
        """Write the one line that says why the command failed."""
        Console.failed = True
        self.err(f"bgsoft: error: {on_one_line(text)}")

    def close(self) -> None:
        """Flush, so that the interpreter finds nothing left to fail on at its end."""
        for stream in (sys.stdout, sys.stderr):
            with self._lock, _silenced_on_error(stream):
                stream.flush()

    def _write(self, stream: TextIO, text: str) -> None:
        encoding = stream.encoding or "ascii"
        with self._lock, _silenced_on_error(stream):
            try:
                stream.write(text + "\n")
            except UnicodeEncodeError:  # LANG=C and a file name beyond it
                stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            stream.flush()


def rich_console(*, stderr: bool = False) -> RichConsole:
    """A console for rich, plain where ``NO_COLOR`` is set: rich itself leaves bold and dim then."""
    from rich.console import Console as RichConsole

    color_system = None if os.environ.get("NO_COLOR") else "auto"
    return RichConsole(stderr=stderr, highlight=False, color_system=color_system)  # type: ignore[arg-type]


@contextlib.contextmanager
def traceback_on_error(wanted: bool) -> Iterator[None]:
    """Print where an exception came from, if wanted, and let it pass."""
    try:
        yield
    except Exception:
        if wanted:
            import traceback

            traceback.print_exc()
        raise


@contextlib.contextmanager
def _silenced_on_error(stream: TextIO) -> Iterator[None]:
    """Point a stream that turns out not to be writable at nothing."""
    try:
        yield
    except OSError as exc:
        if stream is sys.stdout and not isinstance(exc, BrokenPipeError):
            Console.unwritten = exc
        # A stream without a descriptor has nothing to redirect.
        with contextlib.suppress(OSError, ValueError):
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, stream.fileno())
            os.close(sink)
