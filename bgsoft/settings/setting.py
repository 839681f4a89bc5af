"""Declarations of settings, from which their flags, help, keywords and checks are made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import Field, field, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from bgsoft.errors import ConfigError
from bgsoft.records import NamedTuple

T = TypeVar("T")


class Setting(NamedTuple):
    """Declaration of a setting, in addition to its type and its default."""

    help: str = ""
    """Help text. ``{range}`` is replaced by the range, and the default is appended. Empty: there is
        no flag; only presets set it."""
    brief: str = ""
    """Line in the short help; ``{choices}`` is replaced by the choices. Empty: only ``--help-all``
    shows the flag."""
    name: str = ""
    """Keyword of :func:`bgsoft.render`, and with dashes the flag; empty: the field's name."""
    short: str = ""
    """A second, short flag, e.g. ``-y``."""
    metavar: str = ""
    """Placeholder of the value; empty: the choices, ``0..1``, or N for a number."""
    range: tuple[float, float] | None = None
    """Lowest and highest value of a number; None: any."""
    unit: str = ""
    """Unit of the number in errors. A number of seconds may also be given as HH:MM:SS."""
    shown_default: str = ""
    """Text for the default in the help, where the value itself is None or unclear."""
    panel: str = ""
    """Title above the flag in the help; empty: its section's."""
    is_path: bool = False
    """Whether it may be a path. In a preset file, paths are relative to that file."""
    belongs_to: str = ""
    """Field of the same section that gives this one its meaning, as the effect does for strength.
    A layer of settings that changes that field drops this one from lower layers."""
    without_effect: tuple[str, ...] = ()
    """Cases in which it has no effect: keys of :data:`bgsoft.rendering.without_effect.REASONS`."""


class Span(NamedTuple):
    """A part of a video's time."""

    text: str
    """The value of the flag that it belongs to, as given."""
    begin: Fraction = Fraction(0)
    """Seconds from the video's first frame, as ``--start`` counts."""
    end: Fraction | None = None
    """Exclusive; None: the video's end."""


_PLAIN = Setting()
_MAX_SECONDS = 10**9
"""Longer than any video; such times can be counted in any time base."""
_TIME = r"(-?)(?:(?:(\d+):)?(\d+):)?(\d*\.?\d+|\d+\.)"


def setting(default: T, help: str = "", **more: Any) -> T:
    """Declare a field of a settings dataclass."""
    return field(default=default, metadata={"setting": Setting(help=help, **more)})


def declared(entry: Field[Any]) -> Setting:
    """Return the declaration of a dataclass's field; an empty one for a plain field."""
    found: Setting = entry.metadata.get("setting", _PLAIN)
    return found


def is_model_file(name_or_path: str) -> bool:
    """Return whether it is a user's ONNX file, rather than a name in the catalogue."""
    return name_or_path.lower().endswith(".onnx")


def as_float(value: float) -> float:
    """Convert to float; whole numbers above its range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_range(described: Setting, label: str, value: float) -> None:
    """Raise ConfigError unless a number is finite and in its setting's range, if it has one."""
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
    """Raise ConfigError unless all are ``KEY=VALUE`` with different keys."""
    keys = set()
    for text in texts:
        key, _, value = text.partition("=")
        if not key or not value:
            raise ConfigError(f"{label} must be KEY=VALUE, not {text!r}")
        if key in keys:
            raise ConfigError(f"{label} must name a key once: {key} is given twice")
        keys.add(key)


def parse_seconds(text: str, label: str) -> float:
    """Parse a time: seconds, ``MM:SS`` or ``HH:MM:SS``, each with an optional fraction.

    Raises ConfigError for any other text, and from :data:`_MAX_SECONDS` on.
    """
    match = re.fullmatch(_TIME, text.strip())
    if match is None:
        raise ConfigError(f"{label} must be seconds or HH:MM:SS, not {text!r}")
    sign, *parts = match.groups()
    hours, minutes, seconds = (Decimal(part) if part else None for part in parts)
    if (minutes is not None and (seconds or 0) >= 60) or (
        hours is not None and (minutes or 0) >= 60
    ):
        raise ConfigError(f"{label} must have minutes and seconds below 60, not {text!r}")
    total = float((hours or 0) * 3600 + (minutes or 0) * 60 + (seconds or 0))
    if total >= _MAX_SECONDS:
        raise ConfigError(f"{label} must be below {_MAX_SECONDS} s, not {text!r}")
    return -total if sign else total


def parse_span(times: str, text: str, flag: str, form: str) -> Span:
    """Parse two times with a dash between them, of which one may be missing.

    Args:
        times: The times.
        text: The value of the flag, which they are or belong to.
        flag: For errors.
        form: The form of such a value, for errors.

    Raises:
        ConfigError: It is malformed, or ends before it begins.
    """
    first, dash, last = times.replace(" ", "").partition("-")
    if not dash or not (first or last):
        raise ConfigError(f"{flag} must be {form}, not {text!r}")
    # The decimal number as typed, as --start reads it.
    begin, end = (
        Fraction(str(parse_seconds(time, f"{flag} {text}: a time"))) if time else None
        for time in (first, last)
    )
    if end is not None and end <= (begin or 0):
        raise ConfigError(f"{flag} must end after it begins, not {text!r}")
    return Span(text, begin or Fraction(0), end)
