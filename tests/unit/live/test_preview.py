"""The preview's server: who may see it, its port, odd requests, and how it ends."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from bgsoft.errors import ConfigError, OutputError
from bgsoft.exitcodes import ExitCode, exit_code
from bgsoft.live.page import PreviewRequest
from bgsoft.live.preview import PreviewServer
from bgsoft.settings.config import RenderConfig
from tests.unit.live.conftest import Applied, ask


@pytest.mark.parametrize("path", ["/", "/state", "/picture?view=result", "/nowhere"])
def test_nothing_is_shown_without_the_token(server: PreviewServer, path: str) -> None:
    for token in ("", "x", server.token[:-1], server.token + "x"):
        status, body, _ = ask(server, path, token=token)
        assert (status, server.token.encode() in body) == (403, False)
    origin = server.url.partition("?")[0].rstrip("/")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(origin + path, timeout=20)
    with caught.value as refused:
        assert refused.code == 403


def test_nothing_is_changed_without_the_token(server: PreviewServer, applied: Applied) -> None:
    for path in ("/change", "/save"):
        assert ask(server, path, {"strength": 1, "name": "x"}, token="x")[0] == 403
    assert not applied.configs


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", ""])
def test_another_host_is_refused_with_the_token_too(server: PreviewServer, host: str) -> None:
    port = server.url.split(":")[2].partition("/")[0]
    headers = {"Host": host.format(port=port)}
    assert ask(server, "/", headers=headers)[0] == 403
    assert ask(server, "/change", {"strength": 1}, headers=headers)[0] == 403
    assert ask(server, "/", headers={"Host": f"localhost:{port}"})[0] == 200


def test_only_this_machine_is_served(server: PreviewServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"


def test_the_page_needs_nothing_from_elsewhere(server: PreviewServer) -> None:
    status, body, headers = ask(server, "/")
    assert status == 200
    text = body.decode()
    assert "http://" not in text
    assert "https://" not in text
    for view in ("source", "matte", "result"):
        assert f'id="{view}"' in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert ask(server, "/favicon.ico")[0] == 404
    assert ask(server, "/picture?view=other")[0] == 404
    assert ask(server, "/other", {})[0] == 404


def test_a_port_in_use_is_an_error_in_one_line(server: PreviewServer, applied: Applied) -> None:
    port = server._server.port
    with pytest.raises(OutputError) as caught:
        PreviewServer(port, applied.settings)
    assert str(caught.value) == f"cannot show the preview on port {port}: Address already in use"
    assert exit_code(caught.value) == ExitCode.OUTPUT
    with pytest.raises(ConfigError, match="between 0 and 65535"):
        PreviewServer(65536, applied.settings)


def test_a_port_is_free_again_after_the_preview(applied: Applied) -> None:
    with PreviewServer(0, applied.settings) as first:
        port = first._server.port
        assert ask(first, "/state")[0] == 200
    first.close()
    with PreviewServer(port, applied.settings) as second:
        assert ask(second, "/state")[0] == 200


@pytest.mark.parametrize(
    "request_line",
    [
        "GET //[?token={token}",
        "GET /picture?view=result&after={nines}&token={token}",
        "GET /picture?view=matte&after=x&token={token}",
        "POST /change?token={token}",
        "GET /?token=%ff%fe&token={token}",
        "GET /?" + "a&" * 30_000,
    ],
)
def test_odd_requests_do_not_end_in_a_traceback(
    server: PreviewServer, request_line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    server.poll_seconds = 0.01
    port, nines = server._server.port, "9" * 5000
    line = request_line.format(token=server.token, nines=nines)
    text = f"{line} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {nines}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(text.encode())
        assert connection.recv(8) == b"HTTP/1.0"
    server.close()
    assert capfd.readouterr().err == ""


@pytest.mark.timeout(20)
def test_it_ends_while_browsers_wait_or_stall(server: PreviewServer) -> None:
    """The fixture asserts that no thread is left."""

    class Patient(PreviewRequest):
        timeout = 60.0

    server._server.RequestHandlerClass = Patient
    server.poll_seconds = 60.0
    port = server._server.port
    with socket.create_connection(("127.0.0.1", port)) as silent:
        answers: list[object] = []

        def wait() -> None:
            try:
                answers.append(ask(server, "/picture?view=result")[0])
            except OSError as exc:
                answers.append(exc)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until = time.monotonic() + 20
        while "result" not in server._watched and time.monotonic() < until:
            time.sleep(0.005)
        server.close()
        assert silent.recv(1) == b""
        waiting.join(20)
    assert answers


@pytest.mark.timeout(20)
def test_it_ends_while_a_change_waits_for_stages_that_hang(
    server: PreviewServer, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, hangs = threading.Event(), threading.Event()

    def apply(_config: RenderConfig) -> None:
        began.set()
        hangs.wait()

    def slide() -> None:
        with suppress(OSError):
            ask(server, "/change", {"strength": 3})

    server._server.end_seconds = 0.05
    monkeypatch.setattr(applied.settings, "_apply", apply)
    browser = threading.Thread(target=slide)
    browser.start()
    assert began.wait(20)
    server.close()
    hangs.set()
    browser.join(20)
