"""Presets: TOML files of settings, found by name, merged and turned into a RenderConfig.

Defaults < preset < flags. A preset has the sections of :class:`bgsoft.settings.config.RenderConfig`
with their fields as keys, and ``description`` and ``extends`` at the top.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bgsoft.errors import ConfigError, OutputError, PresetError, errors_as, os_errors_as
from bgsoft.outputs import write_whole
from bgsoft.records import NamedTuple
from bgsoft.settings.config import FaceMode, RenderConfig
from bgsoft.settings.options import PICTURE_SECTIONS, SECTIONS, effect_for, read_value
from bgsoft.settings.setting import declared
from bgsoft.suggestions import did_you_mean
from bgsoft.untrusted import read_toml

_MAX_PARENTS = 32
_NAME = r"[A-Za-z0-9_-]{1,64}"

_RENAMED: Mapping[str, str] = {"looks": "matte"}
"""Keys that presets had once → what they are called now; for the message."""

Layer: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Settings that are given: section → field → value of the field's type."""


class Preset(NamedTuple):
    """A loaded preset."""

    name: str
    description: str
    path: Path
    settings: Layer
    """Its parents' included."""
    config_file: Path | None = None
    """The user's defaults that are merged with it."""


class PresetFile(NamedTuple):
    """One file of settings, as it stands."""

    description: str
    extends: str
    """Name or path of its parent; empty: it has none."""
    settings: Layer
    """Its own."""


def shipped_folder() -> Path:
    """The folder of the presets that come with bgsoft: in the package, or in a checkout."""
    installed = Path(__file__).parents[1] / "presets_data"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "presets"


def config_folder() -> Path:
    """The folder of the user's own settings: ``$XDG_CONFIG_HOME/bgsoft`` or ``~/.config/bgsoft``.

    Every render looks there. The import of platformdirs, which would say the same on Linux, takes
    4 ms.
    """
    home = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return Path(home or os.path.expanduser("~/.config")) / "bgsoft"  # noqa: PTH111 - without a home


def user_folder() -> Path:
    """The folder where users keep their own presets."""
    return config_folder() / "presets"


def list_presets() -> list[Path]:
    """Files of all presets that can be named, shipped ones first.

    A user's file with a shipped preset's name is left out: a name means the same everywhere.
    """
    files = sorted(shipped_folder().glob("*.toml"))
    shipped = {file.stem for file in files}
    return files + [f for f in sorted(user_folder().glob("*.toml")) if f.stem not in shipped]


def load_preset(name_or_path: str) -> Preset:
    """Find and read a preset, with its parents.

    Raises:
        PresetError: There is no such preset, or it is malformed.
    """
    return _load(name_or_path, ())


def merge(*layers: Layer) -> dict[str, dict[str, Any]]:
    """Lay settings over each other; later layers win."""
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, values in layer.items():
            target: Mapping[str, Any] = merged.get(section, {})
            if section == "face":
                values, target = _hide_everybody(values, target)
            if section == "effect" and values.get("background") and "kind" not in values:
                values = {**values, "kind": effect_for(values["background"])}
            for key, value in values.items():
                fields = SECTIONS[section].__dataclass_fields__
                if value != target.get(key, fields[key].default):
                    target = {
                        name: below
                        for name, below in target.items()
                        if declared(fields[name]).belongs_to != key
                    }
            merged[section] = {**target, **values}
    return {section: values for section, values in merged.items() if values}


