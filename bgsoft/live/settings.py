"""The settings of a running stream, and their change between two frames."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.presets import Layer
from bgsoft.settings.user import NO_CONFIG, UserConfig

_NOWHERE = Path(os.devnull)


def picture_config(preset: str | None, flags: Layer, user: UserConfig = NO_CONFIG) -> RenderConfig:
    """Return settings for frames that come from no file and go to none.

    Args:
        preset: Name or file; None: the default.
        flags: Section → field → value, on top of the preset.
        user: The user's defaults.

    Raises:
        PresetError, ConfigError: As :func:`bgsoft.rendering.configure.build_config`.
    """
    config = build_config(_NOWHERE, _NOWHERE, preset=user.preset(preset), flags=flags)
    config.check_for_arrays()
    return replace(config, backends=replace(config.backends, batch=1, ring_slots=4))


class LiveSettings:
    """Settings that a page reads and changes while a stream runs; usable from any thread.

    Args:
        preset: The stream's first preset.
        flags: The user's flags on top of it.
        apply: Builds stages with new settings, and lets them replace the running ones.
        figures: Returns the newest figures of the stream.
        user: The user's defaults.
    """

    def __init__(
        self,
        preset: str | None,
        flags: Layer,
        apply: Callable[[RenderConfig], None],
        figures: Callable[[], Mapping[str, Any]] = dict,
        user: UserConfig = NO_CONFIG,
    ) -> None:
        self._user = user
        self.preset = preset
        """Name or file of the preset below all changes; None: the default."""
        self.flags: Layer = flags
        """Section → field → value, on top of the preset."""
        self.config = picture_config(preset, flags, user)
        """All current settings."""
        self.figures = figures
        """``frames_in``, ``frames_out``, ``dropped``, ``latency_ms`` (p50, p95, p99), …: as in a
        line of ``--stats json``."""
        self._apply = apply
        self._lock = threading.Lock()

    def change(self, preset: str | None, flags: Layer) -> None:
        """Apply other settings; return once the next frame will have them.

        Args:
            preset: Name or file; None: the default.
            flags: Replaces :attr:`flags` entirely.

        Raises:
            BgsoftError: They are contradictory, or cannot run here; the old ones stay.
        """
        with self._lock:
            config = picture_config(preset, flags, self._user)
            self._apply(config)
            self.preset, self.flags, self.config = preset, flags, config
