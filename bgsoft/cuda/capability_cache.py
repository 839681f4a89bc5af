"""Capabilities of the hardware, kept from run to run in a JSON file of the user cache.

They are kept by subject with the circumstances that they depend on; where one of those has changed,
the subject's entries are dropped. A file that cannot be read or written is ignored.
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
"""Stages are made beside each other, and ask for capabilities then."""


class CapabilityCache:
    """Answers about a subject (``video engines of NVIDIA L4``) in circumstances (versions)."""

    def __init__(self, subject: str, circumstances: Mapping[str, str]) -> None:
        self._subject = subject
        self._circumstances = dict(circumstances)
        self._known = self._kept(_read())

    def _kept(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """The file's answers about this subject under the same circumstances."""
        entry = file.get(self._subject)
        if not isinstance(entry, dict) or entry.get("circumstances") != self._circumstances:
            return {}
        known = entry.get("facts")
        return known if isinstance(known, dict) else {}

    def get(self, name: str) -> Any:
        """An answer of this or an earlier process; None where it is unknown."""
        return self._known.get(name)

    def put(self, name: str, value: Any, *, lasting: bool = True) -> None:
        """Keep an answer (JSON, but not None), for this process alone unless ``lasting``."""
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
