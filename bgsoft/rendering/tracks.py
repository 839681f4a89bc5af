"""Detection of the faces of a video as in a render, without writing the video."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bgsoft.encode.base import PictureKind
from bgsoft.errors import ConfigError
from bgsoft.face.faces_file import FacesRecorder
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.outputs import check_target, write_whole
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.session import hand_over_frames
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind, FaceMode, MatteQuality, RenderConfig

_SEGMENTED_EVERY = 300
"""Masks are made this rarely, as faces do not depend on them."""


class _NoPictures:
    """A sink that discards frames, of which only faces are needed."""

    name, pixel_format, kind, waits = "none", "", PictureKind.COLOR, 0
    on_host_only = False

    def __init__(self) -> None:
        self.frames = 0

    def open(self, info: VideoInfo) -> None:
        self.info = info

    def encode(self, frame: Frame) -> None:
        if frame.ready is not None:
            frame.ready.synchronize()
        self.frames += 1

    def finish(self) -> None:
        """Do nothing: no frame is kept."""

    def close(self) -> None:
        """Do nothing: no file is open."""


def tracks_config(
    input: Path, output: Path, flags: Mapping[str, Mapping[str, Any]], *, overwrite: bool
) -> RenderConfig:
    """Return the settings of the cheapest render that detects these faces.

    Raises:
        ConfigError: A setting is wrong.
    """
    face = {"mode": FaceMode.ANONYMIZE, **flags.get("face", {})}
    if face["mode"] is FaceMode.OFF:
        raise ConfigError("cannot use --face off: it finds no faces; use another --face")
    cheap: dict[str, Mapping[str, Any]] = {
        "effect": {"kind": EffectKind.DIM, "strength": 0.0},
        "segment": {"matte": MatteQuality.FAST, "mask_every": _SEGMENTED_EVERY},
    }
    top = {"": {"overwrite": overwrite}}
    return build_config(input, output, preset=None, flags={**flags, **cheap, "face": face, **top})


def write_tracks(config: RenderConfig, on_event: Callable[[Event], None]) -> FacesRecorder:
    """Find the faces, write the file, and return the recorder with all tracks.

    Raises:
        ConfigError, OutputError: The file cannot be written.
        BgsoftError: The errors of :func:`bgsoft.rendering.session.render_whole`.
    """
    check_target(config.output, "faces", overwrite=config.overwrite, others=config.inputs)
    recorder, taker = FacesRecorder(), _NoPictures()
    hand_over_frames(config, taker, Listener(on_event=on_event), faces=recorder)
    write_whole(config.output, "faces", recorder.text(taker.info))
    return recorder
