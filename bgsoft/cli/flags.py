"""Commands made from their own flags and the flags of the settings they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bgsoft.cli.console import traceback_on_error
from bgsoft.errors import ConfigError
from bgsoft.records import NamedTuple
from bgsoft.settings.options import (
    DEFAULT_PRESET,
    OPTIONS,
    TEXTS,
    Option,
    field_type,
    settings_from_options,
)

OUTPUT = OPTIONS["codec"].panel
"""Title above the flags of the output."""


_EXAMPLES = "\b\nExamples:\n"
_BRIEF_EXAMPLES = 4
_HELP_ALL = "bgsoft.help-all"
"""Key of a context's ``meta``: show the long help."""


class Brief(NamedTuple):
    """The short help of a command's own flag, in its ``Annotated`` type."""

    text: str = ""
    """Empty: only ``--help-all`` shows the flag."""
    metavar: str = ""
    """Placeholder of its value in the short help; empty: as in the long help."""


class GroupedCommand(typer.core.TyperCommand):
    """A command whose help is grouped by ``rich_help_panel``, in plain text.

    typer itself only groups in rich markup, whose import would triple the time to the help.
    """

    briefs: Callable[[], Mapping[str, tuple[str, str]]] | None = None
    """Returns parameter → (placeholder, line) of the short help. A missing parameter has its whole
    help; an empty line omits it. None: there is only one help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject empty values, such as those of an unset variable: the path «» means «.»."""
        if not ctx.resilient_parsing:
            given = self.make_parser(ctx).parse_args(list(args))[0]
            for param in self.get_params(ctx):
                texts = given.get(str(param.name))
                texts = list(texts) if isinstance(texts, list | tuple) else [texts]
                if "" in texts:
                    name = _given_name(param, last=texts[-1] == "")
                    raise ConfigError(f"{name} must not be empty")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        briefs = {} if self.briefs is None or ctx.meta.get(_HELP_ALL) else self.briefs()
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            brief = briefs.get(str(param.name))
            if record is not None and brief is not None:
                metavar, text = brief
                name = record[0]
                if metavar and param.metavar:
                    name = name.replace(param.metavar, metavar)
                record = (name, text) if text else None
            if record is not None:
                is_argument = param.param_type_name == "argument"
                panel = getattr(param, "rich_help_panel", None)
                title = "Arguments" if is_argument else panel or "Other"
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the epilog; after the short help, only a few of its examples."""
        whole = self.epilog
        if self.briefs is not None and not ctx.meta.get(_HELP_ALL):
            *_, shown = str(whole).partition(_EXAMPLES)
            self.epilog = _EXAMPLES + "".join(shown.splitlines(keepends=True)[:_BRIEF_EXAMPLES])
        try:
            super().format_epilog(ctx, formatter)
        finally:
            self.epilog = whole


def _given_name(param: Any, *, last: bool) -> str:
    """Return the name of a flag or argument; of several arguments, the last's or the others'."""
    if param.param_type_name == "argument":
        names = param.metavar.split()
        return str(names[-1 if last else 0].strip("[]."))
    return str(max(param.opts, key=len))


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's help."""
    return _EXAMPLES + "\n".join(f"  bgsoft {command}" for command in commands)


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a shell completion from a list of names."""
    # typer passes its own parameters by these names
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def preset_names() -> list[str]:
    """Return the names of the shipped presets and the user's own."""
    from bgsoft.settings.presets import list_presets

    return [path.stem for path in list_presets()]


def _model_names() -> list[str]:
    from bgsoft.models.catalog import catalog

    return [spec.name for spec in catalog().values() if spec.of_family.makes_masks]


def option(help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Declare a flag whose help states its default."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


Input = Annotated[
    Path,
    typer.Argument(
        metavar="IN",
        help="Video or picture to read; or pictures, as a folder or frames/%05d.png.",
        readable=False,
    ),
    Brief("Video or picture to read."),
]
Preset = Annotated[
    str | None,
    option(
        "Named settings to start from (see: bgsoft presets list); other flags override them."
        f" [default: {DEFAULT_PRESET}]",
        metavar="NAME|FILE.toml",
        panel=OPTIONS["effect"].panel,
        autocompletion=completion(preset_names),
    ),
    Brief("Settings to start from (bgsoft presets list)."),
]
Progress = Annotated[
    str,
    typer.Option(
        metavar="auto|rich|plain|json|none",
        help="auto: live on a terminal, otherwise plain lines; json: one object a line on stdout.",
    ),
    Brief(),
]
Quiet = Annotated[bool, option("Print errors only.", "--quiet", "-q")]
Verbose = Annotated[bool, option("Also print the traceback of an error.", "--verbose", "-v")]


Own = TypeVar("Own")
"""Dataclass of a command's own flags and arguments, each an ``Annotated`` field."""


def add_command(
    app: typer.Typer,
    command: Callable[[Own, dict[str, dict[str, Any]]], int],
    own: type[Own],
    *,
    epilog: str,
    settings: Collection[str] = (),
    brief_settings: Collection[str] | None = None,
    defaults: Mapping[str, str] | None = None,
    cls: type[GroupedCommand] = GroupedCommand,
) -> None:
    """Add a command to the program.

    Args:
        app: The program.
        command: Takes its flags and the given settings (section → field → value), and returns the
            exit code. The command has its name and its docstring.
        own: Its flags, with ``verbose``; those of ``settings`` follow ``preset``, or precede
            ``overwrite``.
        epilog: End of its help.
        settings: Names of the settings with a flag. Their default is None, so that a preset
            applies.
        brief_settings: Settings in the short help; None: all.
        defaults: Setting → default of the command in the help, where it is another than a render's.
        cls: Class of the command's parser.
    """
    parameters = list(inspect.signature(own, eval_str=True).parameters.values())
    names = [parameter.name for parameter in parameters]
    options = {name: OPTIONS[name] for name in settings}
    for name, shown in (defaults or {}).items():
        options[name] = options[name].defaulting_to(shown)
    if settings:
        after = names.index("preset") + 1 if "preset" in names else names.index("overwrite")
        parameters[after:after] = map(_parameter, options.values())
        parameters.append(_HELP_ALL_PARAMETER)

        def briefs() -> dict[str, tuple[str, str]]:
            chosen = settings if brief_settings is None else brief_settings
            hidden = dict.fromkeys(settings, ("", ""))
            return hidden | {name: options[name].brief for name in chosen} | _own_briefs(parameters)

        cls = type(cls.__name__, (cls,), {"briefs": staticmethod(briefs)})

    def run(**values: Any) -> int:
        with traceback_on_error(wanted=values["verbose"]):
            flags = own(**{name: values.pop(name) for name in names})
            return command(flags, settings_from_options(values, from_text=True))

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(command.__name__, cls=cls, epilog=epilog)(run)


def _own_briefs(parameters: Iterable[inspect.Parameter]) -> dict[str, tuple[str, str]]:
    """Return the short help of a command's own flags that have one."""
    return {
        parameter.name: (each.metavar, each.text)
        for parameter in parameters
        for each in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(each, Brief)
    }


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[_HELP_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


_HELP_ALL_PARAMETER = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        option(
            "Show every flag.", "--help-all", callback=_show_all, is_eager=True, expose_value=False
        ),
    ],
)


def add_group(
    app: typer.Typer, name: str, help: str, commands: Mapping[str, Callable[..., int]]
) -> None:
    """Add commands under one name; each is given by an example, ``NAME COMMAND ...``."""
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
