"""From the text of flags to values: choices and times."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TypeVar

from bgsoft.errors import ConfigError

__all__ = ["parse_choice", "parse_seconds"]

Kind = TypeVar("Kind", bound=StrEnum)

_TIME = re.compile(r"(-?)(?:(?:(\d+):)?(\d+):)?(\d*\.?\d+|\d+\.)")


def parse_choice(kind: type[Kind], text: str, label: str) -> Kind:
    """Read one of an enumeration's values.

    Raises:
        ConfigError: It is none of them.
    """
    from bgsoft.suggest import did_you_mean

    try:
        return kind(text.lower())
    except ValueError:
        known = did_you_mean(text, [member.value for member in kind])
        raise ConfigError(f"{label}: unknown value {text!r}{known}") from None


def parse_seconds(text: str, label: str) -> float:
    """Read a time: seconds, ``MM:SS`` or ``HH:MM:SS``, each with an optional fraction.

    Args:
        text: e.g. ``12.5`` or ``1:02:03.25``.
        label: The flag, for errors.

    Returns:
        Seconds, negative where the text is; whoever takes them checks their range.

    Raises:
        ConfigError: It is no such time.
    """
    match = _TIME.fullmatch(text.strip())
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
