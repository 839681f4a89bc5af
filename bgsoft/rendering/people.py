"""The pass over a video that finds all faces, before a render that hides all but main people.

The render then uses these faces, so the frames are decoded twice and searched once.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Protocol

from bgsoft.encode.base import FrameTaker, PictureKind
from bgsoft.face.base import FaceTaker
from bgsoft.face.faces_file import KnownFaces
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.rendering.listener import Listener
from bgsoft.report import Event, Phase, Progress, RenderReport
from bgsoft.settings.config import (
    DetectorConfig,
    EffectConfig,
    EffectKind,
    FaceConfig,
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
        self.frames, self.pts = 0, array("q")

    def open(self, info: VideoInfo) -> None:
        self.info = info

    def encode(self, frame: Frame) -> None:
        if frame.ready is not None:
            frame.ready.synchronize()
        self.frames += 1
        self.pts.append(frame.pts)

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


def needs_search(config: RenderConfig, known: KnownFaces | None) -> bool:
    """Return whether main people have to be chosen, and the known faces are not enough for it."""
    face = config.face
    if face.mode is not FaceMode.ANONYMIZE or not face.subjects or face.main:
        return False
    return known is None or not (known.main or known.tells_shots)


def search_faces(
    config: RenderConfig,
    listener: Listener,
    hand_over_frames: FrameRender,
    known: KnownFaces | None = None,
) -> tuple[KnownFaces, VideoInfo]:
    """Find all faces of a file, and its cuts, without writing the video.

    Args:
        config: Settings of the render.
        listener: Receives the progress; events come again from the render.
        hand_over_frames: :func:`bgsoft.rendering.session.hand_over_frames`.
        known: The faces, where only frames and cuts are missing; completed.

    Raises:
        BgsoftError: The errors of :func:`bgsoft.rendering.session.render_whole`.
    """
    config, cuts, taker = only_faces(config), set[int](), NoPictures()
    if known is not None:
        config = replace(config, face=FaceConfig(mode=FaceMode.OFF))
    recorded = known or KnownFaces()

    def hear(event: Event) -> None:
        if event.kind == "scene-cut" and event.pts is not None:
            cuts.add(event.pts)
        listener.event(event)

    def show(progress: Progress) -> None:
        listener.progress(replace(progress, phase=Phase.SEARCH))

    inner = Listener(show, hear, listener.cancel)
    report = hand_over_frames(config, taker, inner, faces=recorded)
    recorded.frames, recorded.time_base, recorded.cuts = taker.pts, taker.info.time_base, cuts
    recorded.summary = report.faces
    return recorded, taker.info
