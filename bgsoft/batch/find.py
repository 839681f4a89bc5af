"""Search for the videos and pictures of a batch: in files, folders, patterns and lists."""

from __future__ import annotations

import codecs
import glob
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from bgsoft.errors import ConfigError, OpenError, os_errors_as, translated
from bgsoft.media.containers import STILL_SUFFIXES
from bgsoft.outputs import resolved
from bgsoft.records import dataclass
from bgsoft.settings.regions_file import REGIONS_SUFFIX

VIDEO_SUFFIXES = frozenset(
    {
        *(".3g2", ".3gp", ".asf", ".avi", ".dv", ".f4v", ".flv", ".m2ts", ".m2v", ".m4v", ".mkv"),
        *(".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".obu", ".ogm", ".ogv", ".qt"),
        *(".ts", ".vob", ".webm", ".wmv", ".y4m"),
    }
)
"""Suffixes of videos in folders; those of pictures are :data:`STILL_SUFFIXES`.

A file that is named itself is taken with any suffix."""
_SUFFIXES = VIDEO_SUFFIXES | STILL_SUFFIXES
_STANDARD_INPUT = "-"
_LINKED, _UNREADABLE = "linked folder", "unreadable folder"
"""Stand for a suffix where ignored files are counted."""
_MAX_KINDS = 8
"""Maximum number of suffixes listed in the notice about ignored files."""


@dataclass(frozen=True, slots=True)
class Found:
    """A video or picture to render."""

    path: Path
    folder: Path
    """Its folder relative to the given one, such as ``2024/may``, or ``.``."""
    is_named: bool = False
    """True: the command names the file itself, not a folder, pattern or list."""
    unsearched: str = ""
    """Kind of a folder that is not searched: :data:`_LINKED` or :data:`_UNREADABLE`."""


def find(
    sources: Iterable[str],
    *,
    leave_out: Path,
    named: Iterable[str] = (),
    exclude: Sequence[str] = (),
    passed_over: Counter[str] | None = None,
) -> Iterator[Found]:
    """Yield the videos of all sources once each, in the order of the sources.

    Args:
        sources: Files; folders, which are searched recursively; patterns for either.
        leave_out: The output folder, which is not searched.
        named: Those of the sources that are not from lists.
        exclude: Patterns of names to leave out, and of paths inside the given folder.
        passed_over: Receives the suffixes of ignored files in folders, with their counts, and the
            number of folders that are not searched.

    Raises:
        OpenError: A source does not exist, or cannot be read.
        OutputError: The output folder is a broken symbolic link.
    """
    seen: set[Path] = set()
    by_name = {Path(each).absolute() for each in named}
    hidden = resolved(leave_out, "output folder")
    for source in sources:
        for path in _matches(source):
            is_folder = os.path.isdir(path)  # noqa: PTH112 - pathlib's raise in closed folders
            if is_folder and path == Path(source):
                with os_errors_as(OpenError, f"cannot search {source}", path=path):
                    os.scandir(path).close()
            for found in _in_folder(path, hidden) if is_folder else [Found(path, Path())]:
                inside, place = found.folder / found.path.name, found.path.absolute()
                if place in seen or _is_excluded(inside, exclude):
                    continue
                seen.add(place)
                is_named = place in by_name and not found.unsearched
                ending = found.unsearched or found.path.suffix.lower()
                if not is_folder or is_named or ending in _SUFFIXES:
                    yield replace(found, is_named=is_named)
                elif passed_over is not None:
                    passed_over[ending] += 1


def passed_over_text(endings: Counter[str]) -> str:
    """Return a notice about ignored files in folders, and about folders that are not searched."""
    endings = endings.copy()
    folders = [
        f"{count} {kind}{'' if count == 1 else 's'} not searched"
        for kind in (_LINKED, _UNREADABLE)
        if (count := endings.pop(kind, 0))
    ]
    if not endings:
        return "; ".join(folders)
    kinds = [f"{count} {ending or 'without suffix'}" for ending, count in endings.most_common()]
    more = [f"{len(kinds) - _MAX_KINDS} other kinds"] if len(kinds) > _MAX_KINDS else []
    total = endings.total()
    files = f"{total} file{'' if total == 1 else 's'}"
    listed = ", ".join(kinds[:_MAX_KINDS] + more)
    text = f"{files} ignored, not named like videos or pictures: {listed}"
    return "; ".join([text, *folders])


def _is_excluded(inside: Path, patterns: Sequence[str]) -> bool:
    """Return True if a file, or one of its folders, matches a pattern."""
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
    unreadable = os_errors_as(OpenError, f"cannot find {source!r}", path=path)
    with unreadable, suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # first: a name may contain a bracket
        return [path]
    if not glob.has_magic(source):
        raise OpenError(f"cannot find {source!r}: no such file or folder", path=path)
    matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - also for absolute patterns
    if not matches:
        raise OpenError(f"cannot find {source!r}: nothing matches this pattern", path=path)
    return [Path(match) for match in matches]


def _in_folder(top: Path, leave_out: Path) -> Iterator[Found]:
    """Yield the files below a folder, sorted, and folders that are not searched.

    Hidden files and folders are left out, and regions files of videos and pictures.
    """
    unread: list[OSError] = []
    for folder, below, names in os.walk(top, onerror=unread.append):
        here = Path(folder)
        below[:] = sorted(
            name
            for name in below
            if not name.startswith(".") and (here / name).resolve() != leave_out
        )
        paths = [here / name for name in sorted(names) if not name.startswith(".")]
        regions = {path.stem + REGIONS_SUFFIX for path in paths if path.suffix.lower() in _SUFFIXES}
        for path in paths:
            if path.name not in regions:
                yield Found(path, here.relative_to(top))
        for path in (here / name for name in below):
            if os.path.islink(path):  # noqa: PTH114
                yield Found(path, here.relative_to(top), unsearched=_LINKED)
    for place in (Path(exc.filename) for exc in unread):
        yield Found(place, place.relative_to(top).parent, unsearched=_UNREADABLE)


def read_list(name: str) -> list[str]:
    """Return the sources in a list: one per line, or ended by zero bytes like ``find -print0``.

    Lines that begin with ``#`` are comments; ``./#name`` is a file. A byte-order mark is removed,
    and decides whether the list is UTF-16, which Windows shells write.

    Args:
        name: The list, or ``-`` for standard input. Names in it are relative to the working folder.

    Raises:
        ConfigError: The list cannot be read.
    """
    problem = f"cannot read list {name}"
    with os_errors_as(ConfigError, problem, path=name):
        data = sys.stdin.buffer.read() if name == _STANDARD_INPUT else Path(name).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        no_text = ConfigError(f"{problem}: it is not valid UTF-16; save it as UTF-8", path=name)
        with translated(UnicodeError, to=lambda _: no_text):
            data = data.decode("utf-16").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        lines = data.split(b"\0")
    else:
        lines = [line for line in data.splitlines() if not line.startswith(b"#")]
    return [os.fsdecode(line) for line in lines if line.strip()]
