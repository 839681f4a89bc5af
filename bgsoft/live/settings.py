"""The settings of a running stream: what they are, and their change between two frames."""

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
    """The settings of what is neither one file nor written to one; one frame at a time.

    Args:
        preset: Name or file; None: none is named.
        flags: Section → field → value, on top of it.
        user: The user's defaults.

    Raises:
        PresetError, ConfigError: As :func:`bgsoft.rendering.configure.build_config`.
    """
    config = build_config(_NOWHERE, _NOWHERE, preset=user.preset(preset), flags=flags)
    config.check_for_arrays()
    return replace(config, backends=replace(config.backends, batch=1, ring_slots=4))


class LiveSettings:
    """What a page may read and change while frames go on; from any thread.

    Args:
        preset: What the stream began with.
        flags: What the user has named on top of that.
        apply: Builds the stages of new settings, while the old ones go on, and has them take over.
        figures: Newest figures of the stream.
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
        """Name or file of the preset below all changes; None: none is named."""
        self.flags: Layer = flags
        """Section → field → value, on top of it."""
        self.config = picture_config(preset, flags, user)
        """All that is in force."""
        self.figures = figures
        """``frames_in``, ``frames_out``, ``dropped``, ``latency_ms`` (p50, p95, p99), …: as in a
        line of ``--stats json``."""
        self._apply = apply
        self._lock = threading.Lock()

    def change(self, preset: str | None, flags: Layer) -> None:
        """Put other settings in force; returns once the next frame will have them.

        Args:
            preset: Name or file; None: none is named.
            flags: As :attr:`flags`; all of them, not only those that are new.

        Raises:
            BgsoftError: They make no sense, or cannot run here; the old ones go on.
        """
        with self._lock:
            config = picture_config(preset, flags, self._user)
            self._apply(config)
            self.preset, self.flags, self.config = preset, flags, config
