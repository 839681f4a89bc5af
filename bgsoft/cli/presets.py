"""``bgsoft presets``: what presets there are, and what one sets."""

from __future__ import annotations

from typing import Annotated

import typer

from bgsoft.cli import flags


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(
        name="presets",
        help="Named settings for --preset: list them, show one.",
        rich_markup_mode=None,
        no_args_is_help=False,
        epilog=flags.examples("presets list", "presets show soft > mine.toml"),
    )
    group.command("list", epilog=flags.examples("presets list"))(list_)
    group.command("show", epilog=flags.examples("presets show soft > mine.toml"))(show)
    app.add_typer(group)


def list_() -> int:
    """List the presets by name."""
    from bgsoft.cli.console import Console
    from bgsoft.errors import PresetError
    from bgsoft.settings.presets import list_presets, load_preset, user_folder

    console = Console()
    for path in list_presets():
        try:
            description = load_preset(path.stem).description
        except PresetError as exc:  # one bad file of the user's must not hide the others
            description = f"unusable: {exc}"
        console.out(f"{path.stem:<10} {description}")
    console.err(f"Your own go into {user_folder()}/NAME.toml")
    return 0


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.toml",
            help="Preset to show.",
            autocompletion=flags.complete_preset,
        ),
    ],
    all_settings: Annotated[
        bool,
        typer.Option("--all", help="Show every setting in force, defaults too, as a preset file."),
    ] = False,
) -> int:
    """Show a preset's file; copy it to make your own."""
    from bgsoft.cli.console import Console
    from bgsoft.settings.presets import as_toml, load_preset

    preset = load_preset(name)
    console = Console()
    if all_settings:
        console.out(as_toml(preset).rstrip("\n"))
    else:
        console.out(f"# {preset.path}")
        console.out(preset.path.read_text(encoding="utf-8").rstrip("\n"))
    return 0
