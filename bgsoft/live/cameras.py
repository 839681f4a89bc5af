"""The sources of a process and their sinks, from the command line or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from bgsoft.errors import ConfigError, errors_as, os_errors_as
from bgsoft.live.source import SourceSpec, parse_source
from bgsoft.records import dataclass
from bgsoft.suggestions import did_you_mean
from bgsoft.untrusted import read_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraConfig:
    """One source and its sinks."""

    name: str = ""
    """Name for messages and figures; empty: the source's."""
    source: str
    to: tuple[str, ...] = ()
    share: str | None = None
    preview: int | None = None
    preset: str | None = None
    """None: the default."""
    size: str | None = None
    rate: float | None = None
    input_format: str | None = None
    realtime: bool = False
    loop: bool = False

    @property
    def spec(self) -> SourceSpec:
        """Return the source to open; raises ConfigError for a contradiction."""
        asked = {name: getattr(self, name) for name in ("size", "rate", "input_format")}
        return parse_source(self.source, realtime=self.realtime, loop=self.loop, **asked)


def read_cameras(path: Path, *, preset: str | None = None) -> list[CameraConfig]:
    """Read the ``[[source]]`` tables of a file; ``preset`` applies where they name none.

    Raises:
        ConfigError: It cannot be read, or is malformed.
    """
    with (
        os_errors_as(ConfigError, f"cannot read {path}", path=path),
        errors_as((ValueError,), ConfigError, str(path), path=path),
    ):
        table = read_toml(path)
        tables = table.pop("source", None)
        if table:
            raise ConfigError(f"unknown key {next(iter(table))!r}: use [[source]] tables")
        if not isinstance(tables, list) or not tables:
            raise ConfigError("it must have a [[source]] table")
        cameras = [_camera(each, preset) for each in tables]
        names = [camera.name for camera in cameras]
        targets = [each for camera in cameras for each in (*camera.to, camera.share) if each]
        for what, each in (("are called", names), ("go to", targets)):
            if twice := [name for name in each if each.count(name) > 1]:
                raise ConfigError(f"two sources {what} {twice[0]!r}")
    return cameras


def _camera(table: Any, preset: str | None) -> CameraConfig:
    if not isinstance(table, Mapping):
        raise ConfigError("source must be tables: [[source]]")
    hints = get_type_hints(CameraConfig)
    known = [entry.name for entry in fields(CameraConfig)]
    values: dict[str, Any] = {"preset": preset}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"unknown key in [[source]]: {key!r}{did_you_mean(key, known)}")
        if key == "to":
            value = (value,) if isinstance(value, str) else value
            if not (isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)):
                raise ConfigError(f"to must be a text or a list of texts, not {value!r}")
            value = tuple(value)
        else:
            kinds = get_args(hints[key]) or (hints[key],)
            value = float(value) if float in kinds and type(value) is int else value
            if type(value) not in kinds:
                raise ConfigError(f"{key} cannot be {value!r}")
        values[key] = value
    if "source" not in values:
        raise ConfigError("[[source]] must have a source")
    return CameraConfig(**{"name": values["source"], **values})
