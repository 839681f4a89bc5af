"""The flags that several commands share: those of the settings, made from their declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.settings.options import OPTIONS, TEXTS, Option, field_type

OUTPUT = OPTIONS["codec"].panel
"""Title above the flags of what is written."""


class GroupedCommand(typer.core.TyperCommand):
    """A command whose long help is divided by ``rich_help_panel``, in plain text.

    typer itself groups only in rich markup, whose import would triple the time to the help.
    """

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


def examples(*commands: str) -> str:
    """The end of a command's help: how it is used, line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  bgsoft {command}" for command in commands)


def complete_preset(incomplete: str) -> list[str]:
    """Names of presets that begin so, for the shell."""
    from bgsoft.settings.presets import list_presets

    return [path.stem for path in list_presets() if path.stem.startswith(incomplete)]


def _complete_model(incomplete: str) -> list[str]:
    from bgsoft.models.catalog import SEGMENTATION_FAMILIES, catalog

    return [
        spec.name
        for spec in catalog().values()
        if spec.family in SEGMENTATION_FAMILIES and spec.name.startswith(incomplete)
    ]


def option(help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """A flag as the program shows all of them: what the default is, its help says."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


Input = Annotated[Path, typer.Argument(metavar="IN", help="Video to read.", readable=False)]
Preset = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE.toml",
        rich_help_panel=OPTIONS["effect"].panel,
        autocompletion=complete_preset,
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


def with_settings(command: Callable[..., int], names: Iterable[str]) -> Callable[..., int]:
    """Give a command the flags of settings, which it takes as ``**settings``.

    They come after its ``preset``, and hold None where they are not given, so that a preset shows
    through. Their values are text, read by
    :func:`bgsoft.settings.options.settings_from_options`.
    """
    signature = inspect.signature(command, eval_str=True)
    *own, _ = signature.parameters.values()
    at = [parameter.name for parameter in own].index("preset") + 1
    own[at:at] = [_parameter(OPTIONS[name]) for name in names]
    command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    command.__annotations__ = {}  # typer would look at them once more
    return command


def _parameter(setting: Option) -> inspect.Parameter:
    kind: Any = str | None
    names = [setting.flag]
    more: dict[str, Any] = {"metavar": setting.metavar}
    if setting.field.default is False:
        kind, more = bool, {}
        names += [setting.setting.short] if setting.setting.short else []
    elif field_type(setting.section, setting.field.name)[0] == TEXTS:
        kind = list[str] | None
    elif setting.name == "model":
        more["autocompletion"] = _complete_model
    elif words := setting.choices:
        # typer passes its own parameters by these names
        more["autocompletion"] = lambda incomplete: [w for w in words if w.startswith(incomplete)]
    flag = typer.Option(
        False if kind is bool else None,
        *names,
        help=setting.help,
        rich_help_panel=setting.panel,
        show_default=False,
        **more,
    )
    return inspect.Parameter(
        setting.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=flag, annotation=kind
    )
