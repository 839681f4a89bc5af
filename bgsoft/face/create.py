"""Creation of the face step from the settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.errors import ConfigError
from bgsoft.face.base import LOOKAHEAD_FRAMES, FaceTaker
from bgsoft.face.detect import BORDER_PX, COARSE_BORDER_PX, Canvases
from bgsoft.face.faces_file import KnownFaces, KnownFinder, read_faces_file
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.guard import MatteEditor
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.people import (
    AgreedPicker,
    ChosenPicker,
    FirstFramesPicker,
    Picker,
    ShotPicker,
    choose_main,
)
from bgsoft.face.step import FaceStep
from bgsoft.face.subjects import SubjectPicker
from bgsoft.frame import FrameFormat
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan
from bgsoft.media.info import VideoInfo
from bgsoft.ops.placement import HOST, current_device
from bgsoft.settings.config import FaceConfig, FaceMode, RenderConfig
from bgsoft.settings.main import parse_main

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


_COARSE_PX = 320
"""Input pixels of the frame's long side where only faces matter that the mask may have missed."""
_SMALLEST_PX, _LARGEST_PX = 640, 960
"""Canvas sizes if small faces are detected, too: smaller frames are enlarged, up to twice, and
larger ones reduced, at most by two."""
_REGULAR_SECONDS, _SELDOM_SECONDS = 0.13, 0.2
"""Longest time from one detector pass to the next where main people are kept or larger frames
searched for faces to hide, and where faces are only guarded."""
_MAX_HIDING_SECONDS = 0.5
"""Longest such time that users may set where faces are hidden: a face that is out of sight is
hidden for a little longer. It counts where later frames are unknown, as in live streams."""


def finder_settings(
    config: FaceConfig, format: FrameFormat, *, writes_data: bool
) -> FinderSettings:
    """Return the settings of the search for faces."""
    hides = config.mode is FaceMode.ANONYMIZE
    long_side = max(format.width, format.height)
    scale, border = min(1.0, _COARSE_PX / long_side), COARSE_BORDER_PX
    if hides or config.small_faces:
        border = BORDER_PX
        scale = max(min(_SMALLEST_PX / long_side, 2.0), min(max(_LARGEST_PX / long_side, 0.5), 1.0))
    elif config.mode is FaceMode.MAIN:
        scale, border = min(1.0, _SMALLEST_PX / long_side), BORDER_PX
    seconds = _REGULAR_SECONDS if hides or config.mode is FaceMode.MAIN else _SELDOM_SECONDS
    if hides and long_side <= _LARGEST_PX:  # larger frames take long
        seconds = 0.0
    every = config.detect_every or (1 if writes_data else None)
    if every:
        seconds = _MAX_HIDING_SECONDS if hides else math.inf
    return FinderSettings(
        scale=scale,
        border=border,
        seconds=seconds,
        # So often that a face that is found late is hidden from its first frame on.
        most_frames=every or LOOKAHEAD_FRAMES,
        hides=hides,
        by_landmarks=writes_data,
    )


def create_faces(
    config: RenderConfig,
    info: VideoInfo,
    make_networks: Callable[[Canvases], FaceNetworks],
    data: FaceTaker | None,
    known: KnownFaces | None = None,
    *,
    backend: str = "cpu",
    device: CudaDevice | None = None,
) -> FaceStep | None:
    """The face step; None where no faces are wanted.

    Args:
        config: Settings of the render.
        info: The video.
        make_networks: Makes the networks where the frames are, for some canvases.
        data: Whoever wants the faces of every frame.
        known: All faces of the video, if they were recorded or read; else a file is read.
        backend: Backend of the networks.
        device: Current device of the frames; None: the host.

    Raises:
        ConfigError: The file of faces cannot be used.
        ModelError: A model's file is damaged.
        BackendUnavailableError: A model does not load on the device.
    """
    if config.face.mode is FaceMode.OFF and config.face_data is None:
        return None
    placement = HOST if device is None else current_device()
    format = info.format
    writes_data = data is not None and data.wants_landmarks
    known = known or read_known_faces(config.face)
    return FaceStep(
        config=config.face,
        format=format,
        finder=make_finder(config, info, make_networks, known, writes_data=writes_data),
        picker=make_picker(config.face, info, known),
        known=known,
        editor=MatteEditor(format, placement, device),
        hider=Hider(HidePlan.of(config, format), placement),
        data=data,
        backend=backend,
        device="cpu" if device is None or backend == "cpu" else device.label,
    )


def make_finder(
    config: RenderConfig,
    info: VideoInfo,
    make_networks: Callable[[Canvases], FaceNetworks],
    known: KnownFaces | None,
    *,
    writes_data: bool,
) -> FaceFinder:
    """Return what finds the faces, or takes them from those that are known.

    Raises:
        ConfigError: The known faces are of another video.
    """
    settings = finder_settings(config.face, info.format, writes_data=writes_data)
    if known is not None:
        known.require_video(info)
    networks = make_networks(settings.canvases(info.format))
    if known is None:
        return FaceFinder(info.format, networks, settings)
    return KnownFinder(known, info.format, networks, settings, is_part=config.is_part)


def read_known_faces(config: FaceConfig) -> KnownFaces | None:
    """Return the faces of the settings' file; None: there is none.

    Raises:
        ConfigError: It cannot be read, or does not fit the settings.
    """
    if config.file is None:
        return None
    known = read_faces_file(Path(config.file))
    if known.hidden and config.mode is not FaceMode.ANONYMIZE:
        raise ConfigError(
            f'cannot use face file {config.file} with --face {config.mode}: its "hide": true needs'
            " --face anonymize",
            path=Path(config.file),
        )
    for id in map(parse_main, config.main):
        if id in known.hidden:
            raise ConfigError(
                f'cannot use --main {id}: its track is "hide": true in {config.file}',
                path=Path(config.file),
            )
    return known


def make_picker(config: FaceConfig, info: VideoInfo, known: KnownFaces | None) -> Picker:
    """Return what picks the main people."""
    if config.mode not in (FaceMode.MAIN, FaceMode.ANONYMIZE) or not config.subjects:
        return Picker()
    named = frozenset[int]() if known is None else known.main
    if config.main or named:
        return ChosenPicker(config.main, named, info)
    if config.mode is FaceMode.MAIN:
        return SubjectPicker(config.subjects, info.format)
    count, format = config.subjects, info.format
    if known is None or known.cuts is None:
        return AgreedPicker(
            [FirstFramesPicker(count, format, splits=splits) for splits in (False, True)]
        )
    shots = (
        choose_main(known.items(), known.cuts, count, format, splits=splits)
        for splits in (False, True)
    )
    return AgreedPicker([*map(ShotPicker, shots)])
