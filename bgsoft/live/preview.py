"""The browser's preview: a page with source, matte and result, and sliders that take effect at once.

The page fetches one JPEG after the other and asks for the next when it has shown the last: a slow
browser gets fewer, never older ones. Python's own HTTP server does for a page that one person looks
at; a framework would bring an event loop, and a dozen packages, for six addresses.
"""

from __future__ import annotations

import json
import re
import secrets
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import BgsoftError, ConfigError, OutputError, os_errors_as
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.live.base import LiveFrame
from bgsoft.outputs import write_whole
from bgsoft.rendering.frames import RgbPictures
from bgsoft.rendering.host import host_planes
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.options import OPTIONS, settings_from_options
from bgsoft.settings.presets import (
    Preset,
    as_toml,
    list_presets,
    settings_of,
    shipped_folder,
    user_folder,
)
from bgsoft.suggestions import did_you_mean
from bgsoft.untrusted import parse_json

VIEWS = ("source", "matte", "result")
SLIDERS = ("strength", "threshold", "feather", "temporal")
_SAVED = ("effect", "segment", "face", "hide", "matte")
"""Sections of a preset that is saved: what the picture is made by, not where or in which codec."""
_PAGE = Path(__file__).with_name("page.html")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_WIDTH = 1280
_QUALITY = 85
_INTERVAL_SECONDS = 1 / 15
"""Between pictures: a third of a core for three views of 1080p, with none to spare for more."""
_WATCHED_SECONDS = 3.0
"""How long after its last request a page counts as open."""
_POLL_SECONDS = 2.0
"""How long a request waits for a new picture."""
_MOST_BODY_BYTES = 1 << 16
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; img-src blob:; connect-src 'self';"
    " script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


