"""``bgsoft presets``: list presets, and show their settings."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bgsoft.cli import flags
from bgsoft.cli.console import Console, on_one_line


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    flags.add_group(
        app,
        "presets",
        "List or show presets: named settings for --preset.",
        {"presets list": list_, "presets show soft > mine.toml": show},
    )


def list_() -> int:
    """List the presets by name."""
    from bgsoft.errors import PresetError
    from bgsoft.settings.presets import ignored_text, list_presets, load_preset, user_folder
    from bgsoft.settings.user import config_path

    console = Console()
    for path in list_presets():
        try:
            description = load_preset(path.stem).description
        except PresetError as exc:  # a malformed file must not hide the others
            description = f"unusable: {exc}"
        console.out(on_one_line(f"{path.stem:<10} {description}"))
        if (ignored := ignored_text(path)) is not None:
            console.err(ignored)
    folder = user_folder()
    try:
        os.scandir(folder).close()
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):
            console.err(f"cannot read {folder}: {exc.strerror}")
    console.err(f"Your own go into {folder}/NAME.toml")
    if (config := config_path()) is not None:
        console.err(f"Your own defaults go into {config}")
    return 0


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.toml",
            help="Preset to print.",
            autocompletion=flags.completion(flags.preset_names),
        ),
    ],
    all_settings: Annotated[
        bool,
        typer.Option("--all", help="Print every setting, including defaults, as a preset file."),
    ] = False,
) -> int:
    """Print a preset's file; save a copy to make your own."""
    from bgsoft.settings.presets import as_toml, load_preset

    preset = load_preset(name)
    text = as_toml(preset)
    if not all_settings:
        text = f"# {preset.path}\n{preset.path.read_text(encoding='utf-8')}"
    Console().out(text.rstrip("\n"))
    return 0
