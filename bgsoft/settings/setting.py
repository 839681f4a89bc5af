"""Declarations of settings: their flags, help, keywords and checks are made from them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from bgsoft.errors import ConfigError
from bgsoft.records import NamedTuple

T = TypeVar("T")


class Setting(NamedTuple):
    """A setting, beside its type and its default."""

    help: str = ""
    """``{range}`` stands for the range, and the default is added. Empty: it has no flag, only
    presets set it."""
    brief: str = ""
    """Its line in the short help; ``{choices}`` stands for them. Empty: only ``--help-all`` shows
    it."""
    name: str = ""
    """Keyword of :func:`bgsoft.render`, and with dashes the flag; empty: the field's name."""
    short: str = ""
    """A second, short flag, e.g. ``-y``."""
    metavar: str = ""
    """Empty: the choices, ``0..1``, or N for a number."""
    range: tuple[float, float] | None = None
    """Lowest and highest value of a number; None: any."""
    unit: str = ""
    """Of the number, as errors say it. What is in seconds may be given as HH:MM:SS, too."""
    shown_default: str = ""
    """The help's word for the default, where that is None or does not say enough."""
    panel: str = ""
    """Title above it in the help; empty: its section's."""
    is_path: bool = False
    """It may be a path; in a preset file, relative to that file."""
    belongs_to: str = ""
    """Field of the same section without which it makes no sense: 2.5 % of blur is no amount of
    dimming. A layer of settings that changes that field drops this one from lower layers."""
    without_effect: tuple[str, ...] = ()
    """When it changes nothing: keys of :data:`bgsoft.rendering.without_effect.REASONS`."""


_PLAIN = Setting()
_TIME = r"(-?)(?:(?:(\d+):)?(\d+):)?(\d*\.?\d+|\d+\.)"


def setting(default: T, help: str = "", **more: Any) -> T:
    """A field of a settings dataclass."""
    return field(default=default, metadata={"setting": Setting(help=help, **more)})


def declared(entry: Field[Any]) -> Setting:
    """The declaration of a settings dataclass's field; an empty one where it is a plain field."""
    found: Setting = entry.metadata.get("setting", _PLAIN)
    return found


def as_float(value: float) -> float:
    """The same number; infinite for a whole one that no float holds."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_range(described: Setting, label: str, value: float) -> None:
    """Raise ConfigError unless a number is finite and in its setting's range, if that has one."""
    if described.range is None:
        return
    (low, high), number = described.range, as_float(value)
    if not math.isfinite(number) or not low <= number <= high:
        bounds = f"between {low:g} and {high:g}" if math.isfinite(high) else f"{low:g} or more"
        raise ConfigError(f"{label} must be {bounds}{described.unit}, not {number:g}")


def check_ranges(settings: Any) -> None:
    """Raise ConfigError where a number of a settings dataclass is out of range."""
    for entry in fields(settings):
        described, value = declared(entry), getattr(settings, entry.name)
        if described.range is not None and value is not None:
            name = (described.name or entry.name).replace("_", "-")
            check_range(described, f"--{name}" if described.help else entry.name, value)


def check_pairs(label: str, texts: Iterable[str]) -> None:
    """Raise ConfigError unless all are ``KEY=VALUE``, with keys that differ."""
    keys = set()
    for text in texts:
        key, _, value = text.partition("=")
        if not key or not value:
            raise ConfigError(f"{label} must be KEY=VALUE, not {text!r}")
        if key in keys:
            raise ConfigError(f"{label} {key} is given twice")
        keys.add(key)


def parse_seconds(text: str, label: str) -> float:
    """Read a time: seconds, ``MM:SS`` or ``HH:MM:SS``, each with an optional fraction.

    The range is not checked; raises ConfigError where it is no such time.
    """
    match = re.fullmatch(_TIME, text.strip())
    if match is None:
        raise ConfigError(f"{label} must be seconds or HH:MM:SS, not {text!r}")
    sign, *parts = match.groups()
    hours, minutes, seconds = (float(part) if part else None for part in parts)
    if (minutes is not None and (seconds or 0) >= 60) or (
        hours is not None and (minutes or 0) >= 60
    ):
        raise ConfigError(f"{label}: minutes and seconds end at 59, in {text!r}")
    total = (hours or 0.0) * 3600 + (minutes or 0.0) * 60 + (seconds or 0.0)
    return -total if sign else total
