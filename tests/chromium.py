"""Headless Chromium, driven by its DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)
_SECONDS = 60.0
_BUTTONS = {"mousePressed": 1, "mouseMoved": 1, "mouseReleased": 0}
_KEYS = {"Delete": 46, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "End": 35}


class Browser:
    """A browser with one page.

    Args:
        profile: Folder for its files.
        width: Of the page, pixels.
        height: Of the page, pixels.
    """

    def __init__(self, profile: Path, width: int = 1280, height: int = 800) -> None:
        assert CHROMIUM is not None
        to_read, self._to_browser = os.pipe()
        self._from_browser, to_write = os.pipe()
        # It reads descriptor 3, and writes to 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        size = f"--window-size={width},{height}"
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", size, "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._numbers = itertools.count(1)
        self._received = b""
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> Any:
        while b"\0" not in self._received:
            data = os.read(self._from_browser, 1 << 20)
            assert data, "the browser has ended"
            self._received += data
        text, _, self._received = self._received.partition(b"\0")
        return json.loads(text)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; a promise is waited for."""
        made = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in made, made["exceptionDetails"]
        return made["result"].get("value")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def wait(self, expression: str) -> None:
        until = time.monotonic() + _SECONDS
        while not self.evaluate(f"!!({expression})"):
            assert time.monotonic() < until, (expression, self.evaluate("document.body.innerText"))
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Send ``mousePressed``, ``mouseMoved`` or ``mouseReleased``."""
        more = {"button": "left", "buttons": _BUTTONS[kind], "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, *points: tuple[float, float]) -> None:
        """Press the button at the first point, and release it at the last."""
        self.mouse("mousePressed", *points[0])
        for point in points[1:]:
            self.mouse("mouseMoved", *point)
        self.mouse("mouseReleased", *points[-1])

    def click(self, selector: str) -> None:
        """Click the middle of the first element of a selector."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.evaluate(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box})")
        self.drag((x, y), (x, y))

    def key(self, key: str) -> None:
        code = _KEYS.get(key, ord(key[0].upper()))
        text = {"text": key} if len(key) == 1 else {}
        for kind, more in (("keyDown", text), ("keyUp", {})):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more
            )

    def picture(self) -> bytes:
        """Return the page as a PNG file."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to_browser)
        os.close(self._from_browser)
