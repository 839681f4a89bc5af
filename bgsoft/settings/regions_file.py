"""Files of regions.

::

    [[region]]
    action = "hide"                # or keep, drop
    box = "10%,20%,15%,30%"        # or ellipse, or polygon = "10%,20% 30%,20% 20%,40%"
    from = "0:05"
    to = "0:20"
    follow = true                  # it moves with the object in it at "from"

    [[region]]
    action = "drop"
    keys = [                       # interpolated between
      { at = 2, box = "0,0,100,50" },
      { at = 4, box = "80,0,100,50" },
    ]
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError, os_errors_as
from bgsoft.settings.regions import Outline, Region, RegionAction, RegionShape, parse_lengths
from bgsoft.settings.setting import parse_seconds
from bgsoft.suggestions import did_you_mean
from bgsoft.untrusted import file_state, parse_toml, read_toml_bytes

REGIONS_SUFFIX = ".regions.toml"
"""Suffix of the regions file next to a video: ``in.regions.toml`` for ``in.mp4``."""

_SHAPES = [shape.value for shape in RegionShape]
_KEYS = ("action", *_SHAPES, "keys", "from", "to", "follow")


def read_regions(path: Path) -> tuple[Region, ...]:
    """Read the regions in a file.

    Raises:
        ConfigError: It cannot be read, or is malformed; the message names the place.
    """
    with os_errors_as(ConfigError, f"cannot read regions file {path}", path=path):
        state = file_state(path)
        return _read(path, (state.st_mtime_ns, state.st_size, state.st_ino))


@lru_cache(maxsize=64)
def _read(path: Path, _state: tuple[int, ...]) -> tuple[Region, ...]:
    return parse_regions(read_toml_bytes(path), path)


def parse_regions(data: bytes, path: Path) -> tuple[Region, ...]:
    """Parse the regions of a file.

    Args:
        data: Its content.
        path: The file, for names and messages.

    Raises:
        ConfigError: The content is malformed; the message names the place.
    """

    def fault(text: object) -> ConfigError:
        return ConfigError(f"cannot read regions file {path}: {text}", path=path)

    try:
        table = parse_toml(data)
    except ValueError as exc:
        raise fault(exc) from exc
    entries = table.pop("region", None)
    if table:
        raise fault(f"unknown key {next(iter(table))}{did_you_mean(next(iter(table)), ['region'])}")
    if not isinstance(entries, list) or not entries:
        raise fault("it has no [[region]] table; add one for each region")
    regions = []
    for number, entry in enumerate(entries, 1):
        try:
            regions.append(_region(f"region {number} of {path.name}", entry))
        except ConfigError as exc:
            raise fault(f"region {number}: {exc}") from exc
    return tuple(regions)


def _region(name: str, entry: object) -> Region:
    table = _table(entry, "it", _KEYS)
    action = table.get("action")
    if action not in [known.value for known in RegionAction]:
        raise ConfigError(f"action must be {', '.join(RegionAction)}, not {action!r}")
    follow = table.get("follow", False)
    if not isinstance(follow, bool):
        raise ConfigError(f"follow must be true or false, not {follow!r}")
    if "keys" in table:
        shape, keys = _keys(table)
        if follow:
            raise ConfigError("follow and keys cannot be used together; remove one of them")
    else:
        shape, lengths = _outline(table, "it")
        keys = (Outline(lengths),)
    begin, end = (None if key not in table else _time(table[key], key) for key in ("from", "to"))
    return Region(
        name=name,
        action=RegionAction(action),
        shape=shape,
        keys=keys,
        begin=begin or Fraction(0),
        end=end,
        follow=follow,
    )


def _keys(table: Mapping[str, Any]) -> tuple[RegionShape, tuple[Outline, ...]]:
    """Read key frames, all of one shape."""
    entries = table["keys"]
    if not isinstance(entries, list) or not entries:
        raise ConfigError("keys must be a list of tables")
    if any(shape in table for shape in _SHAPES):
        raise ConfigError("a region with keys must have its shape in each key, not next to them")
    shapes, keys = set(), []
    for entry in entries:
        key = _table(entry, "a key", ("at", *_SHAPES))
        if "at" not in key:
            raise ConfigError("a key has no time; add at = SECONDS")
        shape, lengths = _outline(key, "a key")
        shapes.add((shape, len(lengths)))
        keys.append(Outline(lengths, _time(key["at"], "at")))
    if len(shapes) > 1:
        raise ConfigError("all keys must have the same shape and number of corners")
    times = [key.seconds for key in keys]
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise ConfigError("keys must be in order of time")
    return shapes.pop()[0], tuple(keys)


def _outline(table: Mapping[str, Any], what: str) -> tuple[RegionShape, Any]:
    named = [shape for shape in _SHAPES if shape in table]
    if len(named) != 1:
        raise ConfigError(f"{what} must have exactly one of {', '.join(_SHAPES)}")
    text = table[named[0]]
    if not isinstance(text, str):
        raise ConfigError(f"{named[0]} must be text, not {text!r}")
    shape = RegionShape(named[0])
    try:
        return shape, parse_lengths(shape, text)
    except ValueError as exc:
        raise ConfigError(f"{named[0]} {exc}") from exc


def _table(entry: object, what: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{what} must be a table, not {entry!r}")
    for key in entry:
        if key not in known:
            raise ConfigError(f"unknown key {key}{did_you_mean(key, known)}")
    return entry


def _time(value: object, key: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ConfigError(f"{key} must be seconds or HH:MM:SS, not {value!r}")
    text = value if isinstance(value, str) else f"{Decimal(str(value)):f}"  # 1e-07, too
    seconds = parse_seconds(text, key)
    if seconds < 0:
        raise ConfigError(f"{key} must be 0 or more, not {value!r}")
    return Fraction(str(seconds))
