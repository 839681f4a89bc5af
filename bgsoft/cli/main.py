"""Start and end of the program.

Few modules are imported at the top, so that even an early Ctrl-C ends with one line and exit code
130.
"""

from __future__ import annotations

import os
import signal
import sys

from bgsoft.cli import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import NoReturn

    Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Returns:
        The exit code (:class:`bgsoft.exitcodes.ExitCode`). Every failure has printed exactly
        one line on stderr.
    """
    from bgsoft.cli.app import execute
    from bgsoft.cli.console import Console, open_standard_streams
    from bgsoft.exitcodes import ExitCode

    open_standard_streams()
    console = Console()
    Console.forget()
    early = signal.getsignal(signal.SIGINT) is _quit
    others: list[int] = []
    """Signals other than Ctrl-C's that ended it."""

    def terminate(number: int, _frame: FrameType | None) -> None:
        if not others:  # a second one must not stop the removal of temporary files
            others.append(number)
            raise KeyboardInterrupt

    def repeat(lost: sys.UnraisableHookArgs) -> None:
        """Send a signal again that raised where exceptions are lost, as in a weakref's callback."""
        if lost.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(lost)
            return
        number = others.pop() if others else signal.SIGINT
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # by then, Python has left the callback

    try:
        if early:
            sys.unraisablehook = repeat
            _handle(signal.default_int_handler, terminate)
        code = execute(sys.argv[1:] if argv is None else argv, console)
        if early:
            _handle(signal.SIG_IGN, signal.SIG_IGN)  # all work is done
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED and others:
        code = ExitCode.TERMINATED
    if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED) and not Console.failed:
        console.error(f"{ExitCode(code).name.lower()}; no output was written")
    console.close()
    if code == ExitCode.OK and Console.unwritten is not None:
        from pathlib import Path

        from bgsoft.outputs import write_error

        console.error(str(write_error(Console.unwritten, Path("stdout"))))
        code = ExitCode.OUTPUT
    return code


def run() -> NoReturn:
    """Run the program as a process of its own.

    Everything is closed when :func:`main` returns, so the process exits at once. A regular
    shutdown of the interpreter takes 35 ms more for each file of a shell loop.
    """
    process.ends_after_command = True
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _quit)
    # NumPy's import would leave OpenBLAS's threads spinning for a tenth of a second, one a core;
    # nothing here multiplies large matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)


def _handle(interrupt: Handler, others: Handler) -> None:
    """Set handlers of Ctrl-C and of other terminating signals, unless nohup has disabled them."""
    signal.signal(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, others)


def _quit(_number: int, _frame: FrameType | None) -> NoReturn:
    """Exit at once: no work has begun."""
    process.exit_at_once(130, "interrupted; no output was written")
