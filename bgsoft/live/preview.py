"""The browser's preview: source, matte and result, with sliders that take effect at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.encode.rgb import RgbPictures
from bgsoft.errors import BgsoftError, ConfigError, OutputError
from bgsoft.frame import FrameFormat, Planes
from bgsoft.live.base import LiveFrame
from bgsoft.live.page import PagePreview, PreviewRequest
from bgsoft.live.settings import LiveSettings
from bgsoft.page_server import PageServer
from bgsoft.rendering.host import host_planes
from bgsoft.settings.config import EffectKind
from bgsoft.settings.options import OPTIONS, settings_from_options
from bgsoft.settings.presets import list_presets, merge, save_preset
from bgsoft.suggestions import did_you_mean

SLIDERS = ("strength", "threshold", "feather", "temporal")
_MAX_WIDTH = 1280
_QUALITY = 85
_INTERVAL_SECONDS = 0.05
"""Time between pictures: three views of 1080p then take a third of a core."""
_WATCHED_SECONDS = 3.0
"""Time after its last request in which a page counts as open."""


class PreviewServer(Closing):
    """Shows the stream on a page of 127.0.0.1; the sink of ``--preview``.

    Args:
        port: 0: any free port.
        settings: Settings that the page shows and changes.
        clock: Returns seconds; times requests and pictures.

    Raises:
        ConfigError: The port is invalid.
        OutputError: The port is in use.
    """

    wants_source = True

    def __init__(
        self, port: int, settings: LiveSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not 0 <= port <= 65535:
            raise ConfigError(f"--preview must be a port between 0 and 65535, not {port}")
        self.dropped = 0
        self.poll_seconds = 2.0
        """Longest wait of a request for a new picture."""
        self._settings = settings
        self._clock = clock
        self._changing = threading.Lock()
        self._server = PageServer[PagePreview](port, self, PreviewRequest, "preview")
        self.token, self.url = self._server.token, self._server.url
        self.name = "preview"
        self._condition = threading.Condition()
        self._watched: dict[str, float] = {}
        self._pictures: dict[str, tuple[int, float, bytes]] = {}
        """View → number, age in ms when it was encoded, JPEG."""
        self._snapshot = _Snapshot()
        self._is_taken = self._is_closed = False
        """Whether the snapshot waits to be encoded or is being encoded; whether this is closed."""
        self._taken_at = 0.0
        self._failure: BgsoftError | None = None
        """Error that has ended the encoding thread."""
        self._threads = [
            threading.Thread(target=self._encode, name="preview"),
            threading.Thread(target=self._server.serve_forever, args=(0.05,), name="preview page"),
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def publish(self, frame: LiveFrame) -> None:
        now = self._clock()
        views = [
            view for view, asked in list(self._watched.items()) if now - asked < _WATCHED_SECONDS
        ]
        if not views or now - self._taken_at < _INTERVAL_SECONDS:
            return
        if self._failure is not None:
            raise OutputError(f"cannot show the preview: {self._failure}") from self._failure
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
            shows_matte = self._settings.config.effect.kind is EffectKind.MATTE
            try:
                jpegs = self._snapshot.encode(shows_matte=shows_matte)
            except BgsoftError as exc:
                self._failure = exc
                return
            age_ms = (time.monotonic_ns() - self._snapshot.captured_ns) / 1e6
            with self._condition:
                self._pictures |= {view: (number, age_ms, jpeg) for view, jpeg in jpegs.items()}
                self._is_taken = False
                self._condition.notify_all()

    def picture(self, view: str, after: int) -> tuple[int, float, bytes] | None:
        """Wait for a picture newer than ``after``; return its number, age in ms, and JPEG."""

        def newer() -> bool:
            return self._is_closed or self._pictures.get(view, (0,))[0] > after

        self._watched[view] = self._clock()
        with self._condition:
            found = self._condition.wait_for(newer, self.poll_seconds) and not self._is_closed
            return self._pictures[view] if found else None

    def state(self) -> dict[str, Any]:
        """Return what the page shows in addition to pictures."""
        config = self._settings.config
        sliders = {}
        for name in SLIDERS:
            option = OPTIONS[name]
            value = getattr(getattr(config, option.section), option.field.name)
            low, high = option.setting.range or (0, config.effect.max_strength)
            if name == "strength":
                value = config.effect.effective_strength
            sliders[name] = {"value": value, "low": low, "high": high, "help": option.help}
        return {
            "sliders": sliders,
            "preset": config.preset,
            "presets": [path.stem for path in list_presets()],
            "figures": {**self._settings.figures(), "not shown here": self.dropped},
        }

    def change(self, wanted: Mapping[str, object]) -> None:
        """Apply a change from the page: slider → number, or ``preset`` → name.

        A preset resets the sliders, and the flags of the same names.

        Raises:
            BgsoftError: The change is impossible; the settings stay.
        """
        with self._changing:
            self._change(dict(wanted))

    def _change(self, wanted: dict[str, object]) -> None:
        settings, flags = self._settings, self._settings.flags
        preset = wanted.pop("preset", settings.preset)
        for name in wanted:
            if name not in SLIDERS:
                raise ConfigError(f"unknown setting {name!r}{did_you_mean(name, SLIDERS)}")
        if preset != settings.preset:
            presets = [path.stem for path in list_presets()]
            if preset not in presets:
                raise ConfigError(f"unknown preset {preset!r}{did_you_mean(str(preset), presets)}")
            ours = {(OPTIONS[name].section, OPTIONS[name].field.name) for name in SLIDERS}
            flags = {
                section: {key: value for key, value in part.items() if (section, key) not in ours}
                for section, part in flags.items()
            }
        read = settings_from_options(wanted, from_text=False)
        below = {section: flags.get(section, {}) for section in read}
        settings.change(preset, {**flags, **merge(below, read)})

    def save(self, name: object, *, replaces: bool) -> Path:
        """Save the current settings as a preset; raises BgsoftError on failure."""
        return save_preset(
            name if isinstance(name, str) else "", self._settings.config, replaces=replaces
        )

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
    """A reduced copy of a frame for the encoding thread; its buffers are reused."""

    def __init__(self) -> None:
        self.captured_ns = 0
        self._format: FrameFormat | None = None
        self._views: list[str] = []

    def take(self, shared: LiveFrame, views: list[str]) -> None:
        format = shared.frame.format
        if format != self._format:
            divisor = -(-format.width // _MAX_WIDTH)
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
