"""The preview page of a stand-in for a stream, and a browser."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Protocol

import cv2
import numpy as np
import pytest

from bgsoft.errors import ConfigError
from bgsoft.live.base import LiveFrame
from bgsoft.live.preview import PreviewServer
from bgsoft.live.settings import LiveSettings
from bgsoft.settings.config import EffectKind, FaceMode, RenderConfig
from tests.live_threads import no_thread_is_left
from tests.processes import wait_until

__all__ = ["no_thread_is_left"]


class Applied:
    """A stand-in for a stream's settings: records them, and rejects some."""

    def __init__(self) -> None:
        self.configs: list[RenderConfig] = []
        flags = {"effect": {"strength": 4.0}, "face": {"mode": FaceMode.OFF}}
        self.settings = LiveSettings("soft", flags, self.apply, lambda: {"frames_in": 12})

    def apply(self, config: RenderConfig) -> None:
        if config.effect.kind is EffectKind.ALPHA:
            raise ConfigError("no alpha while a stream runs")
        self.configs.append(config)


@pytest.fixture
def applied() -> Applied:
    return Applied()


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(applied: Applied, clock: Clock) -> Iterator[PreviewServer]:
    before = set(threading.enumerate())
    with PreviewServer(0, applied.settings, clock=clock) as server:
        yield server
    until = time.monotonic() + 20
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < until, left
        time.sleep(0.005)


class Served(Protocol):
    url: str


def ask(
    server: Served,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    token: str | None = None,
) -> tuple[int, bytes, Any]:
    """Return status, body and headers of an answer; all but bytes is sent as JSON."""
    origin, _, own = server.url.partition("/?token=")
    address = f"{origin}{path}{'&' if '?' in path else '?'}token={own if token is None else token}"
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read(), exc.headers


def error(answer: tuple[int, bytes, Any]) -> str:
    assert answer[0] == 400
    text = json.loads(answer[1])["error"]
    assert "\n" not in text
    return str(text)


def picture(server: PreviewServer, view: str, frame: LiveFrame) -> np.ndarray[Any, Any]:
    """Return the picture of a frame in a view as a browser shows it, (H, W, 3)."""
    answers: list[tuple[int, bytes, Any]] = []
    seen = server._pictures.get(view, (0,))[0]
    path = f"/picture?view={view}&after={seen}"
    thread = threading.Thread(target=lambda: answers.append(ask(server, path)))
    thread.start()
    until = time.monotonic() + 20
    while thread.is_alive() and time.monotonic() < until:
        if not server._is_taken:
            server._clock.seconds += 0.1  # type: ignore[attr-defined]
        server.publish(frame)
        thread.join(0.005)
    wait_until(lambda: not server._is_taken)  # the last one that was published
    ((status, data, headers),) = answers
    assert status == 200
    assert headers["Content-Type"] == "image/jpeg"
    assert int(headers["X-Number"]) > seen
    assert 0 <= float(headers["X-Age-Ms"]) < 60_000
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return decoded
