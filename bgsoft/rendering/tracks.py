"""Detection of the faces of a video as in a render, without writing the video."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError
from bgsoft.face.faces_file import KnownFaces
from bgsoft.outputs import check_target, made_folders, write_whole
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.people import search_faces
from bgsoft.rendering.request import Request
from bgsoft.rendering.session import hand_over_frames
from bgsoft.report import Event
from bgsoft.settings.config import FaceMode, RenderConfig


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
    top = {"": {"overwrite": overwrite}}
    return build_config(input, output, preset=None, flags={**flags, "face": face, **top})


def write_tracks(config: RenderConfig, listener: Listener) -> KnownFaces:
    """Find the faces, write the file, and return them.

    Args:
        config: Result of :func:`tracks_config`.
        listener: Hears of events, and stops the search.

    Raises:
        ConfigError, OutputError: The file cannot be written.
        BgsoftError: The errors of :func:`bgsoft.rendering.session.render_whole`.
    """
    read = Request(config, writes=False).read_files
    check = partial(check_target, config.output, "faces", overwrite=config.overwrite)
    check(others=read)

    def note(text: str) -> None:
        listener.event(Event(kind="notice", message=text))

    with made_folders([config.output], note):
        known, info = search_faces(config, listener, hand_over_frames)
        check()  # it may have appeared during the search
        write_whole(config.output, "faces", known.text(info))
    return known
