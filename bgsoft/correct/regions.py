"""A file of regions that is edited: what the user leaves alone keeps its text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError, os_errors_as
from bgsoft.outputs import write_whole, writing
from bgsoft.settings.regions import Region, RegionShape
from bgsoft.settings.regions_file import parse_regions
from bgsoft.untrusted import file_state, parse_toml, read_toml_bytes

_HEADER = re.compile(r"\s*\[\[\s*region\s*\]\]")
_NEW_KEYS = ("action", *(shape.value for shape in RegionShape), "from", "to", "follow")
"""Keys of a region that the page makes; key frames are only kept."""


class RegionsFile:
    """The regions in a file, which need not exist yet.

    Regions have numbers, from 0 on. They are those of the last :meth:`read`.

    Args:
        path: The file.

    Raises:
        ConfigError: It exists and is no file of regions, or has another form than
            ``[[region]]`` tables.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def read(self) -> None:
        """Read the file again; raises as the constructor."""
        self._data = self._read_data()
        self.regions: tuple[Region, ...] = ()
        if self._data:
            self.regions = parse_regions(self._data, self.path)
        self._head, *self._blocks = _split(self._data.decode("utf-8-sig"))
        tables: list[Any] = []
        try:
            for block in (self._head, *self._blocks):
                tables += parse_toml(block.encode()).get("region", ())
            agrees = tables == parse_toml(self._data).get("region", [])
        except ValueError:
            agrees = False
        if not agrees or len(tables) != len(self._blocks):
            raise ConfigError(
                f"cannot edit {self.path}: its regions are not written as [[region]] tables;"
                " write each as one",
                path=self.path,
            )

    @property
    def version(self) -> str:
        """Name of the content, which differs for every other one."""
        return hashlib.sha256(self._data).hexdigest()

    def compose(self, version: object, entries: object) -> tuple[str, tuple[Region, ...]]:
        """Return the text of a changed file, and its regions.

        Args:
            version: The :attr:`version` to which the entries belong.
            entries: The regions in order: the number of one that is kept, or the table of one
                that is new or changed.

        Raises:
            ConfigError: The file was read again since, or an entry is malformed.
        """
        if version != self.version:
            raise ConfigError(
                f"cannot use the regions: {self.path.name} was changed meanwhile; reload the page"
            )
        if not isinstance(entries, list):
            raise ConfigError("cannot read the regions: they are not a list")
        text, was_new = self._head, False
        for entry in entries:
            block, is_new = self._block(entry), isinstance(entry, dict)
            if text and not text.endswith("\n"):
                text += "\n"
            if text and (is_new or was_new):
                text += "\n"
            text, was_new = text + block, is_new
        return text, parse_regions(text.encode(), self.path) if entries else ()

    def save(self, version: object, entries: Sequence[object]) -> None:
        """Write the file in one step; without regions it is removed.

        Raises:
            ConfigError: As :meth:`compose`; or another program has changed the file.
            OutputError: It cannot be written.
        """
        text, _ = self.compose(version, entries)
        if self._read_data() != self._data:
            raise ConfigError(
                f"cannot save {self.path.name}: another program has changed it; reload the page"
            )
        if entries:
            write_whole(self.path, "regions file", text)
        else:
            with writing(self.path, "regions file"):
                self.path.unlink(missing_ok=True)
        self.read()

    def _read_data(self) -> bytes:
        with os_errors_as(ConfigError, f"cannot read regions file {self.path}", path=self.path):
            if not self.path.exists():
                return b""
            file_state(self.path)
            return read_toml_bytes(self.path)

    def _block(self, entry: object) -> str:
        if isinstance(entry, int) and not isinstance(entry, bool):
            if not 0 <= entry < len(self._blocks):
                raise ConfigError(f"cannot keep region {entry}: the file has no such region")
            return self._blocks[entry]
        if not isinstance(entry, dict):
            raise ConfigError(f"cannot read the regions: {entry!r} is none")
        lines = ["[[region]]"]
        for key, value in entry.items():
            if key not in _NEW_KEYS:
                raise ConfigError(f"cannot write a region with {key!r}")
            lines.append(f"{key} = {_value(key, value)}")
        return "\n".join(lines) + "\n"


def _value(key: str, value: object) -> str:
    """Return a value as TOML, of which JSON's text and numbers are a part."""
    if not isinstance(value, (str, bool, int, float)):
        raise ConfigError(f"{key} must be text or a number, not {value!r}")
    return json.dumps(value)


def _split(text: str) -> list[str]:
    """Split a file into what precedes its regions, and the text of each.

    Comments directly above a region belong to it.
    """
    lines = text.splitlines(keepends=True)
    starts = [0]
    for number, line in enumerate(lines):
        if _HEADER.match(line):
            begin = number
            while begin > starts[-1] and lines[begin - 1].lstrip().startswith("#"):
                begin -= 1
            starts.append(begin)
    return ["".join(lines[one:end]) for one, end in zip(starts, [*starts[1:], None], strict=True)]
