"""Settings by their flat names, as flags and :func:`bgsoft.render` spell them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from enum import StrEnum
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from bgsoft.errors import BgsoftError, ConfigError
from bgsoft.records import NamedTuple
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.setting import Setting, as_float, check_range, declared, parse_seconds
from bgsoft.suggestions import did_you_mean

Kind = TypeVar("Kind", bound=StrEnum)

DEFAULT_PRESET = "soft"

TOP = ""
"""Section of settings outside presets: RenderConfig's own fields."""

SECTIONS: Mapping[str, Any] = {
    entry.name: entry.default_factory
    for entry in dataclasses.fields(RenderConfig)
    if entry.default_factory is not dataclasses.MISSING
}
"""Sections of a preset: name → dataclass of its settings."""
PICTURE_SECTIONS = ("effect", "segment", "face", "hide", "regions", "detector", "matte")
"""Sections that change the picture, not where or in which codec it is made."""

_FIELDS = {
    section: {entry.name: entry for entry in dataclasses.fields(kind)}
    for section, kind in {**SECTIONS, TOP: RenderConfig}.items()
}

TEXTS = tuple[str, ...]
"""Type of a setting that may be given more than once."""

_NONE_WORDS = ("off", "none", "auto")
"""Words for None in optional numbers: TOML has no null, and Python's None means «not given»."""

_FLAG = r"--([a-z]+(?:-[a-z]+)*)"
_COLOR = r"#[0-9a-fA-F]{3,8}|[a-zA-Z]+"
_MEANT = {
    **dict.fromkeys(("h265", "h.265", "x265", "libx265"), "hevc"),
    **dict.fromkeys(("h.264", "x264", "libx264", "avc"), "h264"),
    "libvpx-vp9": "vp9",
    "libsvtav1": "av1",
    "libaom-av1": "av1",
    "prores_ks": "prores",
}
"""Other names of choices, for «did you mean»."""
_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".avif"})


BRIEF_WIDTH = 51
"""Characters of a line of the short help, next to the longest flag, on a terminal of 80."""


class Option(NamedTuple):
    """A setting with a name of its own, on the command line and in Python."""

    name: str
    """Keyword of :func:`bgsoft.render`."""
    section: str
    field: dataclasses.Field[Any]
    setting: Setting
    panel: str
    """Title above the flag in the help."""

    @property
    def flag(self) -> str:
        """The flag, e.g. ``--mask-every``."""
        return "--" + self.name.replace("_", "-")

    @property
    def choices(self) -> list[str]:
        """The accepted words; empty where other values are accepted too."""
        kind = field_type(self.section, self.field.name)[0]
        return [member.value for member in kind] if issubclass(kind, StrEnum) else []

    @property
    def metavar(self) -> str:
        """The value's placeholder in the help."""
        if self.setting.metavar or self.choices:
            return self.setting.metavar or "|".join(self.choices)
        return "0..1" if self.setting.range == (0, 1) else "N"

    @property
    def help(self) -> str:
        """The help text with its range and its default."""
        return self._with_default(self.setting.help)

    @property
    def brief(self) -> tuple[str, str]:
        """The value's name and the line in the short help.

        The line has the default if that fits. It is empty for flags that the short help omits.
        """
        text, metavar = self.setting.brief, self.metavar
        if "{choices}" in text:
            *words, last = self.choices
            text, metavar = text.replace("{choices}", f"{', '.join(words)} or {last}"), "NAME"
        whole = self._with_default(text)
        return metavar, whole if text and len(whole) <= BRIEF_WIDTH else text

    def defaulting_to(self, shown: str) -> Option:
        """Return the same option with another default in its help."""
        return self._replace(setting=self.setting._replace(shown_default=shown))

    def _with_default(self, text: str) -> str:
        default = self.field.default
        shown = self.setting.shown_default
        if not shown and default not in (None, ()) and not isinstance(default, bool):
            shown = f"{default:g}" if isinstance(default, float) else str(default)
        if self.setting.range is not None:
            text = text.replace("{range}", "{:g} to {:g}".format(*self.setting.range))
        return f"{text} [default: {shown}]" if shown else text


def _options() -> Iterator[Option]:
    for section, entries in _FIELDS.items():
        above = "Output" if section == TOP else _FIELDS[TOP][section].metadata["panel"]
        for entry in entries.values():
            setting = declared(entry)
            if setting.help:
                name = setting.name or entry.name
                yield Option(name, section, entry, setting, setting.panel or above)


OPTIONS: Mapping[str, Option] = {option.name: option for option in _options()}
"""All settings that have a flag, in the order of their declaration."""


