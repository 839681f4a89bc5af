"""Finds the videos and pictures that a batch is given: files, folders, patterns and lists."""

from __future__ import annotations

import codecs
import glob
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bgsoft.errors import ConfigError, OpenError, os_errors_as, translated
from bgsoft.media.containers import STILL_SUFFIXES
from bgsoft.outputs import resolved
from bgsoft.records import dataclass

VIDEO_SUFFIXES = frozenset(
    {
        *(".3g2", ".3gp", ".asf", ".avi", ".dv", ".f4v", ".flv", ".m2ts", ".m2v", ".m4v", ".mkv"),
        *(".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".obu", ".ogm", ".ogv", ".qt"),
        *(".ts", ".vob", ".webm", ".wmv", ".y4m"),
    }
)
"""What a folder's videos are taken by, and its pictures by :data:`STILL_SUFFIXES`; a file that is
named is taken whatever it is called."""
_STANDARD_INPUT = "-"
_MOST_KINDS = 8
"""Endings that are named of files which are passed over."""


@dataclass(frozen=True, slots=True)
class Found:
    """A video to render."""

    path: Path
    folder: Path
    """Where it lies inside the folder that was given, e.g. ``2024/may``; ``.``: directly."""
    is_named: bool = False
    """The file itself was given."""


def find(
    sources: Iterable[str],
    *,
    leave_out: Path,
    exclude: Sequence[str] = (),
    passed_over: Counter[str] | None = None,
) -> Iterator[Found]:
    """The videos of all sources, each once, in the order of the sources.

    Args:
        sources: Files; folders, which are searched to the bottom; patterns for either.
        leave_out: A folder that is not searched: that of the outputs.
        exclude: Patterns of names, and of paths inside the folder that was given, to leave out.
        passed_over: Takes the endings of other files in folders, and how many have each.

    Raises:
        OpenError: A source is not there.
        OutputError: Links lead the folder of the outputs nowhere.
    """
    seen: set[Path] = set()
    hidden = resolved(leave_out, "output folder")
    for source in sources:
        for path in _matches(source):
            named = Found(path, Path(), is_named=True)
            for found in _in_folder(path, hidden) if path.is_dir() else [named]:
                inside = found.folder / found.path.name
                if found.path.absolute() in seen or _is_excluded(inside, exclude):
                    continue
                seen.add(found.path.absolute())
                ending = found.path.suffix.lower()
                if found.is_named or ending in VIDEO_SUFFIXES | STILL_SUFFIXES:
                    yield found
                elif passed_over is not None:
                    passed_over[ending] += 1


def passed_over_text(endings: Counter[str]) -> str:
    """Say which files of folders are none that are rendered."""
    kinds = [f"{count} {ending or 'without ending'}" for ending, count in endings.most_common()]
    more = [f"{len(kinds) - _MOST_KINDS} other kinds"] if len(kinds) > _MOST_KINDS else []
    total = endings.total()
    files = f"{total} file{'' if total == 1 else 's'}"
    return f"{files} passed over, as their names end otherwise: " + ", ".join(
        kinds[:_MOST_KINDS] + more
    )


def _is_excluded(inside: Path, patterns: Sequence[str]) -> bool:
    """Whether a file, or a folder that it is in, matches a pattern."""
    places = [inside, *inside.parents[:-1]]
    return any(
        fnmatchcase(place.name, pattern) or fnmatchcase(str(place), pattern)
        for pattern in (
            each.rstrip("/").removeprefix("./").removeprefix("**/") for each in patterns
        )
        for place in places
    )


def _matches(source: str) -> Sequence[Path]:
    path = Path(source)
    if os.path.exists(path):  # noqa: PTH110 - also of a name too long; one with a bracket in it
        return [path]
    if not glob.has_magic(source):
        raise OpenError(f"no such file or folder: {source}", path=path)
    matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - absolute ones, too
    if not matches:
        raise OpenError(f"nothing matches {source}", path=path)
    return [Path(match) for match in matches]


def _in_folder(top: Path, leave_out: Path) -> Iterator[Found]:
    """The files below a folder, sorted; hidden files and folders are left alone."""
    for folder, below, names in os.walk(top):
        here = Path(folder)
        below[:] = sorted(
            name
            for name in below
            if not name.startswith(".") and (here / name).resolve() != leave_out
        )
        for name in sorted(names):
            if not name.startswith("."):
                yield Found(here / name, here.relative_to(top))


def read_list(name: str) -> list[str]:
    """The sources that a file lists, one a line, or ended by zero bytes as ``find -print0`` does.

    Of lines, those that begin with ``#`` are comments; ``./#name`` is a file. A byte-order mark is
    no part of the first, and tells UTF-16, which Windows shells write.

    Args:
        name: The file, or ``-`` for standard input. Relative names in it start where bgsoft does.

    Raises:
        ConfigError: It cannot be read.
    """
    problem = f"cannot read the list {name}"
    with os_errors_as(ConfigError, problem, path=name):
        data = sys.stdin.buffer.read() if name == _STANDARD_INPUT else Path(name).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        no_text = ConfigError(f"{problem}: it is no UTF-16", path=name)
        with translated(UnicodeError, to=lambda _: no_text):
            data = data.decode("utf-16").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        lines = data.split(b"\0")
    else:
        lines = [line for line in data.splitlines() if not line.startswith(b"#")]
    return [os.fsdecode(line) for line in lines if line.strip()]
