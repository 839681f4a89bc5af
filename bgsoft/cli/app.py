"""The program's commands, and the message and exit code of a failure.

This module and the top of a command's module import nothing heavy: ``bgsoft --help`` must answer
at once. Of the commands, only the one that runs is imported and gets its flags.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from bgsoft.cli.console import Console
from bgsoft.cli.flags import option
from bgsoft.exitcodes import ExitCode, exit_code, one_line

_EPILOG = (
    "Exit codes: 0 ok, 1 render failed or comparison missed its limits, 2 wrong usage or"
    " settings, 3 input unreadable or unsupported, 4 backend or model unavailable, 5 output"
    " not writable, 130 interrupted, 143 terminated."
)

_COMMANDS = (
    "render",
    "batch",
    "live",
    "preview",
    "faces",
    "bench",
    "presets",
    "models",
    "compare",
    "review",
    "doctor",
)
"""Modules of this package, in the order of the help."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from bgsoft import __version__

        typer.echo(f"bgsoft {__version__}")
        raise typer.Exit


def _program(
    ctx: typer.Context,
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Soften, replace or cut out the background behind people in videos.

    Start with: bgsoft render in.mp4
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def program(names: Sequence[str] = _COMMANDS) -> typer.Typer:
    """Return the program with some of its commands."""
    app = typer.Typer(
        name="bgsoft",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_EPILOG,
    )
    app.callback()(_program)
    for name in names:
        importlib.import_module(f"bgsoft.cli.{name}").register(app)
    return app


# Depending on its version, typer has its own copy of click or uses click itself. This is the base
# of errors for a wrong option, argument or command in both.
_USAGE_ERROR = typer.BadParameter.__mro__[1]


@cache
def _parser(names: Sequence[str]) -> Any:
    """Return the parser of some commands; making one takes longer than many a command."""
    return typer.main.get_command(program(names))


def execute(argv: Sequence[str], console: Console) -> int:
    """Run a command; a failure has printed one line on stderr."""
    named = tuple(name for name in argv[:1] if name in _COMMANDS)
    command = _parser(named or _COMMANDS)
    try:
        # Commands return their exit code, which main() passes on without standalone mode.
        result = command.main(args=list(argv), prog_name="bgsoft", standalone_mode=False)
    except typer.Abort as exc:
        if isinstance(exc.__cause__, EOFError):  # of a fault: no command asks the user
            console.error(one_line(exc.__cause__))
            return ExitCode.RENDER_FAILED
        return ExitCode.INTERRUPTED
    except Exception as exc:
        if _is_interrupt(exc):
            return ExitCode.INTERRUPTED
        if isinstance(exc, _USAGE_ERROR):
            console.error(_usage_text(exc, argv))
            return ExitCode.USAGE
        if isinstance(exc, OSError) and _is_typers(exc):
            Console.unwritten = exc
            return ExitCode.OK
        console.error(one_line(exc))
        return exit_code(exc)
    return result if isinstance(result, int) else ExitCode.OK


def _is_interrupt(exc: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error, such as an extension module's ImportError."""
    while exc is not None and not isinstance(exc, KeyboardInterrupt):
        exc = exc.__cause__
    return exc is not None


def _is_typers(exc: Exception) -> bool:
    """Return whether an error was raised in typer's own code, which prints help and version."""
    *_, (frame, _line) = traceback.walk_tb(exc.__traceback__)
    module: str = frame.f_globals["__name__"]
    return module.partition(".")[0] == _USAGE_ERROR.__module__.partition(".")[0]


def _usage_text(exc: Exception, argv: Sequence[str]) -> str:
    from bgsoft.cli.other_names import unknown_command, unknown_flag

    text = " ".join(exc.format_message().split()) if hasattr(exc, "format_message") else str(exc)
    context = getattr(exc, "ctx", None)
    path = context.command_path if context is not None else "bgsoft"
    flag = getattr(exc, "option_name", None) if type(exc).__name__ == "NoSuchOption" else None
    if flag is not None and path == "bgsoft":
        text = f"no such option: {flag}; begin with a command: bgsoft render IN [OUT]"
    elif flag is not None and context is not None:
        known = {name for param in context.command.params for name in param.opts}
        text = unknown_flag(flag, argv, known | {"--help"})
    elif path == "bgsoft" and argv and argv[0] not in _COMMANDS and not argv[0].startswith("-"):
        text = unknown_command(argv[0], _COMMANDS)
    text = f"cannot run {path}: {text[:1].lower()}{text[1:].rstrip('.')}"
    return text if "--help" in text else f"{text} (see {path} --help)"
