"""Cache of hardware capabilities, in a JSON file of the user's cache folder.

Answers are stored by subject, with the circumstances that they depend on. A change of these drops
the subject's entries. A file that cannot be read or written is ignored.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.cache import cache_root, locked
from bgsoft.errors import OutputError
from bgsoft.outputs import write_whole
from bgsoft.untrusted import parse_json

_WRITING = threading.Lock()
"""Serialises writing: stages are built in parallel, and then ask for capabilities."""


class CapabilityCache:
    """Answers about a subject (``video engines of NVIDIA L4``) in circumstances (versions)."""

    def __init__(self, subject: str, circumstances: Mapping[str, str]) -> None:
        self._subject = subject
        self._circumstances = dict(circumstances)
        self._known = self._kept(_read())

    def _kept(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file's answers about this subject in the same circumstances."""
        entry = file.get(self._subject)
        if not isinstance(entry, dict) or entry.get("circumstances") != self._circumstances:
            return {}
        known = entry.get("facts")
        return known if isinstance(known, dict) else {}

    def get(self, name: str) -> Any:
        """Return an answer of this or an earlier process; None if there is none."""
        return self._known.get(name)

    def put(self, name: str, value: Any, *, lasting: bool = True) -> None:
        """Store an answer (JSON, not None); unless ``lasting``, for this process only."""
        self._known[name] = value
        if not lasting:
            return
        with _WRITING, contextlib.suppress(OSError, OutputError):
            path = _path()
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_suffix(".lock")):
                file = _read()
                known = self._kept(file) | {name: value}
                entry = {"circumstances": self._circumstances, "facts": known}
                write_whole(path, "capabilities", json.dumps(file | {self._subject: entry}))


def _path() -> Path:
    return cache_root() / "facts.json"


def _read() -> dict[str, Any]:
    try:
        found = parse_json(_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
