"""The pass over a video that finds all faces, before a render that hides all but main people.

The render then uses these faces, so the frames are decoded twice and searched once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from bgsoft.encode.base import FrameTaker, PictureKind
from bgsoft.face.base import FaceTaker
from bgsoft.face.faces_file import FacesRecorder, read_faces_file
from bgsoft.face.people import KnownPeople, choose_main
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.rendering.listener import Listener
from bgsoft.report import Event, Phase, Progress, RenderReport
from bgsoft.settings.config import (
    DetectorConfig,
    EffectConfig,
    EffectKind,
    FaceMode,
    HideConfig,
    MatteConfig,
    MatteQuality,
    RegionConfig,
    RenderConfig,
    SegmentConfig,
)

_SEGMENTED_EVERY = 300
"""Masks are made this rarely, as faces do not depend on them."""


class FrameRender(Protocol):
    """A render that gives its frames away."""

    def __call__(
        self,
        config: RenderConfig,
        taker: FrameTaker,
        listener: Listener | None = None,
        *,
        faces: FaceTaker | None = None,
    ) -> RenderReport: ...


class NoPictures:
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


def only_faces(config: RenderConfig) -> RenderConfig:
    """Return the settings of the cheapest render that detects the faces of another one."""
    # With landmarks, the detector runs on every frame.
    every = config.face.detect_every or (None if config.face_data is None else 1)
    face = replace(config.face, detect_every=every)
    if face.mode is FaceMode.ANONYMIZE:
        face = replace(face, main=(), subjects=0)  # the finder does not depend on who is main
    return replace(
        config,
        face=face,
        effect=EffectConfig(kind=EffectKind.DIM, strength=0.0),
        segment=SegmentConfig(matte=MatteQuality.FAST, mask_every=_SEGMENTED_EVERY),
        matte=MatteConfig(),
        hide=HideConfig(),
        regions=RegionConfig(),
        detector=DetectorConfig(),
        face_data=None,
        matte_out=None,
        report=None,
        trace=None,
        receipt=None,
    )


def needs_known_people(config: RenderConfig) -> bool:
    """Return whether the main people of a video have to be chosen before it is rendered."""
    face = config.face
    if face.mode is not FaceMode.ANONYMIZE or face.subjects == 0 or face.main:
        return False
    return face.file is None or not read_faces_file(Path(face.file)).main


def find_people(
    config: RenderConfig, listener: Listener, hand_over_frames: FrameRender
) -> KnownPeople:
    """Find all faces of a file, and choose the main people of each shot.

    Args:
        config: Settings of the render.
        listener: Receives the progress; events come again from the render.
        hand_over_frames: :func:`bgsoft.rendering.session.hand_over_frames`.

    Raises:
        BgsoftError: The errors of :func:`bgsoft.rendering.session.render_whole`.
    """
    cuts: set[int] = set()

    def hear(event: Event) -> None:
        if event.kind == "scene-cut" and event.pts is not None:
            cuts.add(event.pts)

    def show(progress: Progress) -> None:
        listener.progress(replace(progress, phase=Phase.SEARCH))

    recorder, taker = FacesRecorder(), NoPictures()
    inner = Listener(show, hear, listener.cancel)
    report = hand_over_frames(only_faces(config), taker, inner, faces=recorder)
    count, format = config.face.subjects, taker.info.format
    shots = choose_main(recorder.items(), cuts, count, format)
    assert report.faces is not None
    return KnownPeople(recorder, shots, report.faces)
