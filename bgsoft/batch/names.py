"""The names of a batch's outputs, from templates like ``{stem}-soft{suffix}``."""

from __future__ import annotations

import string
from pathlib import Path

from bgsoft.batch.find import Found
from bgsoft.errors import ConfigError, UnsupportedFormatError
from bgsoft.media.containers import container_for
from bgsoft.suggestions import did_you_mean


def expand(template: str, found: Found, index: int) -> Path:
    """A name for one input, relative to the output folder.

    The tree of the input folder is kept, except where the template places ``{parent}`` itself.

    Args:
        template: May hold ``{stem}``, the input's name without its ending; ``{suffix}``, its
            ending, or ``.mkv`` where bgsoft does not write that kind; ``{parent}``, its folder
            inside the one that was given; ``{index}``, its number, e.g. ``{index:03}``.
        found: The input.
        index: Its number.

    Raises:
        ConfigError: The template is malformed, or leads out of the output folder.
    """
    values = {
        "stem": found.path.stem,
        "suffix": _suffix(found.path),
        "parent": str(found.folder),
        "index": index,
    }
    try:
        used = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
        unknown = min(used - values.keys(), default=None)
        if unknown is not None:
            near = did_you_mean(unknown, values)
            raise ConfigError(f"unknown field {{{unknown}}} in the name {template!r}{near}")
        name = Path(template.format_map(values))
    except (ValueError, LookupError, AttributeError) as exc:
        raise ConfigError(f"malformed name {template!r}: {exc}") from exc
    path = name if "parent" in used else found.folder / name
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise ConfigError(f"the name {template!r} leads out of the output folder")
    return path


def _suffix(path: Path) -> str:
    try:
        container_for(path)
    except UnsupportedFormatError:
        return ".mkv"
    return path.suffix
