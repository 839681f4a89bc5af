"""The user's own defaults: ``config.toml``, a preset that the command line always has.

Defaults < config.toml < preset < flags. It has the keys of a preset. Where no preset is named, its
``extends`` says which one it lies upon, instead of :data:`DEFAULT_PRESET`. Python callers never get
it: what a library does depends on its arguments alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from bgsoft.errors import ConfigError, PresetError, os_errors_as
from bgsoft.records import NamedTuple
from bgsoft.settings.options import DEFAULT_PRESET, SECTIONS
from bgsoft.settings.presets import (
    Layer,
    Preset,
    config_folder,
    load_preset,
    merge,
    names_file,
    read_file,
)

CONFIG_VARIABLE = "BGSOFT_CONFIG"
"""Environment variable that names the file; set and empty: there is none."""
CONFIG_NAME = "config.toml"


class UserConfig(NamedTuple):
    """A user's ``config.toml``."""

    path: Path | None
    """None: there is none."""
    settings: Layer
    extends: str
    """The preset where none is named."""

    def preset(self, name: str | None) -> Preset:
        """The settings under a command's flags.

        Args:
            name: Name or file of a preset, which wins over these settings; None: these win over
                :attr:`extends`.

        Raises:
            PresetError: There is no such preset, or it is malformed.
        """
        found = load_preset(self.extends if name is None else name)
        layers = (found.settings, self.settings)
        return found._replace(
            settings=merge(*(layers if name is None else reversed(layers))), config_file=self.path
        )


NO_CONFIG = UserConfig(None, {}, DEFAULT_PRESET)


def config_path() -> Path | None:
    """Where the user's file is looked for; None: nowhere."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen is None:
        return config_folder() / CONFIG_NAME
    return Path(chosen) if chosen else None


def read_user_config() -> UserConfig:
    """Read and check the user's defaults.

    Raises:
        PresetError: The file cannot be read, or is malformed, or its settings contradict each
            other; or :data:`CONFIG_VARIABLE` names one that is not there.
    """
    path = config_path()
    if path is None or not (CONFIG_VARIABLE in os.environ or _exists(path)):
        return NO_CONFIG
    file = read_file(path, str(path))
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


def _exists(path: Path) -> bool:
    """Whether there is something of that name; PresetError where that cannot be known."""
    with os_errors_as(PresetError, f"cannot read {path}", path=path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
