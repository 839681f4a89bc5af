"""Presets: TOML files of settings, which are found by name and merged.

Precedence: defaults < preset < flags. The sections and keys of a preset are those of
:class:`bgsoft.settings.config.RenderConfig`. ``description`` and ``extends`` stand at the top.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from bgsoft.errors import ConfigError, OutputError, PresetError, errors_as, os_errors_as
from bgsoft.outputs import write_whole
from bgsoft.records import NamedTuple
from bgsoft.settings.config import EffectKind, FaceMode, RenderConfig
from bgsoft.settings.options import PICTURE_SECTIONS, SECTIONS, effect_for, read_value
from bgsoft.settings.setting import declared, is_model_file
from bgsoft.suggestions import did_you_mean, network_address
from bgsoft.untrusted import check_regular, read_toml

_MAX_PARENTS = 32
_NAME = r"[A-Za-z0-9_-]{1,64}"

_RENAMED: Mapping[str, str] = {"looks": "matte"}
"""Former names of keys → current names, for «did you mean»."""

Layer: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Settings that were given: section → field → value of the field's type."""


class Preset(NamedTuple):
    """A loaded preset."""

    name: str
    description: str
    path: Path
    settings: Layer
    """The settings, merged with those of its parents."""
    config_file: Path | None = None
    """The user's config file that was merged with it."""


class PresetFile(NamedTuple):
    """One file of settings, before it is merged with its parents."""

    description: str
    extends: str
    """Name or path of its parent; empty: it has none."""
    settings: Layer
    """The file's own settings."""


def shipped_folder() -> Path:
    """Return the folder of the presets that come with bgsoft: in the package, or in a checkout."""
    installed = Path(__file__).parents[1] / "presets_data"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "presets"


def config_folder() -> Path:
    """Return the user's settings folder: ``$XDG_CONFIG_HOME/bgsoft`` or ``~/.config/bgsoft``.

    Every render calls this. Importing platformdirs, which gives the same path on Linux, takes 4 ms.
    """
    home = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return Path(home or os.path.expanduser("~/.config")) / "bgsoft"  # noqa: PTH111 - without a home


def user_folder() -> Path:
    """Return the folder of the user's own presets."""
    return config_folder() / "presets"


def list_presets() -> list[Path]:
    """Return the files of all presets that have a name, shipped ones first.

    A user's preset with the name of a shipped one is left out, so a name means the same everywhere.
    """
    files = sorted(shipped_folder().glob("*.toml"))
    shipped = {file.stem for file in files}
    with suppress(OSError):  # a folder that may not be read has no names
        files += [f for f in sorted(user_folder().glob("*.toml")) if f.stem not in shipped]
    return files


def ignored_text(used: Path | None) -> str | None:
    """Return a notice if the user has a preset with the name of the shipped one that is used."""
    if used is None or used.parent != shipped_folder():
        return None
    own = user_folder() / used.name
    text = f"{own} is ignored: bgsoft has a preset of this name; rename it"
    return text if os.path.exists(own) else None  # noqa: PTH110 - that raises in closed folders


def load_preset(name_or_path: str) -> Preset:
    """Find and read a preset, with its parents.

    Raises:
        PresetError: There is no such preset, or it is malformed.
    """
    return _load(name_or_path, ())


def merge(*layers: Layer) -> dict[str, dict[str, Any]]:
    """Merge settings; later layers win."""
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, values in layer.items():
            target: Mapping[str, Any] = merged.get(section, {})
            if section == "face":
                values, target = _who_is_shown(values, target)
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


