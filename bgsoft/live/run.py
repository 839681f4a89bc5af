"""One run of ``bgsoft live``: from sources and settings to the end of all streams."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bgsoft.errors import BgsoftError, ConfigError
from bgsoft.live.cameras import CameraConfig
from bgsoft.live.engine import Engine
from bgsoft.live.settings import LiveSettings, picture_config
from bgsoft.live.sinks import CAMERAS, open_sinks
from bgsoft.outputs import check_target
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.settings.presets import Layer


def run_live(
    cameras: Sequence[CameraConfig],
    flags: Layer,
    *,
    cancel: threading.Event,
    report: Callable[[str], None],
    on_stats: Callable[[dict[str, Any]], None] = lambda _figures: None,
    overwrite: bool = False,
    trace: Path | None = None,
) -> list[BgsoftError]:
    """Run sources side by side until ``cancel`` is set or all have ended.

    Args:
        cameras: The sources and their sinks.
        flags: Settings on top of each one's preset.
        cancel: Set it to end the run; recordings are finished.
        report: Told of what happens, in a line each; from any thread.
        on_stats: Gets the figures of each stream, every few seconds and at the end.
        overwrite: Recordings may be replaced.
        trace: Where to write what each thread did.

    Returns:
        What has ended a source or a sink before its time, in order.

    Raises:
        BgsoftError: Settings make no sense, or a sink or backend cannot be opened.
    """
    if "encode" in flags and not any(_is_encoded(to) for each in cameras for to in each.to):
        raise ConfigError("--codec and its kin have no effect: they need a --to FILE or address")
    taken = set[str]()
    for target in (to for each in cameras for to in each.to):
        path = os.path.realpath(target)
        if path in taken:
            raise ConfigError(f"--to {target} is named twice")
        taken.add(path)
    specs = [camera.spec for camera in cameras]
    if trace is not None:
        check_target(trace, "trace", others=[file for spec in specs for file in spec.files])
    recorder = None if trace is None else TraceRecorder()
    configs = [picture_config(camera.preset, flags) for camera in cameras]
    with Engine(configs[0], report, on_stats=on_stats, recorder=recorder) as engine:
        for camera, spec, config in zip(cameras, specs, configs, strict=True):
            stream = engine.add(camera.name, spec, config)
            settings = LiveSettings(camera.preset, flags, stream.apply, stream.newest_figures)
            open_sinks(
                stream,
                camera.to,
                settings=settings,
                share=camera.share,
                preview=camera.preview,
                overwrite=overwrite,
                report=report,
            )
        engine.run(cancel)
    if recorder is not None and trace is not None:
        recorder.write(trace)
    return engine.failures


def _is_encoded(target: str) -> bool:
    return not target.startswith(CAMERAS)
