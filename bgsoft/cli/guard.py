"""A child process for commands that read files of others.

A library that crashes on a file ends its process. The parent process then cleans up, reports the
crash in one line, and ends with an exit code of this program.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from bgsoft import startup
from bgsoft.cli import process
from bgsoft.cli.console import Console
from bgsoft.errors import BackendUnavailableError

_SHOW_CURSOR = "\x1b[?25h"
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SI_KERNEL = 0x80
"""Origin of a terminal's signals, which reach all processes of a command (``sigaction(2)``)."""
_PR_SET_PDEATHSIG = 1
"""See ``prctl(2)``."""


def go_on_in_child(what: str, clean_up: Callable[[], object] = lambda: None) -> None:
    """Continue in a child process; the parent waits for it, and ends with its exit code.

    It does nothing in a process that continues after the command, which may have threads. Forking
    takes 2 ms; the parent has no thread and has loaded no library.

    Args:
        what: Work that fails if the child crashes, e.g. ``render in.mp4``.
        clean_up: Removes the child's leftovers after a crash.
    """
    if not process.ends_after_command or sys.platform != "linux":
        return
    # Signals that nohup or a shell's «&» has disabled stay disabled.
    forwarded = {each for each in _FORWARDED if signal.getsignal(each) is not signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError as exc:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise BackendUnavailableError(
            f"cannot {what}: the system starts no process: {exc.strerror}"
        ) from exc
    if child == 0:
        _die_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    status, stopped_by_force = _wait(child, forwarded)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):
            clean_up()
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)
            sys.stderr.flush()
        if stopped_by_force:
            why = "stopped by force; an unfinished file may be left behind"
            process.exit_at_once(128 + signal.SIGINT, why)
        code = _report(what, code)
    os._exit(code)


def _die_with(parent: int) -> None:
    """Have the system kill this process when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    startup.forked_from = parent


def _wait(child: int, forwarded: set[signal.Signals]) -> tuple[int, bool]:
    """Forward signals until the child ends, or kill it at the second Ctrl-C in a terminal.

    Returns:
        The child's status, and whether it was stopped by force.
    """
    typed = 0
    while True:
        received = signal.sigwaitinfo({*forwarded, signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status, typed > 1
        elif received.si_code != _SI_KERNEL:
            os.kill(child, received.si_signo)
        elif received.si_signo == signal.SIGINT:
            typed += 1
            if typed > 1:
                os.kill(child, signal.SIGKILL)


def _report(what: str, code: int) -> int:
    """Report how the child ended; return the exit code."""
    from bgsoft.errors import WorkerCrashedError
    from bgsoft.exitcodes import exit_code
    from bgsoft.jobs.pool import death

    error = death(code)
    hint = ""
    if isinstance(error, WorkerCrashedError):
        hint = ", as libraries do on damaged files; convert the file with ffmpeg, and try again"
    Console().error(f"cannot {what}: its process {error}{hint}")
    return exit_code(error)
