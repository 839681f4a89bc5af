"""The HTTP side of the browser's preview.

The page fetches one JPEG after another, and requests the next when it has shown the last: a slow
browser gets fewer pictures, never older ones. Python's own HTTP server suffices for one viewer; a
framework would add an event loop and a dozen packages for five addresses.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import socketserver
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs

from bgsoft.errors import BgsoftError, ConfigError, errors_as
from bgsoft.pages import read_page
from bgsoft.untrusted import parse_json

VIEWS = ("source", "matte", "result")
_PAGE = Path(__file__).with_name("page.html")
_MAX_BODY_BYTES = 1 << 16
_END_SECONDS = 2.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; img-src blob:; connect-src 'self';"
    " script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
"""Nothing is loaded from, or sent to, other hosts. Browser automation waits by eval."""


class PagePreview(Protocol):
    """The preview as the page uses it: :class:`bgsoft.live.preview.PreviewServer`."""

    token: str
    """The page's secret, which every request must have."""

    def picture(self, view: str, after: int) -> tuple[int, float, bytes] | None:
        """Wait for a picture newer than number ``after``; its number, age in ms, and JPEG."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what the page shows next to pictures."""
        ...

    def change(self, wanted: Mapping[str, object]) -> None:
        """Change settings; BgsoftError where that fails."""
        ...

    def save(self, name: object, *, replaces: bool) -> Path:
        """Write the settings as a preset; BgsoftError where that fails."""
        ...


class PageServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server with a thread for each request; :meth:`end` ends them all."""

    allow_reuse_address = True
    daemon_threads, block_on_close = True, False

    def __init__(self, port: int, preview: PagePreview) -> None:
        self.preview = preview
        self._requests: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Request)
        self.port = int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        self._requests.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._requests.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnects or stalls during a request."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        """End all requests, except one that waits for hanging stages."""
        self.shutdown()
        for request in list(self._requests):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + _END_SECONDS
        while self._requests and time.monotonic() < until:
            time.sleep(0.01)
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "bgsoft", ""
    timeout = 5.0
    """Seconds in which a browser must send or receive data."""

    def do_GET(self) -> None:
        preview, query = self.server.preview, self._query()
        if query is None:
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", read_page(_PAGE).encode())
        elif path == "/state":
            self._answer_json(HTTPStatus.OK, preview.state())
        elif path == "/picture" and query.get("view") in VIEWS:
            found = preview.picture(query["view"], _number(query.get("after", "")) or 0)
            if found is None:
                self._answer(HTTPStatus.NO_CONTENT)
                return
            number, age_ms, jpeg = found
            more = {"X-Number": str(number), "X-Age-Ms": f"{age_ms:.1f}"}
            self._answer(HTTPStatus.OK, "image/jpeg", jpeg, more)
        else:
            self._answer_json(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})

    def do_POST(self) -> None:
        preview, path = self.server.preview, self.path.partition("?")[0]
        if self._query() is None:
            return
        try:
            wanted = self._body()
            if path == "/change":
                preview.change(wanted)
                self._answer_json(HTTPStatus.OK, preview.state())
            elif path == "/save":
                saved = preview.save(wanted.get("name"), replaces=wanted.get("replace") is True)
                self._answer_json(HTTPStatus.OK, {"saved": str(saved)})
            else:
                self._answer_json(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})
        except BgsoftError as exc:
            self._answer_json(HTTPStatus.BAD_REQUEST, {"error": str(exc)})

    def _query(self) -> dict[str, str] | None:
        """Return the query of a request with the token; answer 403 to others.

        The host is checked, too: a foreign page whose name resolves to this address must not read
        the answers.
        """
        query = {key: values[-1] for key, values in parse_qs(self.path.partition("?")[2]).items()}
        token = self.server.preview.token.encode()
        is_ours = self.headers.get("Host") in {
            f"{host}:{self.server.port}" for host in ("127.0.0.1", "localhost")
        }
        if is_ours and secrets.compare_digest(query.get("token", "").encode(), token):
            return query
        self._answer_json(HTTPStatus.FORBIDDEN, {"error": "use the address that bgsoft printed"})
        return None

    def _body(self) -> dict[str, Any]:
        """Return the JSON object of the request; raises ConfigError if there is none."""
        length = _number(self.headers.get("Content-Length", ""))
        if length is None or length > _MAX_BODY_BYTES:
            raise ConfigError("cannot read the request: it has no length, or is too long")
        with errors_as((ValueError,), ConfigError, "cannot read the request as JSON"):
            sent = parse_json(self.rfile.read(length))
        if not isinstance(sent, dict):
            raise ConfigError("cannot read the request: it is not a JSON object")
        return sent

    def _answer_json(self, status: HTTPStatus, value: Mapping[str, Any]) -> None:
        self._answer(status, "application/json", json.dumps(value).encode())

    def _answer(
        self,
        status: HTTPStatus,
        kind: str = "",
        data: bytes = b"",
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        headers = {**_HEADERS, **(more or {})}
        if kind:
            headers |= {"Content-Type": kind, "Content-Length": str(len(data))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: there are many requests a second."""


def _number(text: str) -> int | None:
    """Parse a browser's number; None: it is malformed or too large."""
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None