def _hide_everybody(
    values: Mapping[str, Any], below: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A layer's face settings, and those below it, with what ``subjects = 0`` stands for.

    It is for anonymized faces only: asked for alone it chooses that mode, and another mode takes
    it back.
    """
    if values.get("subjects") == 0 and "mode" not in values:
        values = {**values, "mode": FaceMode.ANONYMIZE}
    elif values.get("mode", FaceMode.ANONYMIZE) is not FaceMode.ANONYMIZE:
        below = {k: v for k, v in below.items() if (k, v) != ("subjects", 0)}
    return values, below


def save_preset(name: str, config: RenderConfig, *, replaces: bool) -> Path:
    """Write settings in force as a preset of the user's: what makes the picture, not the rest.

    Raises:
        ConfigError: It is no name, or one that is taken.
        OutputError: It cannot be written.
    """
    if not re.fullmatch(_NAME, name):
        raise ConfigError(f"a preset's name has 1 to 64 letters, digits, - and _, not {name!r}")
    path = user_folder() / f"{name}.toml"
    if (shipped_folder() / path.name).exists():
        raise ConfigError(f"{name} is one of bgsoft's own presets: choose another name")
    if path.exists() and not replaces:
        raise ConfigError(f"there is a preset {name} already")
    description = f"Saved from the preview, on top of {config.preset or 'the defaults'}"
    with os_errors_as(OutputError, f"cannot make the folder {path.parent}", path=path):
        path.parent.mkdir(parents=True, exist_ok=True)
    settings = settings_of(config, (*PICTURE_SECTIONS, "copy"))
    preset = Preset(name=name, description=description, path=path, settings=settings)
    write_whole(path, "preset", as_toml(preset))
    return path


def settings_of(config: RenderConfig, sections: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Settings in force, for a preset anywhere: its own file is where a relative path starts."""
    settings: dict[str, dict[str, Any]] = {}
    for section in sections:
        part = getattr(config, section)
        settings[section] = {}
        for entry in dataclasses.fields(part):
            value = getattr(part, entry.name)
            if declared(entry).is_path and value is not None and Path(value).is_file():
                value = str(Path(value).absolute())
            settings[section][entry.name] = value
    return settings


def as_toml(preset: Preset) -> str:
    """Every setting that a preset leads to, defaults included, as a preset file.

    Settings that are None are written as ``off`` or, where that is the default, as comments: TOML
    has no null.

    Raises:
        ConfigError: A file that they name cannot be named in TOML, which is UTF-8.
    """
    lines = [f"description = {json.dumps(preset.description, ensure_ascii=False)}"]
    for section, kind in SECTIONS.items():
        lines += ["", f"[{section}]"]
        given = preset.settings.get(section, {})
        for entry in dataclasses.fields(kind):
            value = given.get(entry.name, entry.default)
            if value is None and entry.default is not None:
                value = "off"
            if value is None:
                lines.append(f"# {entry.name} is not set")
            else:  # for text, numbers and truth values JSON is TOML, but for one character
                text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
                lines.append(f"{entry.name} = {text}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("a name that is no UTF-8 cannot stand in a preset") from None
    return text


def _load(name_or_path: str, children: tuple[Path, ...], folder: Path | None = None) -> Preset:
    child = children[-1] if children else None
    if child is None:
        path = _find(name_or_path, None)
    else:
        with errors_as((PresetError,), PresetError, f"preset {child.name}: extends", path=child):
            path = _find(name_or_path, folder)
    if path in children:
        chain = " → ".join(p.stem for p in (*children, path))
        raise PresetError(f"presets extend each other in a circle: {chain}", path=path)
    if len(children) == _MAX_PARENTS:
        raise PresetError(f"preset {children[0].name} extends too many others", path=path)
    file = read_file(path, f"preset {path.name}")
    below = _load(file.extends, (*children, path), path.parent).settings if file.extends else {}
    return Preset(
        name=path.stem,
        description=file.description,
        path=path,
        settings=merge(below, file.settings),
    )


def read_file(path: Path, title: str) -> PresetFile:
    """Read one file, without its parents.

    Args:
        path: The file.
        title: What errors call it.

    Raises:
        PresetError: It cannot be read, or is malformed.
    """
    with (
        os_errors_as(PresetError, f"cannot read {title}", path=path),
        # Malformed TOML, not UTF-8, or a ConfigError.
        errors_as((ValueError,), PresetError, title, path=path),
    ):
        table = read_toml(path)
        return PresetFile(
            description=_top_text(table, "description"),
            extends=_top_text(table, "extends"),
            settings=_read_sections(table, path.parent),
        )


def names_file(name_or_path: str) -> bool:
    """Whether a preset is named by its file."""
    return name_or_path.endswith(".toml") or "/" in name_or_path


def _find(name_or_path: str, folder: Path | None) -> Path:
    """The file of a preset; ``folder`` is where a relative path of a parent starts."""
    name_or_path = os.fspath(name_or_path)
    if names_file(name_or_path):
        path = Path(name_or_path) if folder is None else folder / name_or_path
        if not os.path.isfile(path):  # noqa: PTH113 - also of a name too long
            problem = f"no such preset file: {path}"
            if os.path.isdir(path):  # noqa: PTH112
                problem = f"{path} is a folder, not a preset file"
            raise PresetError(problem, path=path)
        return path.resolve()
    for home in (shipped_folder, user_folder):
        path = home() / f"{name_or_path}.toml"
        if os.path.isfile(path):  # noqa: PTH113
            return path
    known = [file.stem for file in list_presets()]
    raise PresetError(f"unknown preset {name_or_path!r}{did_you_mean(name_or_path, known)}")


def _top_text(table: dict[str, Any], key: str) -> str:
    value = table.pop(key, "")
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be a text, not {value!r}")
    return value


def _read_sections(table: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Check and convert the sections of one file in a folder."""
    settings: dict[str, dict[str, Any]] = {}
    for section, values in table.items():
        if section not in SECTIONS:
            near = did_you_mean(section, (*SECTIONS, "description", "extends"))
            raise ConfigError(f"unknown section: {section!r}{near}")
        if not isinstance(values, dict):
            raise ConfigError(f"[{section}] must be a section")
        fields = SECTIONS[section].__dataclass_fields__
        settings[section] = {}
        for key, value in values.items():
            if key not in fields:
                near = did_you_mean(_RENAMED.get(key, key), fields)
                raise ConfigError(f"unknown key in [{section}]: {key!r}{near}")
            settings[section][key] = read_value(section, key, value, f"{section}.{key}")
            if declared(fields[key]).is_path and (folder / value).is_file():
                settings[section][key] = str(folder / value)
    return settings
