"""Facts about this machine that hold from run to run, so that they need not be found out again.

They lie in one JSON file of the user cache, under a subject, beside the circumstances that they
depend on: where one of those has changed, the facts of that subject count for nothing. A file that
cannot be read or written is as good as none.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.errors import OutputError
from bgsoft.models.cache import cache_root, locked
from bgsoft.outputs import write_whole

_WRITING = threading.Lock()
"""Stages are made beside each other, and find out their facts then."""


class Facts:
    """What is known of one subject.

    Args:
        subject: What the facts are about, e.g. ``video engines of NVIDIA L4``.
        circumstances: What they depend on, e.g. versions, by name.
    """

    def __init__(self, subject: str, circumstances: Mapping[str, str]) -> None:
        self._subject = subject
        self._circumstances = dict(circumstances)
        self._known = self._kept(_read())

    def _kept(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """What the file tells of this subject under the same circumstances."""
        entry = file.get(self._subject)
        if not isinstance(entry, dict) or entry.get("circumstances") != self._circumstances:
            return {}
        facts = entry.get("facts")
        return facts if isinstance(facts, dict) else {}

    def get(self, name: str) -> Any:
        """A fact of this or an earlier process; None where it is unknown."""
        return self._known.get(name)

    def put(self, name: str, value: Any, *, lasting: bool = True) -> None:
        """Note a fact: anything that JSON can hold, but None.

        Processes that note facts at the same time wait for each other.
        """
        self._known[name] = value
        if not lasting:
            return
        with _WRITING, contextlib.suppress(OSError, OutputError):
            path = _path()
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_suffix(".lock")):
                file = _read()
                facts = self._kept(file) | {name: value}
                entry = {"circumstances": self._circumstances, "facts": facts}
                write_whole(path, "facts", json.dumps(file | {self._subject: entry}))


def _path() -> Path:
    return cache_root() / "facts.json"


def _read() -> dict[str, Any]:
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
