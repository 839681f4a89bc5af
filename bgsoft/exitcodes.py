"""Exit codes of the program, and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from bgsoft.errors import (
    BackendUnavailableError,
    BgsoftError,
    ConfigError,
    DecodeError,
    ModelError,
    OpenError,
    OutputError,
    RenderCancelledError,
    UnsupportedFormatError,
    WorkerCrashedError,
)


class ExitCode(IntEnum):
    """Exit status of the program. Documented in ``bgsoft --help``; never renumbered."""

    OK = 0
    RENDER_FAILED = 1
    USAGE = 2
    """Wrong usage or configuration."""
    INPUT = 3
    """The input is unreadable or unsupported."""
    UNAVAILABLE = 4
    """A backend or model is unavailable."""
    OUTPUT = 5
    """The output is not writable."""
    INTERRUPTED = 130
    """Ctrl-C: 128 + SIGINT, as shells count."""
    TERMINATED = 143
    """128 + SIGTERM."""


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ConfigError, ExitCode.USAGE),
    (BackendUnavailableError, ExitCode.UNAVAILABLE),
    (ModelError, ExitCode.UNAVAILABLE),
    (OpenError, ExitCode.INPUT),
    (UnsupportedFormatError, ExitCode.INPUT),
    (DecodeError, ExitCode.INPUT),
    (WorkerCrashedError, ExitCode.INPUT),
    (OutputError, ExitCode.OUTPUT),
    (RenderCancelledError, ExitCode.INTERRUPTED),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
)


_SHORTAGES = (
    (ImportError, "failed to map segment from shared object", "cannot load a library"),
    (RuntimeError, "can't start new thread", "cannot start"),
)
"""Errors of libraries and of Python where memory runs out: type, text, and what cannot be done."""


def exit_code(exc: BaseException) -> ExitCode:
    """Return the exit code for an exception."""
    if isinstance(exc, UnsupportedFormatError) and exc.stage == "encode":
        return ExitCode.USAGE  # the input is supported, the requested output is not
    codes = (code for kind, code in _CODES if isinstance(exc, kind))
    return next(codes, ExitCode.RENDER_FAILED)


def error_of(code: int) -> type[BaseException]:
    """Return the type of error behind an exit code of this program."""
    return next((kind for kind, each in _CODES if each == code), BgsoftError)


def one_line(exc: BaseException) -> str:
    """Format an exception for the user, in one line."""
    text = " ".join(str(exc).split())
    if isinstance(exc, BgsoftError):
        where = f"{exc.stage}: " if exc.stage and exit_code(exc) is ExitCode.RENDER_FAILED else ""
        if exc.path is not None and Path(exc.path).name not in text:
            where += f"{exc.path}: "
        return where + text
    if isinstance(exc, KeyboardInterrupt):
        return "interrupted"
    if isinstance(exc, MemoryError):
        return "out of memory"
    if isinstance(exc, OSError):
        return text
    for kind, reason, problem in _SHORTAGES:
        if isinstance(exc, kind) and reason in text:
            return f"{problem}: {reason}; free memory, or raise limits such as ulimit -v"
    return f"internal error: {type(exc).__name__}: {text} (-v shows where)"