def settings_from_options(
    given: Mapping[str, Any], *, from_text: bool
) -> dict[str, dict[str, Any]]:
    """Sort flat options into settings: section → field → value.

    Args:
        given: Option → value; None and a false flag mean «not given».
        from_text: Values are text from the command line, and errors name flags.

    Raises:
        ConfigError: A value is malformed, out of range or an unknown choice.
    """
    settings: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        if value is None or (from_text and value in (False, [])):
            continue
        option = OPTIONS[name]
        key = option.field.name
        label = option.flag if from_text else name
        read = read_value(option.section, key, value, label, from_text=from_text)
        settings.setdefault(option.section, {})[key] = read
    return settings


def effect_for(background: str, folder: Path = Path()) -> EffectKind:
    """Return the effect that a background, a colour or a file, implies where none is named."""
    if not os.path.exists(folder / background) and re.fullmatch(_COLOR, background):  # noqa: PTH110
        return EffectKind.COLOR
    if Path(background).suffix.lower() in _IMAGE_SUFFIXES:
        return EffectKind.IMAGE
    return EffectKind.VIDEO


def in_keywords(text: str) -> str:
    """Replace flags in a text by the keywords of :func:`bgsoft.render`."""

    def keyword(match: re.Match[str]) -> str:
        option = OPTIONS.get(match[1].replace("-", "_"))
        if option is None:
            return match[0]
        return f"{option.name}=True" if option.field.default is False else option.name

    return re.sub(_FLAG, keyword, text)


@contextlib.contextmanager
def errors_in_keywords() -> Iterator[None]:
    """Make errors name keywords instead of flags, around what Python callers use."""
    try:
        yield
    except BgsoftError as exc:
        exc.message = in_keywords(exc.message)
        exc.args = (exc.message,)
        raise


@functools.cache
def _field_types(section: str) -> Mapping[str, Any]:
    return typing.get_type_hints(SECTIONS.get(section, RenderConfig))


def field_type(section: str, key: str) -> tuple[type, bool]:
    """Return the type of a setting, and whether it may be None."""
    hint = _field_types(section)[key]
    if isinstance(hint, types.UnionType):
        kinds = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
        return kinds[0], True
    return hint, False


def check_text(text: str, label: str) -> None:
    """Raise ConfigError where a text is empty, which as a path is «.», or has a zero byte."""
    if not text:
        raise ConfigError(f"{label} must not be empty")
    if "\0" in text:
        raise ConfigError(f"{label} must not contain a zero byte, not {text!r}")


def read_value(
    section: str, key: str, value: object, label: str, *, from_text: bool = False
) -> Any:
    """Convert a value from a TOML file, the command line or Python to its setting's type.

    Raises:
        ConfigError: It is of the wrong type, out of range or an unknown choice; names ``label``.
    """
    kind, optional = field_type(section, key)
    setting = declared(_FIELDS[section][key])
    if isinstance(value, str | os.PathLike):
        check_text(str(value), label)
    if kind == TEXTS:
        texts = (value,) if isinstance(value, str) else value
        if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
        raise ConfigError(f"{label} must be a text or a list of texts, not {value!r}")
    if kind is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if setting.is_path and isinstance(value, os.PathLike):
        return os.fspath(value)
    if (
        optional
        and kind in (int, float)
        and isinstance(value, str)
        and value.lower() in _NONE_WORDS
    ):
        return None
    if issubclass(kind, StrEnum):
        word = str(value)  # in a preset file or in Python, 420 may be a number
        return parse_choice(kind, word if word in list(kind) else value, label)
    if kind in (int, float):
        if setting.unit == " seconds" and isinstance(value, str):
            number: float | None = parse_seconds(value, label)
        else:
            number = _number(kind, value, from_text=from_text)
        if number is None:
            noun = "a whole number" if kind is int else "a number"
            extra = " or off" if optional else ""
            advice = "; leave out the %" if str(value).endswith("%") else ""
            raise ConfigError(f"cannot use {label} {value!r}: it must be {noun}{extra}{advice}")
        check_range(setting, label, number)
        return number
    if kind is str and isinstance(value, str):
        return str(value)
    if type(value) is not kind:
        noun = {bool: "true or false", str: "a text", Path: "a path"}[kind]
        raise ConfigError(f"{label} must be {noun}, not {value!r}")
    return value


def _number(kind: type, value: object, *, from_text: bool) -> float | int | None:
    if from_text and isinstance(value, str):
        try:
            return int(value) if kind is int else float(value)
        except ValueError:
            return None
    if type(value) is bool:
        return None
    if isinstance(value, Integral):  # NumPy's, too
        return as_float(int(value)) if kind is float else int(value)
    return float(value) if kind is float and isinstance(value, Real) else None


def parse_choice(kind: type[Kind], value: object, label: str) -> Kind:
    """Return the member of an enumeration with that value, or raise ConfigError."""
    choices = [member.value for member in kind]
    if isinstance(value, str) and value.lower() in choices:
        return kind(value.lower())
    meant = _MEANT.get(str(value).lower(), str(value))
    raise ConfigError(f"{label}: unknown value {value!r}{did_you_mean(meant, choices)}")