class PreviewServer(Closing):
    """Shows the stream on a page of 127.0.0.1, whose address has a token; the sink of ``--preview``.

    Args:
        port: 0: any that is free.
        config: The settings in force.
        on_change: Called on a thread of the page's with what its user has changed: option →
            value, or ``preset`` → name. Raises ConfigError where that cannot be. It must not wait
            for whoever closes the preview.
        statistics: Figures to show: label → value.

    Raises:
        ConfigError: There is no such port.
        OutputError: It is in use.
    """

    wants_source = True

    def __init__(
        self,
        port: int = 0,
        *,
        config: Callable[[], RenderConfig],
        on_change: Callable[[Mapping[str, object]], None],
        statistics: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ConfigError(f"a port is between 0 and 65535, not {port}")
        self.dropped = 0
        self._config, self._on_change, self._statistics = config, on_change, statistics
        with os_errors_as(OutputError, f"cannot show the preview on port {port}"):
            self._server = _Server(port, self)
        self.token = secrets.token_urlsafe(16)
        self.url = f"http://127.0.0.1:{self._server.port}/?token={self.token}"
        self.name = f"preview on port {self._server.port}"
        self._condition = threading.Condition()
        self._watched: dict[str, float] = {}
        self._pictures: dict[str, tuple[int, float, bytes]] = {}
        """View → number, age in ms when it was ready, JPEG."""
        self._snapshot = _Snapshot()
        self._is_taken = self._is_closed = False
        """Whether the snapshot waits to be encoded, or is."""
        self._taken_at = 0.0
        self._threads = [
            threading.Thread(target=self._encode, name="preview"),
            threading.Thread(target=self._server.serve_forever, args=(0.05,), name="preview page"),
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def publish(self, frame: LiveFrame) -> None:
        now = time.monotonic()
        views = [view for view in VIEWS if now - self._watched.get(view, -60) < _WATCHED_SECONDS]
        if not views or now - self._taken_at < _INTERVAL_SECONDS:
            return
        if self._is_taken:
            self.dropped += 1
            return
        self._snapshot.take(frame, views)
        with self._condition:
            self._taken_at, self._is_taken = now, True
            self._condition.notify_all()

    def _encode(self) -> None:
        number = 0
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_taken or self._is_closed)
                if self._is_closed:
                    return
            number += 1
            shows_matte = self._config().effect.kind is EffectKind.MATTE
            jpegs = self._snapshot.encode(shows_matte=shows_matte)
            age_ms = (time.monotonic_ns() - self._snapshot.captured_ns) / 1e6
            with self._condition:
                self._pictures |= {view: (number, age_ms, jpeg) for view, jpeg in jpegs.items()}
                self._is_taken = False
                self._condition.notify_all()

    def picture(self, view: str, after: int) -> tuple[int, float, bytes] | None:
        """A picture newer than number ``after``, waited for: its number, age in ms, and JPEG."""

        def newer() -> bool:
            return self._is_closed or self._pictures.get(view, (0,))[0] > after

        self._watched[view] = time.monotonic()
        with self._condition:
            found = self._condition.wait_for(newer, _POLL_SECONDS) and not self._is_closed
            return self._pictures[view] if found else None

    def state(self) -> dict[str, Any]:
        """What the page shows beside pictures."""
        config = self._config()
        sliders = {}
        for name in SLIDERS:
            option = OPTIONS[name]
            value = getattr(getattr(config, option.section), option.field.name)
            low, high = option.setting.range or (0, config.effect.most_strength)
            if name == "strength":
                value = config.effect.effective_strength
            sliders[name] = {"value": value, "low": low, "high": high, "help": option.help}
        return {
            "sliders": sliders,
            "preset": config.preset,
            "presets": [path.stem for path in list_presets()],
            "statistics": {**self._statistics(), "not shown": self.dropped},
        }

    def change(self, wanted: Mapping[str, object]) -> None:
        """Do what the page asks for; ConfigError where that cannot be."""
        presets = [path.stem for path in list_presets()]
        changes: dict[str, object] = {}
        for name, value in wanted.items():
            if name == "preset":
                if value not in presets:
                    raise ConfigError(f"unknown preset {value!r}{did_you_mean(str(value), presets)}")
                changes[name] = value
            elif name in SLIDERS:
                read = settings_from_options({name: value}, from_text=False)
                changes |= {name: number for part in read.values() for number in part.values()}
            else:
                raise ConfigError(f"unknown setting {name!r}{did_you_mean(name, SLIDERS)}")
        self._on_change(changes)

    def save(self, name: object, *, replaces: bool) -> Path:
        """Write the settings in force as a preset of the user's.

        Raises:
            ConfigError: It is no name, or one that is taken.
            OutputError: It cannot be written.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"a preset's name has 1 to 64 letters, digits, - and _, not {name!r}")
        if (shipped_folder() / f"{name}.toml").exists():
            raise ConfigError(f"{name} is one of bgsoft's own presets: choose another name")
        config, path = self._config(), user_folder() / f"{name}.toml"
        if path.exists() and not replaces:
            raise ConfigError(f"there is a preset {name} already")
        description = f"Chosen by looking, from {config.preset or 'the defaults'}"
        settings = settings_of(config, _SAVED)
        with os_errors_as(OutputError, f"cannot make the folder {path.parent}", path=path):
            path.parent.mkdir(parents=True, exist_ok=True)
        preset = Preset(name=name, description=description, path=path, settings=settings)
        write_whole(path, "preset", as_toml(preset))
        return path

    def close(self) -> None:
        """End all requests and threads."""
        with self._condition:
            if self._is_closed:
                return
            self._is_closed = True
            self._condition.notify_all()
        self._server.end()
        for thread in self._threads:
            thread.join()


class _Snapshot:
    """A frame made smaller, which the encoding thread has to itself; used again and again."""

    def __init__(self) -> None:
        self.captured_ns = 0
        self._format: FrameFormat | None = None
        self._views: list[str] = []

    def take(self, shared: LiveFrame, views: list[str]) -> None:
        format = shared.frame.format
        if format != self._format:
            divisor = -(-format.width // _MOST_WIDTH)
            size = (max(1, side // divisor) for side in (format.width, format.height))
            width, height = size
            color = format.color.with_matrix(format.height)
            self._small = replace(format, width=width, height=height, color=color)
            self._pictures = RgbPictures(self._small, blue_first=True)
            self._planes = {view: host_planes(self._small, 0) for view in ("source", "result")}
            self._format = format
        self.captured_ns = shared.captured_ns
        self._frame = shared.frame
        self._views = [view for view in views if view != "source" or shared.source is not None]
        if "source" in self._views and shared.source is not None:
            _reduce(shared.source, self._planes["source"])
        if "result" in self._views:
            _reduce(shared.frame.planes, self._planes["result"])
        _reduce_plane(shared.frame.planes.alpha, self._planes["result"].alpha)

    def encode(self, *, shows_matte: bool) -> dict[str, bytes]:
        """View → JPEG."""
        jpegs = {}
        for view in self._views:
            if view == "matte" or (view == "result" and shows_matte):
                picture = self._planes["result"].alpha
            else:
                picture = self._pictures.picture(
                    replace(self._frame, planes=self._planes[view], format=self._small)
                )
            _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
            jpegs[view] = data.tobytes()
        return jpegs


def _reduce(source: Planes, target: Planes) -> None:
    _reduce_plane(source.luma, target.luma)
    _reduce_plane(source.chroma, target.chroma)


def _reduce_plane(source: NDArray[Any], target: NDArray[Any]) -> None:
    if source.shape == target.shape:
        np.copyto(target, source)
    else:
        cv2.resize(source, target.shape[1::-1], dst=target, interpolation=cv2.INTER_AREA)
