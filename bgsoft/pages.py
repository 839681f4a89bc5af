"""HTML pages that load nothing: each contains its own style and script, and the shared style."""

from __future__ import annotations

import re
from pathlib import Path

_SHARED = Path(__file__).with_name("pages.css")
_PLACE = re.compile(r"^/\* (\w+\.(?:css|js)) \*/\n", re.MULTILINE)


def read_page(path: Path) -> str:
    """Return a page of this package, with files of its folder and ``pages.css`` in their places.

    A place is a line with the file's name as a comment.
    """

    def content(place: re.Match[str]) -> str:
        name = place[1]
        part = _SHARED if name == _SHARED.name else path.with_name(name)
        return part.read_text(encoding="utf-8")

    return _PLACE.sub(content, path.read_text(encoding="utf-8"))