def _who_is_shown(
    values: Mapping[str, Any], below: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Apply the rules of ``subjects`` and ``main`` to a layer's face settings and those below it.

    ``subjects = 0`` needs ``mode = anonymize``. Given alone it sets that mode; another mode resets
    it. ``subjects`` replaces ``main`` below it, and ``main`` such ``subjects``, except 0.
    """
    if values.get("subjects") == 0 and "mode" not in values:
        values = {**values, "mode": FaceMode.ANONYMIZE}
    elif values.get("mode", FaceMode.ANONYMIZE) is not FaceMode.ANONYMIZE:
        below = {k: v for k, v in below.items() if (k, v) != ("subjects", 0)}
    if "subjects" in values:
        below = {k: v for k, v in below.items() if k != "main"}
    elif values.get("main"):
        below = {k: v for k, v in below.items() if k != "subjects" or v == 0}
    return values, below


def save_preset(name: str, config: RenderConfig, *, replaces: bool) -> Path:
    """Write the sections that make the picture as a user preset.

    Raises:
        ConfigError: The name is invalid or taken.
        OutputError: The file cannot be written.
    """
    if not re.fullmatch(_NAME, name):
        raise ConfigError(
            f"the name of a preset must be 1 to 64 letters, digits, - or _, not {name!r}"
        )
    path = user_folder() / f"{name}.toml"
    if (shipped_folder() / path.name).exists():
        raise ConfigError(f"cannot save preset {name}: bgsoft has one; choose another name")
    if os.path.exists(path) and not replaces:  # noqa: PTH110 - that raises in closed folders
        raise ConfigError(f"cannot save preset {name}: it exists already")
    description = f"Saved from the preview, on top of {config.preset or 'the defaults'}"
    with os_errors_as(OutputError, f"cannot create folder {path.parent}", path=path):
        path.parent.mkdir(parents=True, exist_ok=True)
    settings = settings_of(config, (*PICTURE_SECTIONS, "copy"))
    preset = Preset(name=name, description=description, path=path, settings=settings)
    write_whole(path, "preset", as_toml(preset))
    return path


def settings_of(config: RenderConfig, sections: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return settings for a preset in any folder: paths become absolute."""
    settings: dict[str, dict[str, Any]] = {}
    for section in sections:
        part = getattr(config, section)
        values = {entry.name: getattr(part, entry.name) for entry in dataclasses.fields(part)}
        settings[section] = _with_paths(section, values, Path())
    return settings


def _with_paths(section: str, values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a section with absolute paths, of one whose relative paths start at a folder.

    Colours, models of the catalogue, addresses and a batch's templates are unchanged.
    """
    fields = SECTIONS[section].__dataclass_fields__
    for key, value in values.items():
        if not (declared(fields[key]).is_path and value) or network_address(value):
            continue
        path = folder / value
        if key == "background":
            is_path = values.get("kind") is not EffectKind.COLOR
        elif key == "model":
            is_path = is_model_file(value)
        else:
            is_path = "{" not in value or path.exists()
        if is_path:
            values = {**values, key: str(path.absolute())}
    return values


def as_toml(preset: Preset) -> str:
    """Format all settings of a preset as TOML, defaults included.

    TOML has no null: a setting that is None is written as ``off``, or as a comment where None is
    its default.

    Raises:
        ConfigError: A path is not valid UTF-8, which TOML requires.
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
            else:  # JSON's text, numbers and booleans are valid TOML, except for one character
                text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
                lines.append(f"{entry.name} = {text}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("cannot save the preset: a file name is not valid UTF-8") from None
    return text


def _load(name_or_path: str, children: tuple[Path, ...], folder: Path | None = None) -> Preset:
    child = children[-1] if children else None
    if child is None:
        path = _find(name_or_path, None)
    else:
        with errors_as(
            (PresetError,), PresetError, f"cannot read preset {child.name}: extends", path=child
        ):
            path = _find(name_or_path, folder)
    if path in children:
        chain = " → ".join(p.stem for p in (*children, path))
        raise PresetError(f"cannot read preset {path.name}: it extends itself ({chain})", path=path)
    if len(children) == _MAX_PARENTS:
        raise PresetError(
            f"cannot read preset {children[0].name}: it extends more than {_MAX_PARENTS} others",
            path=path,
        )
    file = read_file(path, f"preset {path.name}")
    below = _load(file.extends, (*children, path), path.parent).settings if file.extends else {}
    return Preset(
        name=path.stem,
        description=file.description,
        path=path,
        settings=merge(below, file.settings),
    )


def read_file(path: Path, title: str) -> PresetFile:
    """Read one file of settings, without its parents.

    Args:
        path: The file.
        title: The file's name in errors.

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


def exists(path: Path) -> bool:
    """Return whether a path exists, also as a broken link.

    Raises:
        PresetError: The system does not say.
    """
    with errors_as((OSError, ValueError), PresetError, f"cannot read {path}", path=path):
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def names_file(name_or_path: str) -> bool:
    """Return whether a preset is named by its file."""
    return name_or_path.endswith(".toml") or "/" in name_or_path


def _find(name_or_path: str, folder: Path | None) -> Path:
    """Find the file of a preset; a parent's relative path starts at ``folder``."""
    name_or_path = os.fspath(name_or_path)
    if names_file(name_or_path):
        path = Path(name_or_path) if folder is None else folder / name_or_path
        check_regular(path, PresetError, f"cannot read preset {path}")
        return path.resolve()
    for home in (shipped_folder, user_folder):
        path = home() / f"{name_or_path}.toml"
        if exists(path):
            check_regular(path, PresetError, f"cannot read preset {path}")
            return path
    known = [file.stem for file in list_presets()]
    raise PresetError(f"unknown preset {name_or_path!r}{did_you_mean(name_or_path, known)}")


def _top_text(table: dict[str, Any], key: str) -> str:
    value = table.pop(key, "")
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be a text, not {value!r}")
    return value


def _read_sections(table: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Check and convert the sections of a file in ``folder``."""
    settings: dict[str, dict[str, Any]] = {}
    for section, values in table.items():
        if section not in SECTIONS:
            near = did_you_mean(section, (*SECTIONS, "description", "extends"))
            raise ConfigError(f"unknown section: {section!r}{near}")
        if not isinstance(values, dict):
            raise ConfigError(f"[{section}] must be a section")
        fields = SECTIONS[section].__dataclass_fields__
        found: dict[str, Any] = {}
        for key, value in values.items():
            if key not in fields:
                near = did_you_mean(_RENAMED.get(key, key), fields)
                raise ConfigError(f"unknown key in [{section}]: {key!r}{near}")
            found[key] = read_value(section, key, value, f"{section}.{key}")
        if found.get("background"):
            found.setdefault("kind", effect_for(found["background"], folder))
        settings[section] = _with_paths(section, found, folder)
    return settings
