"""The user's defaults: ``config.toml``, which all commands read.

Precedence: defaults < config.toml < preset < flags. But no preset shows faces or places that
config.toml hides, or keeps their metadata. The file has the keys of a preset. Its
``extends`` replaces :data:`DEFAULT_PRESET` where no preset is named. Python callers do not read it:
the result of a library call depends on its arguments alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError, PresetError
from bgsoft.records import NamedTuple
from bgsoft.settings.config import FaceConfig, FaceMode
from bgsoft.settings.copied import Metadata
from bgsoft.settings.options import DEFAULT_PRESET, SECTIONS
from bgsoft.settings.presets import (
    Layer,
    Preset,
    config_folder,
    exists,
    load_preset,
    merge,
    names_file,
    read_file,
)

CONFIG_VARIABLE = "BGSOFT_CONFIG"
"""Environment variable with the file's path; set and empty: no file is read."""
CONFIG_NAME = "config.toml"
_SHOWN: Mapping[str, Any] = {"subjects": FaceConfig().subjects, "main": FaceConfig().main}
"""Settings of ``[face]`` for whose faces are shown, with their defaults."""
_HIDING_FILES = ("regions", "detector")
"""Sections with a file that may hide places."""


class UserConfig(NamedTuple):
    """A user's ``config.toml``."""

    path: Path | None
    """None: there is no file."""
    settings: Layer
    extends: str
    """The preset to use where none is named."""

    def preset(self, name: str | None) -> Preset:
        """Return the settings below a command's flags.

        Args:
            name: Name or file of a preset, which wins over these settings, except that it shows
                nothing that they hide. None: these settings win over :attr:`extends`.

        Raises:
            PresetError: There is no such preset, or it is malformed.
        """
        found = load_preset(self.extends if name is None else name)
        if name is None:
            layers = [found.settings, self.settings]
        else:
            hidden = _hidden(self.preset(None).settings, found.settings)
            layers = [self.settings, found.settings, hidden]
        return found._replace(settings=merge(*layers), config_file=self.path)


def _hidden(own: Layer, preset: Layer) -> Layer:
    """Return the faces, places and metadata that one's own settings hide, beside a preset's."""
    layer: dict[str, Mapping[str, Any]] = {}
    face, places = own.get("face", {}), own.get("hide", {}).get("regions", ())
    hides_faces = face.get("mode") is FaceMode.ANONYMIZE
    if hides_faces:
        layer["face"] = {"mode": FaceMode.ANONYMIZE, **_SHOWN, **_shown(face, preset)}
    if places:
        others = preset.get("hide", {}).get("regions", ())
        layer["hide"] = {"regions": tuple(dict.fromkeys((*places, *others)))}
    hides = hides_faces or places or any(own.get(name, {}).get("file") for name in _HIDING_FILES)
    metadata = own.get("copy", {}).get("metadata", Metadata.AUTO)
    keeps = preset.get("copy", {}).get("metadata") is Metadata.KEEP
    if metadata is Metadata.STRIP or (hides and keeps and metadata is Metadata.AUTO):
        layer["copy"] = {"metadata": metadata}
    return layer


def _shown(own: Mapping[str, Any], preset: Layer) -> Mapping[str, Any]:
    """Return one's own choice of whose faces are shown, or a preset's that shows no more people."""
    theirs = preset.get("face", {})
    chosen = {key: own[key] for key in _SHOWN if key in own}
    count = len(own["main"]) if "main" in own else own.get("subjects", _SHOWN["subjects"])
    fewer = theirs.get("subjects", count) < count
    other = not chosen and 0 < len(theirs.get("main", ())) <= count
    return {key: theirs[key] for key in _SHOWN if key in theirs} if fewer or other else chosen


NO_CONFIG = UserConfig(None, {}, DEFAULT_PRESET)


def config_path() -> Path | None:
    """Return the path of the user's file, which may not exist; None: no file is read."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen is None:
        return config_folder() / CONFIG_NAME
    return Path(chosen) if chosen else None


def read_user_config() -> UserConfig:
    """Read and check the user's defaults.

    Raises:
        PresetError: The file cannot be read, is malformed, or its settings contradict each other;
            or :data:`CONFIG_VARIABLE` names a missing file.
    """
    path = config_path()
    is_chosen = CONFIG_VARIABLE in os.environ
    if path is None or not (is_chosen or exists(path)):
        return NO_CONFIG
    file = read_file(path, f"{CONFIG_VARIABLE}={path}" if is_chosen else str(path))
    extends = file.extends or DEFAULT_PRESET
    if names_file(extends):
        extends = str(path.parent / extends)
    config = UserConfig(path, file.settings, extends)
    try:
        for section, values in config.preset(None).settings.items():
            SECTIONS[section](**values)
    except ConfigError as exc:
        raise PresetError(f"{path}: {exc}", path=path) from exc
    return config
