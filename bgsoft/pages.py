"""HTML pages that load nothing: each carries the style that all share."""

from __future__ import annotations

from pathlib import Path

_STYLE = Path(__file__).with_name("pages.css")
_PLACE = "/* pages.css */\n"


def read_page(path: Path) -> str:
    """Return a page of this package with the shared style in its place."""
    style = _STYLE.read_text(encoding="utf-8")
    return path.read_text(encoding="utf-8").replace(_PLACE, style)
