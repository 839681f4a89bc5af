"""A child process for commands that read other people's files.

A library that crashes on a file takes its process down. The process that was started then still
cleans up, says so in one line, and ends with an exit code of this program.
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
"""Origin of a terminal's signals, which go to all processes of a command (``sigaction(2)``)."""
_PR_SET_PDEATHSIG = 1
"""See ``prctl(2)``."""


def go_on_in_child(what: str, clean_up: Callable[[], object] = lambda: None) -> None:
    """Return in a child process; the parent waits for it, and ends as it does.

    Does nothing where the process goes on after the command, which may have threads then. To fork
    takes 2 ms; the parent has no thread yet and loads no library.

    Args:
        what: What cannot be done if the child crashes, e.g. ``render in.mp4``.
        clean_up: Removes what the child has left, if it crashes.
    """
    if not process.ends_after_command or sys.platform != "linux":
        return
    # Signals that nohup or a shell's «&» has switched off stay off.
    forwarded = {each for each in _FORWARDED if signal.getsignal(each) is not signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError as exc:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise BackendUnavailableError(
            f"cannot {what}: no process can be made: {exc.strerror}"
        ) from exc
    if child == 0:
        _die_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    code = os.waitstatus_to_exitcode(_wait(child, forwarded))
    if code < 0:
        with suppress(OSError):
            clean_up()
        code = _report(what, code)
    os._exit(code)


def _die_with(parent: int) -> None:
    """Have the system kill this process once its parent is gone."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    startup.forked_from = parent


def _wait(child: int, forwarded: set[signal.Signals]) -> int:
    """Pass signals on until the child ends; its status."""
    while True:
        received = signal.sigwaitinfo({*forwarded, signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif received.si_code != _SI_KERNEL:
            os.kill(child, received.si_signo)


def _report(what: str, code: int) -> int:
    """Say how the child ended; the exit code."""
    from bgsoft.errors import WorkerCrashedError
    from bgsoft.exitcodes import exit_code
    from bgsoft.jobs.pool import death

    error = death(code)
    hint = ""
    if isinstance(error, WorkerCrashedError):
        hint = ", as libraries do on damaged files; convert the file with ffmpeg, and try again"
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)
    Console().error(f"cannot {what}: its process {error}{hint}")
    return exit_code(error)
