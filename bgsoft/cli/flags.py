"""Commands made from their flags: those of their own, and those of the settings they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bgsoft.cli.console import traceback_on_error
from bgsoft.errors import ConfigError
from bgsoft.settings.options import OPTIONS, TEXTS, Option, field_type, settings_from_options

OUTPUT = OPTIONS["codec"].panel
"""Title above the flags of what is written."""


class GroupedCommand(typer.core.TyperCommand):
    """A command whose long help is divided by ``rich_help_panel``, in plain text.

    typer itself groups only in rich markup, whose import would triple the time to the help.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is given and empty, as by an unset variable: as a path it would be «.»."""
        if not ctx.resilient_parsing:
            given = self.make_parser(ctx).parse_args(list(args))[0]
            for param in self.get_params(ctx):
                texts = given.get(str(param.name))
                texts = list(texts) if isinstance(texts, list | tuple) else [texts]
                if "" in texts:
                    raise ConfigError(f"{_given_name(param, last=texts[-1] == '')} is empty")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                is_argument = param.param_type_name == "argument"
                panel = getattr(param, "rich_help_panel", None)
                title = "Arguments" if is_argument else panel or "Other"
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _given_name(param: Any, *, last: bool) -> str:
    """What a flag or an argument is called; of an argument's several, the last or the others."""
    if param.param_type_name == "argument":
        names = param.metavar.split()
        return str(names[-1 if last else 0].strip("[]."))
    return str(max(param.opts, key=len))


def examples(*commands: str) -> str:
    """The end of a command's help: how it is used, line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  bgsoft {command}" for command in commands)


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A shell completion from the names that there are."""
    # typer passes its own parameters by these names
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def preset_names() -> list[str]:
    """The presets that come with bgsoft, and the user's own."""
    from bgsoft.settings.presets import list_presets

    return [path.stem for path in list_presets()]


def _model_names() -> list[str]:
    from bgsoft.models.catalog import SEGMENTATION_FAMILIES, catalog

    return [spec.name for spec in catalog().values() if spec.family in SEGMENTATION_FAMILIES]


def option(help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """A flag as the program shows all of them: what the default is, its help says."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


Input = Annotated[
    Path,
    typer.Argument(
        metavar="IN",
        help="Video or picture to read; or pictures, as a folder or frames/%05d.png.",
        readable=False,
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE.toml",
        rich_help_panel=OPTIONS["effect"].panel,
        autocompletion=completion(preset_names),
        help="Start from these settings (see: bgsoft presets list); other flags win over it.",
    ),
]
Progress = Annotated[
    str,
    typer.Option(
        metavar="auto|rich|plain|json|none",
        help="auto: live on a terminal, else plain lines; json: one object a line on stdout.",
    ),
]
Quiet = Annotated[bool, option("Only print errors.", "--quiet", "-q")]
Verbose = Annotated[bool, option("Also print where an error came from.", "--verbose", "-v")]


Own = TypeVar("Own")
"""A dataclass of a command's own flags and arguments, each an ``Annotated`` field."""


def add_command(
    app: typer.Typer,
    command: Callable[[Own, dict[str, dict[str, Any]]], int],
    own: type[Own],
    *,
    epilog: str,
    settings: Iterable[str] = (),
    cls: type[GroupedCommand] = GroupedCommand,
) -> None:
    """Add a command to the program.

    Args:
        app: The program.
        command: Takes its flags, and the settings that were given (section → field → value);
            returns the exit code. Its name and its docstring are the command's.
        own: Its flags, ``verbose`` among them; those of ``settings`` come after its ``preset``.
        epilog: The end of its help.
        settings: Names of the settings that have a flag. These hold None where they are not given,
            so that a preset shows through.
        cls: How its line is parsed.
    """
    parameters = list(inspect.signature(own, eval_str=True).parameters.values())
    names = [parameter.name for parameter in parameters]
    if settings:
        after = names.index("preset") + 1
        parameters[after:after] = [_parameter(OPTIONS[name]) for name in settings]

    def run(**values: Any) -> int:
        with traceback_on_error(values["verbose"]):
            flags = own(**{name: values.pop(name) for name in names})
            return command(flags, settings_from_options(values, from_text=True))

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(command.__name__, cls=cls, epilog=epilog)(run)


def add_group(
    app: typer.Typer, name: str, help: str, commands: Mapping[str, Callable[..., int]]
) -> None:
    """Add commands under one name; each by an example, ``NAME COMMAND ...``."""
    group = typer.Typer(name=name, help=help, rich_markup_mode=None, epilog=examples(*commands))
    for example, command in commands.items():
        group.command(example.split()[1], epilog=examples(example))(command)
    app.add_typer(group)


def _parameter(setting: Option) -> inspect.Parameter:
    kind: Any = str | None
    names = [setting.flag, *filter(None, [setting.setting.short])]
    more: dict[str, Any] = {"metavar": setting.metavar}
    if setting.field.default is False:
        kind, more = bool, {}
    elif field_type(setting.section, setting.field.name)[0] == TEXTS:
        kind = list[str] | None
    elif setting.name == "model":
        more["autocompletion"] = completion(_model_names)
    elif words := setting.choices:
        more["autocompletion"] = completion(lambda: words)
    flag = option(setting.help, *names, panel=setting.panel, **more)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind, flag],
    )
