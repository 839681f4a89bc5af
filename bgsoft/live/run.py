"""A run of ``bgsoft live``, from sources and settings to the end of all streams."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from bgsoft.errors import BgsoftError, ConfigError
from bgsoft.live.cameras import CameraConfig
from bgsoft.live.encoded import EncodedSink
from bgsoft.live.engine import Engine
from bgsoft.live.settings import LiveSettings, picture_config
from bgsoft.live.source import Patience
from bgsoft.live.stream import LiveStream
from bgsoft.outputs import check_target, made_folders
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.records import dataclass
from bgsoft.settings.presets import Layer
from bgsoft.settings.user import NO_CONFIG, UserConfig
from bgsoft.suggestions import network_address

_CAMERAS = "/dev/video"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """Settings of a run, in addition to its sources."""

    flags: Layer = field(default_factory=dict)
    """Settings on top of each source's preset."""
    user: UserConfig = NO_CONFIG
    """The user's defaults."""
    overwrite: bool = False
    """Whether recordings and the trace may be replaced."""
    trace: Path | None = None
    """Where to write a trace."""
    patience: Patience = Patience()
    """How long streams wait."""


def run_live(
    cameras: Sequence[CameraConfig],
    options: LiveOptions,
    *,
    cancel: threading.Event,
    report: Callable[[str], None],
    on_stats: Callable[[dict[str, Any]], None] = lambda _figures: None,
) -> list[BgsoftError]:
    """Run sources until ``cancel`` is set or all have ended.

    Args:
        cameras: The sources and their sinks.
        options: Their settings.
        cancel: Set it to end the run; recordings are finished.
        report: Receives a line for each event; called from any thread.
        on_stats: Receives the figures of each stream, every few seconds and at the end.

    Returns:
        Errors that have ended a source or a sink early, in order.

    Raises:
        BgsoftError: Settings contradict each other, or a sink or backend cannot be opened.
    """
    flags, trace = options.flags, options.trace
    targets = [to for each in cameras for to in each.to]
    if "encode" in flags and all(to.startswith(_CAMERAS) for to in targets):
        raise ConfigError("cannot use --codec or its options: they need a --to FILE or address")
    files = [
        Path(to) for to in targets if network_address(to) is None and not to.startswith(_CAMERAS)
    ]
    if options.overwrite and not files and trace is None:
        raise ConfigError("cannot use --overwrite: it needs a --to FILE or --trace FILE")
    taken = set[str]()
    for target in targets:
        path = os.path.realpath(target)
        if path in taken:
            raise ConfigError(f"--to {target} must be given once")
        taken.add(path)
    specs = [replace(camera.spec, patience=options.patience) for camera in cameras]
    configs = [picture_config(camera.preset, flags, options.user) for camera in cameras]
    inputs = [
        file
        for spec, config in zip(specs, configs, strict=True)
        for file in (*spec.files, *config.inputs[1:])  # the first is nowhere
    ]
    if trace is not None:
        check_target(trace, "trace", overwrite=options.overwrite, others=[*inputs, *files])
        files.append(trace)
    recorder = None if trace is None else TraceRecorder()
    engine = Engine(configs[0], report, len(cameras), on_stats=on_stats, recorder=recorder)
    made: list[str] = []
    with made_folders(files, made.append):
        with engine:
            for camera, spec, config in zip(cameras, specs, configs, strict=True):
                stream = engine.add(camera.name, spec, config)
                _open_sinks(stream, camera, options, report, inputs)
            for text in made:  # after the sinks are open, as a failure prints one line
                report(f"notice: {text}")
            engine.run(cancel)
        if recorder is not None and trace is not None:
            check_target(trace, "trace", overwrite=options.overwrite)  # it may have appeared
            recorder.write(trace)
    return engine.failures


def _open_sinks(
    stream: LiveStream,
    camera: CameraConfig,
    options: LiveOptions,
    report: Callable[[str], None],
    inputs: Sequence[Path],
) -> None:
    """Open a stream's sinks, which must not replace an input of any stream."""
    if not camera.to and camera.share is None and camera.preview is None:
        raise ConfigError(f"cannot start {camera.name}: add --to, --share or --preview")
    config, info = stream.stages.config, lambda: stream.stages.info
    for target in camera.to:
        if target.startswith(_CAMERAS):
            from bgsoft.live.virtual_camera import VirtualCamera

            stream.sinks.add(VirtualCamera(target, config, info))
        else:
            sink = EncodedSink(
                target,
                config,
                info,
                overwrite=options.overwrite,
                inputs=inputs,
                report=report,
                missed=lambda: stream.dropped,
            )
            stream.sinks.add(sink)
    if camera.share is not None:
        from bgsoft.live.shared import SharedWriter

        stream.sinks.add(SharedWriter(camera.share))
        stream.stages.takes_faces = True
    if camera.preview is not None:
        from bgsoft.live.preview import PreviewServer

        figures = lambda: stream.figures.newest  # noqa: E731
        settings = LiveSettings(
            camera.preset, options.flags, stream.stages.apply, figures, options.user
        )
        server = PreviewServer(camera.preview, settings)
        stream.sinks.add(server)
        report(f"{stream.name}: open {server.url} in a browser")
