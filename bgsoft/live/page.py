"""The HTTP side of the browser's preview.

The page fetches one JPEG after another, and requests the next when it has shown the last: a slow
browser gets fewer pictures, never older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from bgsoft.page_server import PageRequest, parse_number
from bgsoft.pages import read_page

VIEWS = ("source", "matte", "result")
_PAGE = Path(__file__).with_name("page.html")


class PagePreview(Protocol):
    """The preview as the page uses it: :class:`bgsoft.live.preview.PreviewServer`."""

    def picture(self, view: str, after: int) -> tuple[int, float, bytes] | None:
        """Wait for a picture newer than number ``after``; its number, age in ms, and JPEG."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the data that the page shows next to the pictures."""
        ...

    def change(self, wanted: Mapping[str, object]) -> None:
        """Change settings; BgsoftError where that fails."""
        ...

    def save(self, name: object, *, replaces: bool) -> Path:
        """Write the settings as a preset; BgsoftError where that fails."""
        ...


class PreviewRequest(PageRequest[PagePreview]):
    """A request of the live preview's page."""

    def get(self, path: str, query: Mapping[str, str]) -> bool:
        preview = self.server.shown
        if path == "/":
            self.answer("text/html; charset=utf-8", read_page(_PAGE).encode())
        elif path == "/state":
            self.answer_json(preview.state())
        elif path == "/picture" and query.get("view") in VIEWS:
            found = preview.picture(query["view"], parse_number(query.get("after", "")) or 0)
            if found is None:
                self.answer(status=HTTPStatus.NO_CONTENT)
                return True
            number, age_ms, jpeg = found
            more = {"X-Number": str(number), "X-Age-Ms": f"{age_ms:.1f}"}
            self.answer("image/jpeg", jpeg, more)
        else:
            return False
        return True

    def post(self, path: str, sent: dict[str, Any]) -> Mapping[str, Any] | None:
        preview = self.server.shown
        if path == "/change":
            preview.change(sent)
            return preview.state()
        if path == "/save":
            saved = preview.save(sent.get("name"), replaces=sent.get("replace") is True)
            return {"saved": str(saved)}
        return None
