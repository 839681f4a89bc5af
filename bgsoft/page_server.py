"""HTTP servers of pages that bgsoft shows to one user on this machine.

Python's own HTTP server suffices for one viewer; a framework would add an event loop and a dozen
packages for a few addresses.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import socketserver
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs

from bgsoft.errors import BgsoftError, ConfigError, OutputError, errors_as, os_errors_as
from bgsoft.untrusted import parse_json

_MAX_BODY_BYTES = 1 << 20
"""As large as a file of regions may be."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; img-src blob: data:; connect-src 'self';"
    " script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
"""Nothing is loaded from, or sent to, other hosts. Browser automation waits by eval."""
_UNKNOWN = {"error": "there is no such page"}

Shown = TypeVar("Shown")
"""The object that a page shows and changes."""


class PageServer(socketserver.ThreadingMixIn, socketserver.TCPServer, Generic[Shown]):
    """A server of 127.0.0.1 with a thread for each request; :meth:`end` ends them all.

    Args:
        port: 0: any free port.
        shown: Object that the requests read and change.
        handler: Class of the requests.
        name: Name of the page in an error.

    Raises:
        OutputError: The port is in use.
    """

    allow_reuse_address = True
    daemon_threads, block_on_close = True, False

    def __init__(
        self, port: int, shown: Shown, handler: type[PageRequest[Shown]], name: str
    ) -> None:
        self.shown = shown
        self.end_seconds = 2.0
        """Longest wait for requests at the end."""
        self._requests: set[Any] = set()
        with os_errors_as(OutputError, f"cannot show the {name} on port {port}"):
            super().__init__(("127.0.0.1", port), handler)
        self.port = int(self.server_address[1])
        self.token = secrets.token_urlsafe(16)
        """The page's secret, which every request must have."""
        self.url = f"http://127.0.0.1:{self.port}/?token={self.token}"

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
        until = time.monotonic() + self.end_seconds
        while self._requests and time.monotonic() < until:
            time.sleep(0.01)
        self.server_close()


class PageRequest(BaseHTTPRequestHandler, Generic[Shown]):
    """A request of the page; a subclass answers those with the token."""

    server: PageServer[Shown]
    server_version, sys_version = "bgsoft", ""
    timeout = 5.0
    """Seconds in which a browser must send or receive data."""

    def get(self, path: str, query: Mapping[str, str]) -> bool:
        """Answer a GET request; return False if there is no such page.

        Raises:
            BgsoftError: The answer has its message.
        """
        raise NotImplementedError

    def post(self, path: str, sent: dict[str, Any]) -> Mapping[str, Any] | None:
        """Return the answer to a POST request with a JSON object; None: there is no such page.

        Raises:
            BgsoftError: The answer has its message.
        """
        raise NotImplementedError

    def do_GET(self) -> None:
        query = self._query()
        if query is None:
            return
        with self._failures():
            if not self.get(self.path.partition("?")[0], query):
                self.answer_json(_UNKNOWN, status=HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        if self._query() is None:
            return
        with self._failures():
            answer = self.post(self.path.partition("?")[0], self._body())
            if answer is None:
                self.answer_json(_UNKNOWN, status=HTTPStatus.NOT_FOUND)
            else:
                self.answer_json(answer)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except BgsoftError as exc:
            self.answer_json({"error": str(exc)}, status=HTTPStatus.BAD_REQUEST)

    def _query(self) -> dict[str, str] | None:
        """Return the query of a request with the token; answer 403 to others.

        The host is checked, too: a foreign page whose name resolves to this address must not read
        the answers.
        """
        query = {key: values[-1] for key, values in parse_qs(self.path.partition("?")[2]).items()}
        token = self.server.token.encode()
        is_ours = self.headers.get("Host") in {
            f"{host}:{self.server.port}" for host in ("127.0.0.1", "localhost")
        }
        if is_ours and secrets.compare_digest(query.get("token", "").encode(), token):
            return query
        refused = {"error": "use the address that bgsoft printed"}
        self.answer_json(refused, status=HTTPStatus.FORBIDDEN)
        return None

    def _body(self) -> dict[str, Any]:
        """Return the JSON object of the request; raises ConfigError if there is none."""
        length = parse_number(self.headers.get("Content-Length", ""))
        if length is None or length > _MAX_BODY_BYTES:
            # Unread data would close the connection before the browser has read the answer.
            self.rfile.read(min(length or 0, 8 * _MAX_BODY_BYTES))
            raise ConfigError("cannot read the request: it has no length, or is too long")
        with errors_as((ValueError,), ConfigError, "cannot read the request as JSON"):
            sent = parse_json(self.rfile.read(length))
        if not isinstance(sent, dict):
            raise ConfigError("cannot read the request: it is not a JSON object")
        return sent

    def answer_json(self, value: Mapping[str, Any], *, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Answer with a JSON object."""
        self.answer("application/json", json.dumps(value).encode(), status=status)

    def answer(
        self,
        kind: str = "",
        data: bytes = b"",
        more: Mapping[str, str] | None = None,
        *,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        """Answer with data of a kind, such as ``image/jpeg``, and more headers."""
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


def parse_number(text: str) -> int | None:
    """Parse a browser's number; None: it is malformed or too large."""
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None
